// Finds the parameters that become ready together, and emits a task for each such set.
#include "compiler/emit/updates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/emit/ops.h"
#include "graph/folded.h"

namespace heterog::compiler {
namespace {

using graph::Read;
using graph::UpdateChain;

// Chains that one task runs, in their order.
using Together = std::vector<const UpdateChain*>;

// The collective that brings a gradient to all devices of the update; invalid: it lies there
// already. Nothing: it has to be fetched.
std::optional<TaskId> ready_after(const Emission& e, const UpdateChain& chain) {
  const auto& devices = e.layout.slices[e.layout.home(chain.parameter).update];
  TaskId last;
  for (const Read& read : chain.reads) {
    // A number of the step (a rate, a factor of clipping) is there or comes soon.
    if (!read.producer.valid() || e.problem.graph->shape(read.base).empty()) continue;
    const auto* total = e.where.total(read.base);
    if (!total) {  // where the op that makes it runs
      const decide::LayoutId made = e.layout.of_op[read.producer];
      if (made != e.layout.home(chain.parameter).update) return std::nullopt;
      continue;
    }
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (!find_location(*total, devices[i].device, i)) return std::nullopt;
    }
    const TaskId task = total->front().source.task;
    if (is_collective(e.builder.plan().kind[task])) {
      if (!last.valid() || last < task) last = task;
    } else if (devices.size() > 1) {
      return std::nullopt;  // rows that were gathered and added up, each gradient for itself
    }
  }
  return last;
}

std::vector<Together> find_sets(const Emission& e) {
  std::vector<Together> sets;
  // By form, layout, collective and whether it goes by rows: the set that is open, and what it
  // holds.
  std::map<std::tuple<std::uint32_t, decide::LayoutId, TaskId, bool>, std::pair<std::size_t, Bytes>>
      open;
  for (const UpdateChain& chain : e.problem.folded->chains) {
    if (e.layout.home_of[chain.parameter] == decide::Layout::kNoHome) continue;
    const decide::ParameterHome& home = e.layout.home(chain.parameter);
    // Whoever waits for a new value from a server waits for this one alone.
    const bool pulled = (home.server.valid() && home.replicas.size() > 1) || home.partitioned();
    const auto ready = chain.shares_calls() && !pulled ? ready_after(e, chain) : std::nullopt;
    if (!ready) {
      sets.push_back({&chain});
      continue;
    }
    const Bytes bytes = e.problem.graph->bytes(chain.parameter, 1);
    const auto [at, is_new] = open.try_emplace({chain.form, home.update, *ready, home.sharded()},
                                               std::pair(sets.size(), Bytes{0}));
    auto& [set, held] = at->second;
    if (!is_new && !ready->valid() && held + bytes > kTogetherBytes) {
      set = sets.size();
      held = 0;
    }
    if (set == sets.size()) sets.emplace_back();
    sets[set].push_back(&chain);
    held += bytes;
  }
  return sets;
}

// The part of a parameter's update that falls to a device.
double share_of(const Emission& e, const UpdateChain& chain, DeviceId device) {
  const decide::ParameterHome& home = e.layout.home(chain.parameter);
  if (!home.by_rows()) return 1;
  const auto replica = std::ranges::lower_bound(home.replicas, device) - home.replicas.begin();
  return static_cast<double>(home.rows_of(static_cast<std::size_t>(replica))) /
         static_cast<double>(home.row_count());
}

// One launch for all of an operator that takes lists, one run of what is the same for all; of other
// ops one run each.
Nanoseconds duration(const Emission& e, const Together& set, DeviceId device) {
  const cost::Problem& problem = e.problem;
  const DeviceTypeId type = e.type_id(device);
  const Nanoseconds launch = to_nanoseconds(problem.cluster->type(type).launch_seconds);
  Nanoseconds total = 0;
  for (std::size_t i = 0; i < set.front()->ops.size(); ++i) {
    Nanoseconds apart = 0, work = 0;
    for (const UpdateChain* chain : set) {
      const double share = share_of(e, *chain, device);
      Nanoseconds one = problem.costs.duration(chain->ops[i], type, problem.batch);
      if (share < 1 && one > launch) {
        one = launch + std::llround(static_cast<double>(one - launch) * share);
      }
      apart += one;
      work += std::max<Nanoseconds>(one - launch, 0);
    }
    switch (set.front()->calls[i]) {
      case graph::SharedCall::kApart:
        total += apart;
        break;
      case graph::SharedCall::kLists:
        total += std::min(apart, launch + work);
        break;
      case graph::SharedCall::kOnce:
        total += problem.costs.duration(set.front()->ops[i], type, problem.batch);
        break;
    }
  }
  return total;
}

// What the chains read from outside of themselves, each once.
std::vector<Read> reads_of(const Together& set) {
  std::vector<Read> reads;
  std::map<std::pair<TensorId, graph::OperandUse>, bool> known;
  for (const UpdateChain* chain : set) {
    for (const Read& read : chain->reads) {
      if (known.try_emplace({read.tensor, read.use}, true).second) reads.push_back(read);
    }
  }
  return reads;
}

// Gradients of a bucket lie in one buffer.
void drop_repeated(std::vector<Source>& sources) {
  const auto place = [](const Source& s) { return std::pair(s.task, s.buffer); };
  std::ranges::sort(sources, {}, place);
  const auto repeated = std::ranges::unique(sources, {}, place);
  sources.erase(repeated.begin(), repeated.end());
}

void emit_update(Emission& e, const Together& set) {
  const graph::ModelGraph& graph = *e.problem.graph;
  const decide::LayoutId layout = e.layout.home(set.front()->parameter).update;
  const OpId updater = decide::update_op(e.problem, *set.front());
  const auto& slices = e.layout.slices[layout];
  const std::vector<Read> together = set.size() > 1 ? reads_of(set) : std::vector<Read>();
  const std::vector<Read>& reads = set.size() > 1 ? together : set.front()->reads;
  fetch_all(e, updater, layout, reads);
  for (std::size_t i = 0; i < slices.size(); ++i) drop_repeated(e.sources[i]);
  PlanBuilder::Task task;
  task.kind = TaskKind::kUpdate;
  task.op = updater;
  task.tensor = set.front()->parameter;
  task.end = e.problem.batch;
  std::vector<std::pair<TensorId, Bytes>> replaced;
  std::vector<TensorId> own;  // sorted
  for (const UpdateChain* chain : set) {
    for (OpId op : chain->ops) {
      for (TensorId out : graph.outputs(op)) {
        if (!out.valid() || !graph.tensor(out).replaces.valid()) continue;
        replaced.emplace_back(graph.tensor(out).replaces, graph.bytes(out, e.problem.batch));
        own.push_back(replaced.back().first);
      }
    }
  }
  std::ranges::sort(own);
  // What the chains replace themselves need not wait for them.
  std::vector<TensorId> noted;
  for (const Read& read : reads) {
    if (!read.producer.valid() && !std::ranges::binary_search(own, read.base)) {
      noted.push_back(read.base);
    }
  }
  const bool by_rows = e.layout.home(set.front()->parameter).by_rows();
  if (e.layout.home(set.front()->parameter).sharded()) {
    std::vector<TensorId>& parameters = e.sharded_sets.emplace_back();
    for (const UpdateChain* chain : set) parameters.push_back(chain->parameter);
  }
  DeviceTypeId last_type;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const DeviceId device = slices[i].device;
    const DeviceTypeId type = e.type_id(device);
    if (type != last_type || by_rows) {
      task.duration = duration(e, set, device);
      task.workspace = 0;
      for (const UpdateChain* chain : set) {
        task.workspace +=
            std::llround(static_cast<double>(chain->temporary_bytes) * share_of(e, *chain, device));
      }
    }
    last_type = type;
    task.device = device;
    const TaskId id = e.builder.add_task(task);
    for (const UpdateChain* chain : set) {
      if (i == 0) e.where.ran(decide::update_op(e.problem, *chain), id);
      e.builder.update(id, chain->parameter);
    }
    e.builder.hold(id, {e.builder.plan().compute_stream(device), task.duration});
    read_all(e, id, i);
    for (TensorId tensor : noted) e.where.note_reader(tensor, device, id);
    for (const auto& [tensor, bytes] : replaced) {
      replace(e, tensor, device, bytes_on(e, tensor, device, bytes), id);
    }
  }
}

}  // namespace

void update_parameters(Emission& e) {
  for (const Together& set : find_sets(e)) emit_update(e, set);
}

}  // namespace heterog::compiler
