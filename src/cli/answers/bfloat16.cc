// Costs the graph anew with the devices' rates of float16, and simulates the same plan.
#include "cli/answers/bfloat16.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "cli/output.h"
#include "cli/planning.h"

namespace heterog::cli {
namespace {

// bfloat16 at the rates of float16.
class AsFloat16 final : public cost::CostModel {
 public:
  double seconds(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                 const cluster::DeviceType& type) const override {
    cluster::DeviceType other = type;
    other.bf16_flops_per_second.reset();
    return cost::CalibratedModel().seconds(graph, op, samples, other);
  }
  Bytes workspace_bytes(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                        const cluster::DeviceType& type) const override {
    return cost::CalibratedModel().workspace_bytes(graph, op, samples, type);
  }
};

bool multiplies_in_bfloat16(const graph::ModelGraph& graph) {
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).alias) continue;
    const cost::OpWork work = cost::op_work(graph, op, 1);
    if (work.flop > 0 && work.dtype == graph::DType::kBFloat16) return true;
  }
  return false;
}

}  // namespace

std::optional<EmulatedBfloat16> emulated_bfloat16(const cost::Problem& problem,
                                                  const decide::Strategy& strategy,
                                                  const compiler::CompileOptions& options) {
  EmulatedBfloat16 found;
  std::set<DeviceTypeId> seen;
  for (const decide::UnitDecision& unit : strategy.units) {
    for (const decide::Replica& replica : unit.replicas) {
      const DeviceTypeId id = problem.cluster->device(replica.device).type;
      const cluster::DeviceType& type = problem.cluster->type(id);
      if (!type.bf16_flops_per_second || !seen.insert(id).second) continue;
      if (found.types.empty()) {
        found.flops_per_second = *type.bf16_flops_per_second;
        found.float16_flops_per_second = type.half_flops_per_second;
      }
      found.types.push_back(type.name);
    }
  }
  if (found.types.empty() || !multiplies_in_bfloat16(*problem.graph)) return std::nullopt;
  cost::Problem faster = problem;
  faster.costs = cost::analyze(*problem.graph, *problem.cluster, AsFloat16(), problem.batch);
  found.float16_step = simulate_strategy(faster, strategy, options).result.step;
  return found;
}

std::string bfloat16_line(const EmulatedBfloat16& found) {
  return fmt::format(
      "bfloat16   {} {} no units for it ({:.3g} TFLOP/s; float16: {:.3g}); in float16 this plan "
      "takes {}\n",
      fmt::join(found.types, ", "), found.types.size() == 1 ? "has" : "have",
      found.flops_per_second / 1e12, found.float16_flops_per_second / 1e12,
      milliseconds_text(to_seconds(found.float16_step)));
}

explain::OrderedJson bfloat16_json(const EmulatedBfloat16& found) {
  return {{"emulated_by", found.types}, {"float16_step_seconds", to_seconds(found.float16_step)}};
}

}  // namespace heterog::cli
