// Emits pushes, sums, all-reduces and pulls.
#include "compiler/gradients.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "compiler/rows.h"

namespace heterog::compiler {
namespace {

using graph::OperandUse;
using graph::Phase;
using graph::SplitKind;

struct Gradient {
  TensorId tensor;     // holds the memory
  TensorId parameter;  // whose update reads it
  OpId producer;
};

// Partial sums that update ops of one parameter read, in order of production: the order in which
// they become ready.
std::vector<Gradient> partial_gradients(const cost::Problem& problem, const Layout& layout) {
  std::vector<Gradient> gradients;
  const auto add = [&](TensorId parameter, std::span<const graph::Read> reads) {
    if (!parameter.valid() || layout.home_of[parameter] == Layout::kNoHome) return;
    for (const graph::Read& read : reads) {
      if (!read.producer.valid() || problem.graph->op(read.producer).phase == Phase::kUpdate)
        continue;
      if (read.rule.kind != SplitKind::kSum && read.rule.kind != SplitKind::kMean) continue;
      gradients.push_back({read.base, parameter, read.producer});
    }
  };
  for (const graph::UpdateChain& chain : problem.folded->chains) add(chain.parameter, chain.reads);
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase != Phase::kUpdate) continue;
    add(problem.folded->home[op], problem.folded->reads[op]);
  }
  std::sort(gradients.begin(), gradients.end(), [](const Gradient& a, const Gradient& b) {
    return std::tuple(a.producer, a.tensor, a.parameter) <
           std::tuple(b.producer, b.tensor, b.parameter);
  });
  gradients.erase(
      std::unique(gradients.begin(), gradients.end(),
                  [](const Gradient& a, const Gradient& b) { return a.tensor == b.tensor; }),
      gradients.end());
  return gradients;
}

// Only update ops (through aliases) read it, so it may be overwritten by its aggregate.
Movement::InPlace in_place(const cost::Problem& problem, TensorId tensor) {
  for (OpId op : problem.graph->consumers(tensor)) {
    const graph::Op& info = problem.graph->op(op);
    if (info.phase != Phase::kUpdate && !info.alias) return Movement::InPlace::kNo;
  }
  return Movement::InPlace::kYes;
}

// Gradients of one device set that become ready one after another.
struct Bucket {
  std::vector<Gradient> gradients;
  Bytes bytes = 0;
};

void all_reduce_bucket(const cost::Problem& problem, const Bucket& bucket, PlanBuilder& builder,
                       Movement& movement) {
  const Gradient& first = bucket.gradients.front();
  if (bucket.gradients.size() == 1) {
    movement.set_reduced(
        first.tensor,
        movement.all_reduce(first.tensor, movement.instances(first.tensor, first.producer),
                            bucket.bytes, in_place(problem, first.tensor)));
    return;
  }
  // The gradients are copied into one buffer a device, reduced, and read from there.
  auto fused = movement.all_reduce(first.tensor, movement.instances(first.tensor, first.producer),
                                   bucket.bytes, Movement::InPlace::kNo);
  for (const Gradient& gradient : bucket.gradients) {
    if (gradient.tensor != first.tensor) {
      movement.carry_too(fused.front().source.task, gradient.tensor);
      for (const auto& partial : movement.instances(gradient.tensor, gradient.producer)) {
        builder.depend(partial.source.task, fused.front().source.task);
        builder.read(fused.front().source.task, partial.source.buffer);
      }
    }
    movement.set_reduced(gradient.tensor, fused);
  }
}

// An embedding's gradient as rows, where that moves fewer bytes; else nothing is emitted.
bool aggregate_rows(const cost::Problem& problem, const Layout& layout, const Gradient& gradient,
                    std::span<const Movement::Location> partial, Movement& movement) {
  const Bytes whole = problem.graph->bytes(gradient.tensor, problem.batch);
  const auto shorter = [](const SparseRows& a, const SparseRows& b) { return a.bytes < b.bytes; };
  std::vector<SparseRows> rows;
  for (const Slice& slice : layout.op_slices(gradient.producer)) {
    const auto of_slice = sparse_rows(problem, gradient.tensor, slice.size());
    if (!of_slice) return false;
    rows.push_back(*of_slice);
  }
  const SparseRows longest = *std::max_element(rows.begin(), rows.end(), shorter);
  const Movement::InPlace where = in_place(problem, gradient.tensor);
  const DeviceId server = layout.home(gradient.parameter).server;
  if (!server.valid()) {
    // A ring moves 2(n−1)/n of the whole over each link, an all-gather (n−1)/n of n times the rows.
    if (static_cast<Bytes>(rows.size()) * longest.bytes >= 2 * whole) return false;
    movement.set_reduced(gradient.tensor,
                         movement.gather_rows(gradient.tensor, partial, longest, where));
    return true;
  }
  const bool serves_itself = std::any_of(partial.begin(), partial.end(),
                                         [&](const auto& own) { return own.device == server; });
  const bool pays = std::any_of(rows.begin(), rows.end(),
                                [&](const SparseRows& one) { return one.bytes < whole; });
  if (!serves_itself || !pays) return false;
  movement.set_reduced(gradient.tensor,
                       {movement.sum_rows_at(gradient.tensor, partial, rows, server, where)});
  return true;
}

}  // namespace

