// A plan that moves nothing.
#include "loading/one_device.h"

#include <algorithm>
#include <iterator>

#include "compiler/compile.h"

namespace heterog::loading {

namespace {

std::shared_ptr<const cluster::Cluster> one_device() {
  cluster::DeviceType type;
  type.name = "CPU";
  type.memory_bytes = Bytes{1} << 50;
  type.fp32_flops_per_second = 1e12;
  type.memory_bytes_per_second = 1e9;
  std::fill(std::begin(type.efficiency), std::end(type.efficiency), 1.0);
  cluster::ClusterBuilder builder("one device");
  builder.add_machine({.name = "here", .devices = {type}});
  return std::make_shared<const cluster::Cluster>(std::move(builder).build("one device"));
}

class ConstantCosts final : public cost::CostModel {
 public:
  double seconds(const graph::ModelGraph&, OpId, std::int64_t,
                 const cluster::DeviceType&) const override {
    return 1e-6;
  }
  Bytes workspace_bytes(const graph::ModelGraph&, OpId, std::int64_t,
                        const cluster::DeviceType&) const override {
    return 0;
  }
};

}  // namespace

OneDevicePlan one_device_plan(std::shared_ptr<const graph::ModelGraph> graph,
                              std::int64_t samples) {
  OneDevicePlan made{.problem = cost::make_problem(std::move(graph), one_device(), ConstantCosts(),
                                                   samples, {.max_groups = 1})};
  made.plan = compiler::compile(
      *made.problem, decide::uniform_strategy(*made.problem, decide::single_decision(DeviceId(0))),
      {});
  for (TaskId task : made.plan.task_ids()) made.dispatch.push_back(task);
  return made;
}

}  // namespace heterog::loading
