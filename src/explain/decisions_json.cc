// Adds up operators by the decision of their unit.
#include "explain/decisions_json.h"

#include <algorithm>
#include <vector>

#include "decide/micro_batches.h"
#include "explain/decision_text.h"

namespace heterog::explain {

namespace {

// One decision, and what it holds for.
struct Decided {
  const decide::UnitDecision* decision = nullptr;
  std::int64_t operators = 0;
  double seconds = 0;  // of the operators, at the mean over the devices
  Bytes parameters = 0;
};

Decided& entry_of(std::vector<Decided>& list, const decide::UnitDecision& decision) {
  const auto known = std::find_if(list.begin(), list.end(),
                                  [&](const Decided& one) { return *one.decision == decision; });
  if (known != list.end()) return *known;
  return list.emplace_back(Decided{.decision = &decision});
}

// Of the parameters that the op gives their next values.
Bytes updated_bytes(const graph::ModelGraph& graph, OpId op) {
  Bytes bytes = 0;
  for (TensorId output : graph.outputs(op)) {
    if (!output.valid()) continue;
    const TensorId replaced = graph.tensor(output).replaces;
    if (replaced.valid() && graph.tensor(replaced).role == graph::TensorRole::kParameter) {
      bytes += graph.bytes(replaced, 1);
    }
  }
  return bytes;
}

}  // namespace

OrderedJson decisions_json(const cost::Problem& problem, const decide::Strategy& strategy) {
  const graph::ModelGraph& graph = *problem.graph;
  std::vector<Decided> list;
  double total = 0;
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    Decided& decided = entry_of(list, decision_of(problem, strategy, op));
    ++decided.operators;
    decided.seconds += problem.costs.mean_seconds(op);
    decided.parameters += updated_bytes(graph, op);
    total += problem.costs.mean_seconds(op);
  }
  std::ranges::stable_sort(list, std::ranges::greater(), &Decided::operators);
  OrderedJson json = OrderedJson::array();
  for (const Decided& decided : list) {
    const auto instances = decide::slices_of(strategy, *decided.decision, problem.batch);
    const auto slices = decide::merge_by_device(instances);
    OrderedJson item = {{"text", decision_text(problem, strategy, *decided.decision)},
                        {"devices", OrderedJson::array()},
                        {"sync", nullptr},
                        {"instances", instances.size()},
                        {"recompute", decided.decision->recompute},
                        {"operators", decided.operators},
                        {"time_share", total > 0 ? decided.seconds / total : 0},
                        {"parameter_bytes", decided.parameters}};
    for (const decide::Slice& slice : slices) {
      item["devices"].push_back(
          {{"name", problem.cluster->device(slice.device).name}, {"samples", slice.size()}});
    }
    if (slices.size() > 1) item["sync"] = decide::sync_method_name(decided.decision->sync);
    json.push_back(std::move(item));
  }
  return json;
}

}  // namespace heterog::explain
