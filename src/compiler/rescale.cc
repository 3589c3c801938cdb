// Moves the boundaries of slices, then counts anew what follows from them.
#include "compiler/rescale.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "compiler/check/verify_plan.h"
#include "graph/lookups.h"
#include "graph/same_step.h"

namespace heterog::compiler {
namespace {

// ---- where boundaries go ----

// A slice, by the places of its ends in the list of boundaries.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend auto operator<=>(const Span&, const Span&) = default;
};

struct Boundaries {
  std::vector<std::int64_t> old;  // ascending, from 0 to the plan's batch
  std::vector<Span> slices;       // each once

  std::size_t place(std::int64_t boundary) const {
    const auto at = std::lower_bound(old.begin(), old.end(), boundary);
    ENSURE(at != old.end() && *at == boundary);
    return static_cast<std::size_t>(at - old.begin());
  }
};

Boundaries boundaries_of(const Plan& plan) {
  Boundaries found;
  found.old = {0, plan.batch};
  for (TaskId task : plan.task_ids()) {
    found.old.push_back(plan.begin[task]);
    found.old.push_back(plan.end[task]);
  }
  std::sort(found.old.begin(), found.old.end());
  found.old.erase(std::unique(found.old.begin(), found.old.end()), found.old.end());
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != TaskKind::kCompute || plan.begin[task] == plan.end[task]) continue;
    found.slices.push_back({found.place(plan.begin[task]), found.place(plan.end[task])});
  }
  std::sort(found.slices.begin(), found.slices.end());
  found.slices.erase(std::unique(found.slices.begin(), found.slices.end()), found.slices.end());
  return found;
}

// The least places at or behind `wanted` (ascending, the first 0) that leave each of `slices` a
// sample.
std::vector<std::int64_t> pushed_apart(std::vector<std::int64_t> wanted,
                                       const std::vector<Span>& slices) {
  std::vector<std::vector<std::size_t>> begins(wanted.size());  // of slices, by their ends
  for (const Span& slice : slices) begins[slice.end].push_back(slice.begin);
  for (std::size_t i = 1; i < wanted.size(); ++i) {
    wanted[i] = std::max(wanted[i], wanted[i - 1]);
    for (std::size_t begin : begins[i]) wanted[i] = std::max(wanted[i], wanted[begin] + 1);
  }
  return wanted;
}

// The same from the end, which stays: at or before `wanted`. The first is below 0 where there are
// too few samples.
std::vector<std::int64_t> pushed_back(std::vector<std::int64_t> wanted,
                                      const std::vector<Span>& slices) {
  std::vector<std::vector<std::size_t>> ends(wanted.size());  // of slices, by their beginnings
  for (const Span& slice : slices) ends[slice.begin].push_back(slice.end);
  for (std::size_t i = wanted.size() - 1; i-- > 0;) {
    wanted[i] = std::min(wanted[i], wanted[i + 1]);
    for (std::size_t end : ends[i]) wanted[i] = std::min(wanted[i], wanted[end] - 1);
  }
  return wanted;
}

// New boundaries, parallel to the old ones: in proportion, and from there as little as leaves every
// slice a sample, or at least those that begin with the first.
std::vector<std::int64_t> new_boundaries(const Boundaries& from, std::int64_t batch) {
  const double scale = static_cast<double>(batch) / static_cast<double>(from.old.back());
  std::vector<std::int64_t> wanted;
  for (std::int64_t old : from.old) {
    wanted.push_back(std::llround(static_cast<double>(old) * scale));
  }
  std::vector<Span> slices = from.slices;
  while (true) {
    std::vector<std::int64_t> made = pushed_apart(wanted, slices);
    made.back() = batch;
    made = pushed_back(std::move(made), slices);
    if (made.front() == 0) return made;
    std::erase_if(slices, [](const Span& slice) { return slice.begin > 0; });
  }
}

// ---- what follows ----

class Rescaler {
 public:
  Rescaler(const cost::Problem& other, const Plan& plan)
      : problem_(other),
        graph_(*other.graph),
        old_(plan),
        plan_(plan),
        boundaries_(boundaries_of(plan)),
        places_(new_boundaries(boundaries_, other.batch)),
        maker_(plan.buffers.size()) {
    for (TaskId task : plan.task_ids()) {
      for (BufferId buffer : plan.allocates[task]) maker_[buffer] = task;
      if (plan.kind[task] == TaskKind::kCompute) {
        instances_[{plan.op[task], plan.device[task]}].push_back(task);
      }
    }
  }

  // Each task after those that made what it reads.
  Plan run() && {
    plan_.batch = problem_.batch;
    for (TaskId task : plan_.task_ids()) {
      plan_.begin[task] = moved(plan_.begin[task]);
      plan_.end[task] = moved(plan_.end[task]);
      if (plan_.payload[task].valid()) give(task);
      if (is_communication(plan_.kind[task])) plan_.moved_bytes[task] = bytes_moved(task);
      for (BufferId buffer : plan_.allocates[task]) size(buffer, task);
    }
    check_empty_slices();
#ifdef HETEROG_CHECKS
    verify_plan(plan_, EmptySlices::kAllowed);
#endif
    return std::move(plan_);
  }

