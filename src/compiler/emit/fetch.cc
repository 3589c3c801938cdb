// Values as they are, slices that are put together from what the device has and what it lacks, and
// totals of partial values.
#include "compiler/emit/fetch.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "compiler/emit/gather_frozen.h"
#include "compiler/emit/sums.h"
#include "compiler/emit/transfers.h"

namespace heterog::compiler {
namespace {

using graph::OperandUse;
using graph::SplitKind;
using graph::TensorRole;
using Piece = Whereabouts::Piece;

constexpr std::uint32_t kNone = InstancesByDevice::kNone;

// The value is a row of samples, of which a slice is wanted.
bool holds_samples(const Emission& e, const graph::Read& read) {
  return read.rule.kind == SplitKind::kConcat ||
         (read.rule.kind == SplitKind::kWhole && e.problem.graph->tensor(read.tensor).has_batch);
}

// ---- whole values ----

// The whole value from wherever it is, or from an earlier fetch.
Source fetch_same(Emission& e, TensorId tensor, OpId reader, std::span<const Location> locations,
                  DeviceId device) {
  // Mostly every device has one, in order.
  if (const Location* here = find_location(locations, device, device.value())) return here->source;
  if (const Piece* known = e.where.latest_piece(tensor, device)) return known->source;
  if (e.symmetry) {
    e.moves = true;
    return locations.front().source;
  }
  const Bytes bytes = e.problem.graph->bytes(tensor, e.problem.batch);
  const cluster::Cluster& cluster = *e.problem.cluster;
  const Location* best = nullptr;
  Nanoseconds best_duration = 0;
  for (const Location& location : locations) {
    const Nanoseconds duration =
        cost::transfer_duration(cluster, cluster.route(location.device, device), bytes);
    if (!best || duration < best_duration ||
        (duration == best_duration && location.device < best->device)) {
      best = &location;
      best_duration = duration;
    }
  }
  const Source arrived = transfer(e,
                                  {.op = reader,
                                   .tensor = tensor,
                                   .source = best->device,
                                   .destination = device,
                                   .end = e.problem.batch,
                                   .bytes = bytes,
                                   .bytes_at_destination = bytes},
                                  best->source);
  e.where.add_piece(tensor, device, 0, e.problem.batch, arrived);
  return arrived;
}

// Inputs and buffers are wherever they are read; parameters and optimizer state at their homes.
// Of frozen tensors that lie in rows the whole is gathered.
void fetch_external(Emission& e, const Reader& reader, const graph::Read& read, DeviceId device,
                    std::vector<Source>& sources) {
  if (e.frozen.has(read.base)) return sources.push_back(whole_frozen(e, reader, read.base, device));
  const bool away = e.problem.graph->tensor(read.base).role == TensorRole::kParameter &&
                    e.where.resident(read.base, device) == 0 &&
                    e.layout.home_of[read.base] != decide::Layout::kNoHome;
  if (!away) return keep_external(e, read.base, reader.layout, device);
  std::vector<Location> replicas;
  for (DeviceId replica : e.layout.home(read.base).replicas) replicas.push_back({replica, {}});
  sources.push_back(fetch_same(e, read.tensor, reader.op, replicas, device));
}

// A sum or mean over slices that someone reads as a whole: an all-reduce where the readers' devices
// are the producers', else a sum on the reader's first device, from where others fetch it.
void add_up(Emission& e, const graph::Read& read, decide::LayoutId readers) {
  if (e.where.total(read.base)) return;
  const decide::LayoutId made = e.layout.of_op[read.producer];
  const Bytes bytes = e.problem.graph->bytes(read.base, e.problem.batch);
  const auto partial =
      accumulate(e, read.base, e.where.instances(read.base, read.producer), bytes, InPlace::kNo);
  if (partial.size() == 1) {
    e.where.set_total(read.base, partial);
  } else if (readers == made || readers == e.layout.merged[made]) {
    const Moved moved{.cost = e.costs.all_reduce(devices_of(partial), bytes), .bytes = bytes};
    e.where.set_total(read.base,
                      all_reduce(e, {.tensor = read.base, .bytes = bytes}, partial, moved));
  } else {
    const DeviceId root = e.layout.slices[readers].front().device;
    e.where.set_total(
        read.base, {sum_at(e, read.base, partial, bytes, root, TaskKind::kTransfer, InPlace::kNo)});
  }
}

// ---- slices of the batch ----

Source merge(Emission& e, TensorId tensor, const decide::Slice& slice,
             std::span<const Piece> pieces) {
  const Bytes bytes = e.problem.graph->bytes(tensor, slice.size());
  PlanBuilder::Task task;
  task.kind = TaskKind::kMerge;
  task.op = e.problem.graph->tensor(tensor).producer;
  task.tensor = tensor;
  task.device = slice.device;
  task.begin = slice.begin;
  task.end = slice.end;
  task.duration = combine_duration(e.type_of(slice.device), 1, bytes, cluster::OpClass::kCopy);
  const TaskId id = e.builder.add_task(task);
  e.builder.hold(id, {e.builder.plan().compute_stream(slice.device), task.duration});
  e.builder.carry(id, {tensor});
  std::int64_t at = slice.begin;  // pieces may overlap: of each, what is new
  for (const Piece& piece : pieces) {
    e.builder.depend(piece.source.task, id);
    e.builder.read(id, piece.source.buffer);
    const std::int64_t end = std::min(piece.end, slice.end);
    e.builder.contribute(id, {slice.device, piece.source.buffer, Encoding::kDense, at, end});
    at = end;
  }
  return {id, e.builder.allocate(id, slice.device, bytes, tensor)};
}

// What the device has of the value: what its instances made, and what was brought there.
std::vector<Piece> held_pieces(const Emission& e, const graph::Read& read, DeviceId device) {
  const decide::LayoutId from = e.layout.of_op[read.producer];
  const InstancesByDevice& here = e.where.instances_by_device();
  const Made made = e.where.made(read.base, read.producer);
  std::vector<Piece> held;
  for (std::uint32_t i = here.first(from, device); i != kNone; i = here.next(from, i)) {
    const decide::Slice& local = e.layout.slices[from][i];
    held.push_back({local.begin, local.end, made.of(i)});
  }
  for (const Piece* piece = e.where.latest_piece(read.tensor, device); piece;
       piece = e.where.earlier(*piece)) {
    held.push_back(*piece);
  }
  return held;
}

// A cover of the slice by what the device holds and, where it holds nothing, by new transfers
// (decision 2). Greedy: of the pieces that hold the next sample, the one that reaches farthest.
std::vector<Piece> cover(Emission& e, const graph::Read& read, const decide::Slice& slice) {
  const auto& produced = e.layout.slices[e.layout.of_op[read.producer]];
  const std::vector<Piece> held = held_pieces(e, read, slice.device);
  std::vector<Piece> pieces;
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
    const auto producer =
        std::find_if(produced.begin(), produced.end(),
                     [&](const decide::Slice& s) { return s.begin <= at && at < s.end; });
    ENSURE(producer != produced.end());
    const auto instance = static_cast<std::size_t>(producer - produced.begin());
    const std::int64_t end = std::min(producer->end, next_held);
    const Bytes bytes = e.problem.graph->bytes(read.tensor, end - at);
    const Source source = transfer(e,
                                   {.op = read.producer,
                                    .tensor = read.tensor,
                                    .source = producer->device,
                                    .destination = slice.device,
                                    .begin = at,
                                    .end = end,
                                    .bytes = bytes,
                                    .bytes_at_destination = bytes},
                                   e.where.made(read.base, read.producer).of(instance));
    e.where.add_piece(read.tensor, slice.device, at, end, source);
    pieces.push_back({at, end, source});
    at = end;
  }
  return pieces;
}

Source fetch_slice(Emission& e, const graph::Read& read, const decide::Slice& slice) {
  const auto covers = [&](const auto& has) {
    return has.begin <= slice.begin && slice.end <= has.end;
  };
  const decide::LayoutId from = e.layout.of_op[read.producer];
  const InstancesByDevice& here = e.where.instances_by_device();
  for (std::uint32_t i = here.first(from, slice.device); i != kNone; i = here.next(from, i)) {
    if (covers(e.layout.slices[from][i])) return e.where.made(read.base, read.producer).of(i);
  }
  for (const Piece* piece = e.where.latest_piece(read.tensor, slice.device); piece;
       piece = e.where.earlier(*piece)) {
    if (covers(*piece)) return piece->source;
  }
  const std::vector<Piece> pieces = cover(e, read, slice);
  if (pieces.size() == 1) return pieces.front().source;
  const Source merged = merge(e, read.tensor, slice, pieces);
  e.where.add_piece(read.tensor, slice.device, slice.begin, slice.end, merged);
  return merged;
}

}  // namespace

