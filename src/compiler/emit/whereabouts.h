// The place of every value while a plan is emitted.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "compiler/emit/instances_by_device.h"
#include "compiler/plan.h"
#include "cost/problem.h"
#include "decide/layout.h"

namespace heterog::compiler {

// A value, or some samples of it, on a device: the task that brings it there (invalid: it was there
// before the step) and the buffer that holds it (invalid: static memory).
struct Source {
  TaskId task;
  BufferId buffer;
};

// A whole value, or an addend of one, on a device.
struct Location {
  DeviceId device;
  Source source;
  // By what an addend counts if the value is a mean: the share of the batch that it was made from,
  // or 1 where it is multiplied already.
  double weight = 1;
};

// The location on a device, or null. `likely`: where it mostly stands.
inline const Location* find_location(std::span<const Location> locations, DeviceId device,
                                     std::size_t likely) {
  if (likely < locations.size() && locations[likely].device == device) return &locations[likely];
  for (const Location& location : locations) {
    if (location.device == device) return &location;
  }
  return nullptr;
}

// The results of an op's instances for a tensor: tasks and buffers of its instances follow one
// another.
struct Made {
  TaskId first_task;
  BufferId first_buffer;  // invalid: it was written over what stays
  std::uint32_t buffers_per_instance = 0;

  Source of(std::size_t instance) const {
    Source source{TaskId(first_task.value() + instance), BufferId()};
    if (first_buffer.valid()) {
      source.buffer = BufferId(first_buffer.value() + instance * buffers_per_instance);
    }
    return source;
  }
};

// The state of an emission, told of everything that was emitted and asked before anything else is.
// It holds no tasks and emits none.
//
//   where.ran(op, first_task);  where.made_buffer(op, out, buffer);     // instance 0 of an op
//   where.made(tensor, producer).of(i)                                  // what instance i made
//   where.add_piece(tensor, device, {begin, end, source})               // samples that arrived
//   where.set_total(tensor, locations);  where.total(tensor)            // what was added up
//   where.keep(tensor, device, bytes);  where.note_reader(tensor, device, task)  // what stays
class Whereabouts {
 public:
  // Parameters are at their homes; nothing else is anywhere. `devices`: that the layout may name.
  Whereabouts(const cost::Problem& problem, const decide::Layout& layout, std::size_t devices);

  const InstancesByDevice& instances_by_device() const { return instances_by_device_; }

  // ---- what the instances of ops made ----

  void ran(OpId op, TaskId first) { first_task_[op] = first; }
  void made_buffer(OpId op, TensorId out, BufferId first) {
    first_buffer_[out] = first;
    ++buffers_per_instance_[op];
  }
  // By what ran again for `reader`, if its producer did, else by what ran first.
  Made made(TensorId base, OpId producer) const {
    if (reader_.valid() && again_for_[producer] == reader_) {
      return {again_task_[producer], again_buffer_[base], buffers_per_instance_[producer]};
    }
    return {first_task_[producer], first_buffer_[base], buffers_per_instance_[producer]};
  }
  // The same once more, for a unit; then whoever reads for that unit (invalid: for none) finds it.
  void ran_again(OpId op, TaskId first, UnitId unit) {
    again_for_[op] = unit;
    again_task_[op] = first;
  }
  void made_buffer_again(TensorId out, BufferId first) { again_buffer_[out] = first; }
  void read_for(UnitId unit);
  UnitId made_again_for(OpId op) const { return again_for_[op]; }
  TaskId instance_task(OpId op, std::size_t instance) const {
    return TaskId(first_task_[op].value() + instance);
  }
  // All of them, each with its share of the batch.
  std::vector<Location> instances(TensorId base, OpId producer) const;

  // ---- samples, and whole values, that were brought to a device ----

  struct Piece {  // samples [begin, end)
    std::int64_t begin = 0;
    std::int64_t end = 0;
    Source source;
    std::uint32_t earlier = kNone;
  };
  void add_piece(TensorId tensor, DeviceId device, std::int64_t begin, std::int64_t end,
                 const Source& source);
  // The piece that came last, and the one before it; null: none. Valid until one is added.
  const Piece* latest_piece(TensorId tensor, DeviceId device) const {
    return piece(latest_piece_[cell(tensor, device)]);
  }
  const Piece* earlier(const Piece& later) const { return piece(later.earlier); }

  // ---- values that were added up ----

  // Null: it was not, or not yet.
  const std::vector<Location>* total(TensorId tensor) const {
    return total_[tensor] == kNone ? nullptr : &totals_[total_[tensor]];
  }
  void set_total(TensorId tensor, std::vector<Location> locations);

  // ---- what stays between steps ----

  // Bytes of it that are on the device before the step.
  Bytes resident(TensorId tensor, DeviceId device) const { return resident_[cell(tensor, device)]; }
  void keep(TensorId tensor, DeviceId device, Bytes bytes) {
    Bytes& resident = resident_[cell(tensor, device)];
    if (bytes > resident) resident = bytes;
  }
  // Devices on which something reads it, or writes it, ascending.
  std::vector<DeviceId> keepers(TensorId tensor) const;
  // Who reads the value that it had before the step. Only of what the step replaces is it noted.
  void note_reader(TensorId tensor, DeviceId device, TaskId reader);
  template <class Visit>
  void each_reader(TensorId tensor, DeviceId device, Visit visit) const {
    for (std::uint32_t at = latest_reader_[cell(tensor, device)]; at != kNone;
         at = readers_[at].second) {
      visit(readers_[at].first);
    }
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::size_t cell(TensorId tensor, DeviceId device) const {
    return tensor.value() * devices_ + device.value();
  }
  const Piece* piece(std::uint32_t at) const { return at == kNone ? nullptr : &pieces_[at]; }

  const cost::Problem& problem_;
  const decide::Layout& layout_;
  std::size_t devices_;
  InstancesByDevice instances_by_device_;
  IdVector<OpId, TaskId> first_task_;
  IdVector<TensorId, BufferId> first_buffer_;
  IdVector<OpId, std::uint32_t> buffers_per_instance_;
  // The unit, task and buffer of what ran again; empty where nothing did.
  IdVector<OpId, UnitId> again_for_;
  IdVector<OpId, TaskId> again_task_;
  IdVector<TensorId, BufferId> again_buffer_;
  UnitId reader_;
  std::vector<std::uint32_t> latest_piece_;  // [tensor][device]
  std::vector<Piece> pieces_;
  IdVector<TensorId, std::uint32_t> total_;  // index into totals_
  std::vector<std::vector<Location>> totals_;
  std::vector<Bytes> resident_;                            // [tensor][device]
  std::vector<std::uint32_t> latest_reader_;               // [tensor][device]
  std::vector<std::pair<TaskId, std::uint32_t>> readers_;  // with the earlier one
};

}  // namespace heterog::compiler