 private:
  std::int64_t moved(std::int64_t old) const { return places_[boundaries_.place(old)]; }
  std::int64_t samples(TaskId task) const { return plan_.end[task] - plan_.begin[task]; }

  // On an empty slice, an op that makes anything of samples is not run.
  bool is_left_out(TaskId task) const {
    if (plan_.kind[task] != TaskKind::kCompute || samples(task) > 0) return false;
    return std::ranges::any_of(graph_.outputs(plan_.op[task]),
                               [&](TensorId out) { return out.valid() && !is_same(out); });
  }
  bool is_same(TensorId tensor) const {
    return problem_.splits->rules[tensor].kind == graph::SplitKind::kSame;
  }

  // What it makes beside that, the same on all slices, is not there then: nobody may want it.
  void check_empty_slices() const {
    IdVector<BufferId, std::uint8_t> missing(plan_.buffers.size(), 0);
    for (TaskId task : plan_.task_ids()) {
      const bool left_out = is_left_out(task);
      for (BufferId buffer : plan_.reads[task]) {
        VALIDATE(left_out || !missing[buffer],
                 "batch {}: op '{}' would have an empty slice, on which '{}', the same on all "
                 "slices, is not made; expected {} samples or more under this plan",
                 problem_.batch, graph_.op(plan_.op[maker_[buffer]]).name,
                 graph_.tensor(plan_.buffers[buffer].tensor).name, least_full_batch(old_));
      }
      if (!left_out) continue;
      for (BufferId buffer : plan_.allocates[task]) {
        missing[buffer] = is_same(plan_.buffers[buffer].tensor) ? 1 : 0;
      }
    }
  }

  void give(TaskId task) {
    const TaskKind kind = plan_.kind[task];
    const bool of_samples = is_transfer(kind) || is_sum(kind) || kind == TaskKind::kMerge ||
                            kind == TaskKind::kAllReduce;
    for (Contribution& one : plan_.contributions.mutable_row(plan_.payload[task])) {
      if (one.encoding == Encoding::kRows) {
        one.end = rows(task, one);
      } else if (one.encoding == Encoding::kPart) {
        ENSURE(graph_.shape(plan_.tensor[task])[0].constant());
        if (kind == TaskKind::kAllGather) expect_same_rows(task);
      } else if (of_samples) {
        one.begin = moved(one.begin);
        one.end = moved(one.end);
      } else {
        ENSURE(graph_.shape(plan_.tensor[task])[0].constant());  // rows of what has no samples
      }
      // 1: of the whole batch, or multiplied already.
      if (one.weight != 1) one.weight = share(task, one);
    }
  }

  // A frozen buffer may be a table that a model makes of the length of its inputs.
  void expect_same_rows(TaskId task) const {
    for (const Carried& one : plan_.carried_by(task)) {
      const auto rows = plan_.rows_of(one.tensor);
      const std::int64_t now = graph_.shape(one.tensor)[0].c;
      VALIDATE(rows.empty() || rows.back().end == now,
               "{}: '{}' lies in rows, {} in the plan and {} on inputs of these sizes; expected as "
               "many, or a plan that keeps it whole",
               graph_.name(), graph_.tensor(one.tensor).name, rows.empty() ? 0 : rows.back().end,
               now);
    }
  }

  // Of the batch that what is given was made from.
  double share(TaskId task, const Contribution& given) const {
    const TaskId made = given.buffer.valid() ? maker_[given.buffer] : instances(task, given)[0];
    ENSURE(old_.kind[made] == TaskKind::kCompute);
    const auto of = [](const Plan& plan, TaskId one) {
      return static_cast<double>(plan.end[one] - plan.begin[one]) / static_cast<double>(plan.batch);
    };
    ENSURE(of(old_, made) == given.weight);
    return of(plan_, made);
  }

  const std::vector<TaskId>& instances(TaskId task, const Contribution& given) const {
    return instances_.at({plan_.op[task], given.device});
  }

  graph::Lookups lookups(TaskId task, const Contribution& given) const {
    graph::Lookups all;
    for (TaskId instance : instances(task, given)) {
      const auto found = graph::lookups(graph_, plan_.tensor[task], samples(instance));
      ENSURE(found);
      all.rows += found->rows;
      all.index_bytes += found->index_bytes;
      all.row_bytes += found->row_bytes;
    }
    return all;
  }