void aggregate_gradients(const cost::Problem& problem, const Layout& layout, Bytes bucket_bytes,
                         PlanBuilder& builder, Movement& movement, SectionRunner& sections) {
  std::map<LayoutId, Bucket> open;  // by the slices that make the gradients
  const auto close = [&](Bucket& bucket) {
    if (!bucket.gradients.empty()) all_reduce_bucket(problem, bucket, builder, movement);
    bucket = {};
  };
  const auto aggregate = [&](const Gradient& gradient) {
    const ParameterHome& home = layout.home(gradient.parameter);
    const auto partial = movement.instances(gradient.tensor, gradient.producer);
    const Bytes bytes = problem.graph->bytes(gradient.tensor, problem.batch);
    if (partial.size() == 1) {
      movement.set_reduced(gradient.tensor, partial);  // fetched by whoever updates
    } else if (aggregate_rows(problem, layout, gradient, partial, movement)) {
      return;
    } else if (home.server.valid()) {
      movement.set_reduced(gradient.tensor,
                           {movement.sum_at(gradient.tensor, partial, bytes, home.server,
                                            TaskKind::kPush, in_place(problem, gradient.tensor))});
    } else {
      Bucket& bucket = open[layout.of_op[gradient.producer]];
      if (bucket.bytes + bytes > bucket_bytes) close(bucket);
      bucket.gradients.push_back(gradient);
      bucket.bytes += bytes;
      if (bucket.bytes >= bucket_bytes) close(bucket);
    }
  };
  // With buckets, who travels with whom depends on all others.
  const SectionKind kind = bucket_bytes == 0 ? SectionKind::kGradient : SectionKind::kOther;
  for (const Gradient& gradient : partial_gradients(problem, layout)) {
    sections.run(kind, gradient.tensor.value(), [&] { aggregate(gradient); });
  }
  sections.run(SectionKind::kOther, 0, [&] {
    for (auto& [layout_id, bucket] : open) close(bucket);
  });
}

namespace {

void pull(const cost::Problem& problem, const ParameterHome& home, TensorId parameter,
          Movement& movement) {
  const Bytes bytes = problem.graph->bytes(parameter, 1);
  for (DeviceId replica : home.replicas) {
    if (replica == home.server) continue;
    const Source pulled =
        movement.transfer({TaskKind::kPull, problem.folded->updater[parameter], parameter,
                           home.server, replica, 0, problem.batch, bytes, 0},
                          {movement.updater_task(parameter), BufferId()});
    movement.wait_for_readers(parameter, replica, pulled.task);
  }
}

}  // namespace

void pull_parameters(const cost::Problem& problem, const Layout& layout, Movement& movement,
                     SectionRunner& sections) {
  for (TensorId parameter : problem.graph->parameters()) {
    if (layout.home_of[parameter] == Layout::kNoHome) continue;
    if (!problem.folded->updater[parameter].valid()) continue;
    const ParameterHome& home = layout.home(parameter);
    if (!home.server.valid()) continue;
    sections.run(SectionKind::kPull, parameter.value(),
                 [&] { pull(problem, home, parameter, movement); });
  }
}

void average_buffers(const cost::Problem& problem, const Layout& layout, PlanBuilder& builder,
                     Movement& movement) {
  std::map<LayoutId, Bucket> by_layout;
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase == Phase::kUpdate) continue;
    if (layout.op_slices(op).size() == 1) continue;
    for (TensorId out : problem.graph->outputs(op)) {
      if (!out.valid() || !problem.graph->tensor(out).replaces.valid()) continue;
      const SplitKind kind = problem.splits->rules[out].kind;
      if (kind != SplitKind::kMean && kind != SplitKind::kSum) continue;
      Bucket& bucket = by_layout[layout.of_op[op]];
      bucket.gradients.push_back({out, TensorId(), op});
      bucket.bytes += problem.graph->bytes(out, problem.batch);
    }
  }
  for (const auto& [layout_id, bucket] : by_layout) {
    all_reduce_bucket(problem, bucket, builder, movement);
  }
}

void pull_buffers(const cost::Problem& problem, Movement& movement) {
  const graph::ModelGraph& graph = *problem.graph;
  for (TensorId next : problem.folded->read_elsewhere) {
    const TensorId old = graph.tensor(next).replaces;
    const auto made = movement.replaced(next);
    if (made.empty()) continue;
    const Bytes bytes = graph.bytes(old, 1);
    for (DeviceId device : movement.keepers(old)) {
      const bool makes = std::any_of(made.begin(), made.end(),
                                     [&](const auto& place) { return place.device == device; });
      if (makes) continue;
      const Movement::Location& from = made.front();
      const Source pulled = movement.transfer({TaskKind::kPull, graph.tensor(next).producer, old,
                                               from.device, device, 0, problem.batch, bytes, 0},
                                              {from.source.task, BufferId()});
      movement.wait_for_readers(old, device, pulled.task);
    }
  }
}

}  // namespace heterog::compiler
