// Addends that are added up: on one device, or over several.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/emit/compress.h"
#include "compiler/emit/emission.h"

namespace heterog::compiler {

// Whether the result of a sum or collective lies where an addend did.
enum class InPlace : std::uint8_t { kNo, kYes };
// Yes if only update ops (through aliases) read the tensor.
InPlace may_be_overwritten(const cost::Problem& problem, TensorId tensor);

// The addends of one device become one, where it has several: two at a time, in their order, so
// that an addend can be given back as soon as it is added. `addends`: what the instances of the
// tensor's producer made. The result has one location per device, in the order of their first
// addends; where every device has one, nothing is emitted.
std::vector<Location> accumulate(Emission& e, TensorId tensor, std::vector<Location> addends,
                                 Bytes bytes, InPlace in_place);

// What an all-reduce adds up, the first of several values.
struct Reduced {
  TensorId tensor;
  Bytes bytes = 0;  // of all values as they are
  InPlace in_place = InPlace::kNo;
  cost::Compression compression = {};
};
// One all-reduce. Locations: the addends, one per device, on two devices or more; the results come
// in the same order. In place: the locations' buffers then hold the result. `moved`: over their
// devices.
std::vector<Location> all_reduce(Emission& e, const Reduced& reduced,
                                 std::span<const Location> locations, const Moved& moved);

// A task that adds `operands` values of `bytes` on a device, to which nothing is contributed yet.
// `of`: who made them, and whether they are means.
struct Addends {
  OpId maker;
  bool are_means = false;
};
TaskId add_sum(Emission& e, TaskKind kind, TensorId tensor, DeviceId device, int operands,
               Bytes bytes, const Addends& of);

// Transfers of all locations (one per device) to `root`, and a sum there: where the result is.
Location sum_at(Emission& e, TensorId tensor, std::span<const Location> locations, Bytes bytes,
                DeviceId root, TaskKind transfer_kind, InPlace in_place);

// Before a parameter server adds up: of each other machine one location is left, the sum of those
// of its devices, on the one that speaks for them.
std::vector<Location> sum_in_machines(Emission& e, TensorId tensor,
                                      std::span<const Location> locations, Bytes bytes,
                                      DeviceId server, InPlace in_place);

// A collective over `devices` (ascending), to which nothing is contributed yet. `op`: by which it
// is named; invalid: the one that makes the tensor.
TaskId add_collective(Emission& e, TaskKind kind, TensorId tensor,
                      std::span<const DeviceId> devices, const cost::CollectiveCost& cost,
                      Bytes bytes, OpId op = {});
// Addends (one per device) that come together before a server adds up: the server's own alone, if
// it has one, then those of each speaker and of the devices that it speaks for (decision 5).
struct Gathered {
  DeviceId at;
  std::vector<Location> addends;
};
std::vector<Gathered> gathered_by_speakers(const Emission& e, std::span<const Location> addends,
                                           DeviceId server);
// The devices of locations, ascending.
std::vector<DeviceId> devices_of(std::span<const Location> locations);

}  // namespace heterog::compiler