  // What a device sends; of a gather, what the one with most does.
  std::int64_t rows(TaskId task, const Contribution& one) const {
    if (is_sum(plan_.kind[task])) {  // as it came
      for (const Contribution& sent : plan_.contributions_to(maker_[one.buffer])) {
        if (sent.device == one.device) return sent.end;
      }
      ENSURE(false);
    }
    std::int64_t most = 0;
    for (const Contribution& other : plan_.contributions_to(task)) {
      most = std::max(most, lookups(task, other).rows);
    }
    return most;
  }

  Bytes bytes_moved(TaskId task) const {
    if (plan_.is_compressed(task)) return plan_.moved_bytes[task];  // gradients have no samples
    const auto given = plan_.contributions_to(task);
    if (given.front().encoding == Encoding::kRows) {
      Bytes most = 0;
      for (const Contribution& one : given) {
        const graph::Lookups found = lookups(task, one);
        most = std::max(most, found.index_bytes + found.row_bytes);
      }
      return static_cast<Bytes>(given.size()) * most;
    }
    if (given.front().encoding == Encoding::kPart) return plan_.moved_bytes[task];
    Bytes bytes = 0;
    for (const Carried& carried : plan_.carried_by(task)) {
      bytes += graph_.bytes(carried.tensor, samples(task));
    }
    return bytes;
  }

  void size(BufferId buffer, TaskId task) {
    const TaskKind kind = plan_.kind[task];
    Plan::Buffer& made = plan_.buffers[buffer];
    const bool is_part = has_payload(kind) && plan_.encoding_of(task) == Encoding::kPart;
    if (kind == TaskKind::kReduceScatter || is_part) return;  // rows of what has no samples
    if (plan_.is_compressed(task)) return;
    const bool as_moved = is_transfer(kind) || is_collective(kind);
    made.bytes = as_moved ? plan_.moved_bytes[task] : graph_.bytes(made.tensor, samples(task));
  }

  const cost::Problem& problem_;
  const graph::ModelGraph& graph_;
  const Plan& old_;
  Plan plan_;
  const Boundaries boundaries_;
  const std::vector<std::int64_t> places_;
  IdVector<BufferId, TaskId> maker_;
  std::map<std::pair<OpId, DeviceId>, std::vector<TaskId>> instances_;
};

}  // namespace

std::shared_ptr<const cost::Problem> at_batch(const cost::Problem& problem, std::int64_t batch) {
  VALIDATE(batch >= 1 && batch <= graph::kMaxSamples, "batch {}: expected 1 to {} samples", batch,
           graph::kMaxSamples);
  double bytes = 0;
  for (TensorId tensor : problem.graph->tensor_ids()) {
    bytes += static_cast<double>(problem.graph->bytes(tensor, batch));
  }
  const auto devices = static_cast<double>(problem.cluster->place_count());
  VALIDATE(bytes * devices < std::ldexp(1.0, 61),
           "batch {}: the tensors of {} take {:.3g} bytes, too much for {} devices", batch,
           problem.graph->name(), bytes, problem.cluster->device_count());
  auto other = std::make_shared<cost::Problem>(problem);
  other->batch = batch;
  return other;
}

std::shared_ptr<const cost::Problem> with_graph(const cost::Problem& problem,
                                                std::shared_ptr<const graph::ModelGraph> graph,
                                                const std::string& source) {
  const std::string difference = graph::difference_beside_sizes(*problem.graph, *graph);
  VALIDATE(difference.empty(),
           "{}: expected the step of {} on inputs of other sizes, with the same ops in the same "
           "order; the graphs differ: {}",
           source, problem.graph->name(), difference);
  auto splits = std::make_shared<const graph::SplitAnalysis>(graph::analyze_splits(*graph));
  for (OpId op : graph->op_ids()) {
    const auto cut_alike = [&](TensorId out) {
      if (!out.valid()) return true;
      const graph::SplitRule &a = problem.splits->rules[out], &b = splits->rules[out];
      return a.kind == b.kind && a.dim == b.dim;
    };
    VALIDATE(splits->sliceable[op] == problem.splits->sliceable[op] &&
                 std::ranges::equal(splits->uses[op], problem.splits->uses[op]) &&
                 std::ranges::all_of(graph->outputs(op), cut_alike),
             "{}: expected the step of {} on inputs of other sizes; op '{}' is cut into slices "
             "otherwise at these",
             source, problem.graph->name(), graph->op(op).name);
  }
  auto folded = std::make_shared<const graph::FoldedGraph>(graph::fold_aliases(*graph, *splits));
  ENSURE(folded->ops == problem.folded->ops);
  auto other = std::make_shared<cost::Problem>(problem);
  other->graph = std::move(graph);
  other->splits = std::move(splits);
  other->folded = std::move(folded);
  return other;
}

Plan rescaled(const cost::Problem& other, const Plan& plan) { return Rescaler(other, plan).run(); }

std::int64_t least_full_batch(const Plan& plan) {
  const Boundaries from = boundaries_of(plan);
  return pushed_apart(std::vector<std::int64_t>(from.old.size(), 0), from.slices).back();
}

}  // namespace heterog::compiler
