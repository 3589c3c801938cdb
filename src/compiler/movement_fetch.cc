// What an op reads, brought to where it runs: as it is, the missing samples of a slice, or reduced.
#include <algorithm>

#include "base/check.h"
#include "compiler/movement.h"

namespace heterog::compiler {

using graph::OperandUse;
using graph::SplitKind;
using graph::TensorRole;

// The value is a row of samples, of which a slice is wanted.
bool Movement::holds_samples(const graph::Read& read) const {
  return read.rule.kind == SplitKind::kConcat ||
         (read.rule.kind == SplitKind::kWhole && graph_.tensor(read.tensor).has_batch);
}

void Movement::fetch(const Reader& reader, const graph::Read& read, std::vector<Source>& sources) {
  const Slice& slice = layout_.slices[reader.layout][reader.instance];
  if (read.use == OperandUse::kOnce && reader.instance != 0) return;
  if (!read.producer.valid()) {
    fetch_external(read, reader.op, slice, sources);
    return;
  }
  const bool same_layout = reader.layout == layout_.of_op[read.producer];
  switch (read.rule.kind) {
    case SplitKind::kLocal:
      ENSURE(same_layout);
      sources.push_back(instance_source(read.base, read.producer, reader.instance));
      return;
    case SplitKind::kSum:
    case SplitKind::kMean:
      if (read.use == OperandUse::kPartial) {
        if (same_layout) {
          sources.push_back(instance_source(read.base, read.producer, reader.instance));
          return;
        }
        // Partial sums over other slices: their total is an addend of the first instance.
        if (reader.instance != 0) return;
      }
      reduce(read, reader.layout);
      break;
    case SplitKind::kConcat:
    case SplitKind::kWhole:
      if (holds_samples(read)) {
        fetch_slice(read, slice, sources);
        return;
      }
      break;
    case SplitKind::kSame:
      break;
  }
  const DeviceId device = slice.device;
  if (is_reduced(read.base)) {
    fetch_same(read.tensor, reader.op, reduced_locations_[reduced_[read.base]], device, sources);
    return;
  }
  // What only one parameter's update makes has no layout of its own, and comes later.
  VALIDATE(
      layout_.of_op[read.producer].valid(),
      "{}: op '{}' reads '{}', which is part of the update of one parameter; expected that only "
      "that update reads it",
      graph_.name(), graph_.op(reader.op).name, graph_.tensor(read.tensor).name);
  const std::uint32_t here = instance_on(layout_.of_op[read.producer], device);
  if (here != kNone) {
    sources.push_back(instance_source(read.base, read.producer, here));
  } else {
    fetch_same(read.tensor, reader.op, instances(read.base, read.producer), device, sources);
  }
}

// The whole value from wherever it is, or from an earlier fetch.
void Movement::fetch_same(TensorId tensor, OpId reader, std::span<const Location> locations,
                          DeviceId device, std::vector<Source>& sources) {
  // Mostly every device has one, in order.
  if (device.value() < locations.size() && locations[device.value()].device == device) {
    sources.push_back(locations[device.value()].source);
    return;
  }
  for (const Location& location : locations) {
    if (location.device == device) {
      sources.push_back(location.source);
      return;
    }
  }
  const std::uint32_t known = pieces_at_[cell(tensor, device)];
  if (known != kNone) {
    sources.push_back(pieces_[known].source);
    return;
  }
  const Bytes bytes = graph_.bytes(tensor, problem_.batch);
  const Location* best = nullptr;
  Nanoseconds best_duration = 0;
  for (const Location& location : locations) {
    const Nanoseconds duration = cost::transfer_duration(
        *problem_.cluster, problem_.cluster->route(location.device, device), bytes);
    if (!best || duration < best_duration ||
        (duration == best_duration && location.device < best->device)) {
      best = &location;
      best_duration = duration;
    }
  }
  const Source arrived = transfer(
      {TaskKind::kTransfer, reader, tensor, best->device, device, 0, problem_.batch, bytes, bytes},
      best->source);
  add_piece(cell(tensor, device), 0, problem_.batch, arrived);
  sources.push_back(arrived);
}

// Inputs and buffers are wherever they are read; parameters and optimizer state at their homes.
void Movement::fetch_external(const graph::Read& read, OpId op, const Slice& slice,
                              std::vector<Source>& sources) {
  const graph::Tensor& tensor = graph_.tensor(read.base);
  const bool absent = resident_[cell(read.base, slice.device)] == 0;
  if (tensor.role == TensorRole::kParameter && absent &&
      layout_.home_of[read.base] != Layout::kNoHome) {
    std::vector<Location> replicas;
    for (DeviceId device : layout_.home(read.base).replicas) replicas.push_back({device, {}});
    fetch_same(read.tensor, op, replicas, slice.device, sources);
    return;
  }
  keep_external(read.base, slice);
}

void Movement::keep_external(TensorId tensor, const Slice& slice) {
  keep(cell(tensor, slice.device), graph_.bytes(tensor, slice.size()));
}

// ---- slices of the batch ----

void Movement::add_piece(std::size_t cell, std::int64_t begin, std::int64_t end,
                         const Source& source) {
  std::uint32_t& head = pieces_at_[cell];
  pieces_.push_back({begin, end, source, head, cell});
  head = static_cast<std::uint32_t>(pieces_.size() - 1);
}

void Movement::fetch_slice(const graph::Read& read, const Slice& slice,
                           std::vector<Source>& sources) {
  const LayoutId from = layout_.of_op[read.producer];
  const std::uint32_t here = instance_on(from, slice.device);
  if (here != kNone) {
    const Slice& local = layout_.slices[from][here];
    if (local.begin <= slice.begin && slice.end <= local.end) {
      sources.push_back(instance_source(read.base, read.producer, here));
      return;
    }
  }
  for (std::uint32_t at = pieces_at_[cell(read.tensor, slice.device)]; at != kNone;
       at = pieces_[at].next) {
    if (pieces_[at].begin <= slice.begin && slice.end <= pieces_[at].end) {
      sources.push_back(pieces_[at].source);
      return;
    }
  }
  std::vector<Piece> pieces;
  fetch_missing(read, slice, pieces);
  if (pieces.size() == 1) {
    sources.push_back(pieces.front().source);
    return;
  }
  const Source merged = merge(read.tensor, slice, pieces);
  add_piece(cell(read.tensor, slice.device), slice.begin, slice.end, merged);
  sources.push_back(merged);
}

// A cover of the slice by what the device holds and, where it holds nothing, by new transfers
// (decision 2). Greedy: of the pieces that hold the next sample, the one that reaches farthest.
void Movement::fetch_missing(const graph::Read& read, const Slice& slice,
                             std::vector<Piece>& pieces) {
  const LayoutId from = layout_.of_op[read.producer];
  const auto& produced = layout_.slices[from];
  std::vector<Piece> held;
  const std::uint32_t here = instance_on(from, slice.device);
  if (here != kNone) {
    held.push_back({produced[here].begin, produced[here].end,
                    instance_source(read.base, read.producer, here)});
  }
  for (std::uint32_t at = pieces_at_[cell(read.tensor, slice.device)]; at != kNone;
       at = pieces_[at].next) {
    held.push_back(pieces_[at]);
  }
  std::int64_t at = slice.begin;
  while (at < slice.end) {
    const Piece* best = nullptr;
    std::int64_t next_held = slice.end;
    for (const Piece& piece : held) {
      if (piece.begin > at) next_held = std::min(next_held, piece.begin);
      if (piece.begin > at || piece.end <= at) continue;
      if (!best || piece.end > best->end) best = &piece;
    }
    if (best) {
      pieces.push_back(*best);
      at = best->end;
      continue;
    }
    const auto producer = std::find_if(produced.begin(), produced.end(),
                                       [&](const Slice& s) { return s.begin <= at && at < s.end; });
    ENSURE(producer != produced.end());
    const std::int64_t end = std::min(producer->end, next_held);
    const Bytes bytes = graph_.bytes(read.tensor, end - at);
    const Source source =
        transfer({TaskKind::kTransfer, read.producer, read.tensor, producer->device, slice.device,
                  at, end, bytes, bytes},
                 instance_source(read.base, read.producer,
                                 static_cast<std::size_t>(producer - produced.begin())));
    add_piece(cell(read.tensor, slice.device), at, end, source);
    pieces.push_back({at, end, source});
    at = end;
  }
}

Source Movement::merge(TensorId tensor, const Slice& slice, std::span<const Piece> pieces) {
  const Bytes bytes = graph_.bytes(tensor, slice.size());
  PlanBuilder::Task task;
  task.kind = TaskKind::kMerge;
  task.op = graph_.tensor(tensor).producer;
  task.tensor = tensor;
  task.device = slice.device;
  task.begin = slice.begin;
  task.end = slice.end;
  task.duration =
      combine_duration(problem_.cluster->type_of(slice.device), 1, bytes, cluster::OpClass::kCopy);
  const TaskId id = builder_.add_task(task);
  builder_.hold(id, {builder_.plan().compute_stream(slice.device), task.duration});
  builder_.carry(id, {tensor});
  std::int64_t at = slice.begin;  // pieces may overlap: of each, what is new
  for (const Piece& piece : pieces) {
    builder_.depend(piece.source.task, id);
    builder_.read(id, piece.source.buffer);
    const std::int64_t end = std::min(piece.end, slice.end);
    builder_.contribute(id, {slice.device, piece.source.buffer, Encoding::kDense, at, end});
    at = end;
  }
  return {id, builder_.allocate(id, slice.device, bytes, tensor)};
}

}  // namespace heterog::compiler