void fetch(Emission& e, const Reader& reader, const graph::Read& read,
           std::vector<Source>& sources) {
  const graph::ModelGraph& graph = *e.problem.graph;
  const decide::Slice& slice = e.layout.slices[reader.layout][reader.instance];
  if (read.use == OperandUse::kOnce && reader.instance != 0) return;
  if (!read.producer.valid()) {
    return fetch_external(e, reader, read, slice.device, sources);
  }
  // Whoever wants a tensor without elements makes one.
  if (graph.elements(read.tensor, e.problem.batch) == 0) return;
  const decide::LayoutId made = e.layout.of_op[read.producer];
  switch (read.rule.kind) {
    case SplitKind::kLocal:
      ENSURE(reader.layout == made);
      sources.push_back(e.where.made(read.base, read.producer).of(reader.instance));
      return;
    case SplitKind::kSum:
    case SplitKind::kMean:
      // The sums that run where a parameter is updated read totals, in all instances.
      if (read.use == OperandUse::kPartial && !e.layout.sums_at_its_update(reader.op)) {
        if (reader.layout == made) {
          sources.push_back(e.where.made(read.base, read.producer).of(reader.instance));
          return;
        }
        // Partial sums over other slices: their total is an addend of the first instance.
        if (reader.instance != 0) return;
      }
      add_up(e, read, reader.layout);
      break;
    case SplitKind::kConcat:
    case SplitKind::kWhole:
      if (holds_samples(e, read)) {
        if (e.symmetry && reader.layout != made) {  // whatever is near: others may lack it
          e.moves = true;
          return;
        }
        sources.push_back(fetch_slice(e, read, slice));
        return;
      }
      break;
    case SplitKind::kSame:
      break;
  }
  if (const auto* total = e.where.total(read.base)) {
    sources.push_back(fetch_same(e, read.tensor, reader.op, *total, slice.device));
    return;
  }
  // What only one parameter's update makes has no layout of its own, and comes later.
  VALIDATE(made.valid(),
           "{}: op '{}' reads '{}', which is part of the update of one parameter; expected that "
           "only that update reads it",
           graph.name(), graph.op(reader.op).name, graph.tensor(read.tensor).name);
  const std::uint32_t here = e.where.instances_by_device().first(made, slice.device);
  if (here != kNone) {
    sources.push_back(e.where.made(read.base, read.producer).of(here));
  } else {
    sources.push_back(fetch_same(e, read.tensor, reader.op,
                                 e.where.instances(read.base, read.producer), slice.device));
  }
}

void keep_external(Emission& e, TensorId tensor, decide::LayoutId layout, DeviceId device) {
  const std::int64_t samples = e.where.instances_by_device().samples(layout, device);
  e.where.keep(tensor, device,
               bytes_on(e, tensor, device, e.problem.graph->bytes(tensor, samples)));
}

}  // namespace heterog::compiler
