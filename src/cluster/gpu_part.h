// A part of a GPU as a device of a cluster: some of its multiprocessors, as a green context has
// them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cluster/cluster.h"

namespace heterog::cluster {

// A part has a type of its own, named "H100-SXM5-80GB:32", so that plans, profiles and ranks tell
// it from the card. No other type is named so (devices.json is refused).
struct GpuPart {
  std::string gpu;  // the type of the card
  int multiprocessors = 0;
};
std::string part_name(const GpuPart& part);
// None where the type is that of a whole device.
std::optional<GpuPart> part_of(std::string_view type_name);

// What so many multiprocessors of a card are: all that the card has, in proportion. That is
// measured of arithmetic. Of memory's bandwidth and of the cache it is assumed: it is a part's
// share while all parts work; alone, a part can draw more.
DeviceType part_type(const DeviceType& gpu, int multiprocessors);

// Parts that follow one another are of one GPU, as long as they are of one type of card and the
// multiprocessors of that last.
class OpenGpu {
 public:
  // Whether the part is of the GPU that the part before it is of; `multiprocessors`: of the whole
  // card, no fewer than the part has.
  bool takes(const GpuPart& part, int multiprocessors);
  // A whole device comes next.
  void close() { left_ = 0; }

 private:
  std::string gpu_;
  int left_ = 0;
};

}  // namespace heterog::cluster
