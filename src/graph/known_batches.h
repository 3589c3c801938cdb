// Batches for which a graph is known to hold.
//
// A model decides things by its batch in Python (`if len(x) > 100`, `x.split(16)`), which the graph
// of a step shows nothing of. The exporter finds out for which batches all of it is decided alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heterog::graph {

struct KnownBatches {
  struct Range {
    std::int64_t from = 1;
    std::optional<std::int64_t> to = {};  // with it; nothing: all from there on
  };
  std::vector<Range> ranges = {{}};  // ascending, at least one; they do not touch

  bool contain(std::int64_t batch) const;
  std::int64_t smallest() const { return ranges.front().from; }
  // The smallest of at least so many samples; where there is none, the largest.
  std::int64_t next(std::int64_t batch) const;
  // The largest of at most so many samples; nothing where there is none.
  std::optional<std::int64_t> last(std::int64_t batch) const;
  std::string text() const;  // "2 to 16, 64, 100 and more"
};

}  // namespace heterog::graph
