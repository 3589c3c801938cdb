// Writes an explanation as JSON, times in seconds.
#include "explain/explanation_json.h"

#include "explain/names.h"
#include "explain/path_lines.h"
#include "explain/work.h"

namespace heterog::explain {

namespace {

using compiler::Plan;
using sim::Segment;

OrderedJson spent_json(const std::vector<Spent>& spent, const char* key) {
  OrderedJson json = OrderedJson::array();
  for (const Spent& item : spent) {
    json.push_back({{key, item.what}, {"seconds", to_seconds(item.time)}});
  }
  return json;
}

OrderedJson segment_json(const cost::Problem& problem, const Plan& plan, const Segment& segment) {
  const TaskId task = segment.task;
  OrderedJson json = {{"task", task.value()},
                      {"kind", compiler::task_kind_name(plan.kind[task])},
                      {"op", problem.graph->op(plan.op[task]).name},
                      {"type", problem.graph->type_name(plan.op[task])},
                      {"device", problem.cluster->device(plan.device[task]).name},
                      {"begin_seconds", to_seconds(segment.begin)},
                      {"seconds", to_seconds(segment.end - segment.begin)},
                      {"ready_seconds", to_seconds(segment.ready)},
                      {"cause", sim::cause_name(segment.cause)}};
  if (plan.peer[task].valid()) json["from"] = problem.cluster->device(plan.peer[task]).name;
  if (plan.tensor[task].valid()) json["tensor"] = problem.graph->tensor(plan.tensor[task]).name;
  if (segment.waited_for.valid()) json["waited_for"] = segment.waited_for.value();
  if (segment.resource.valid()) json["resource"] = resource_name(problem, plan, segment.resource);
  return json;
}

OrderedJson pipeline_json(const cost::Problem& problem, const PipelineTime& pipeline) {
  OrderedJson stages = OrderedJson::array();
  for (const StageTime& stage : pipeline.stages) {
    OrderedJson names = OrderedJson::array();
    for (DeviceId device : stage.devices) names.push_back(problem.cluster->device(device).name);
    stages.push_back({{"devices", names},
                      {"computing_seconds", to_seconds(stage.computes)},
                      {"filling_seconds", to_seconds(stage.fills)},
                      {"bubble_seconds", to_seconds(stage.bubbles)},
                      {"draining_seconds", to_seconds(stage.drains)}});
  }
  return {{"micro_batches", pipeline.micro_batches},
          {"slowest_stage", pipeline.slowest + 1},
          {"one_more_micro_batch_saves_seconds", to_seconds(pipeline.one_more_saves)},
          {"stages", stages}};
}

}  // namespace

OrderedJson explanation_json(const cost::Problem& problem, const sim::Simulated& simulated,
                             const Explanation& explanation) {
  const Nanoseconds step = simulated.result.step;
  OrderedJson json;
  json["step_seconds"] = to_seconds(step);
  json["samples_per_second"] = samples_per_second(problem.batch, simulated.result.step);
  json["critical_path"] = OrderedJson::array();
  for (const Segment& segment : explanation.path) {
    json["critical_path"].push_back(segment_json(problem, simulated.plan, segment));
  }
  json["stretches"] = OrderedJson::array();
  for (const PathLine& line : path_lines(problem, simulated, explanation)) {
    json["stretches"].push_back({{"begin_seconds", to_seconds(line.begin)},
                                 {"seconds", to_seconds(line.length)},
                                 {"what", line.what},
                                 {"why", line.why}});
  }
  json["by_kind"] = spent_json(spent_by_kind(problem, simulated, explanation), "kind");
  json["by_group"] = spent_json(spent_by_group(problem, simulated, explanation), "group");
  json["devices"] = OrderedJson::array();
  for (DeviceId device : problem.cluster->place_ids()) {
    const sim::DeviceTime& time = explanation.times[device];
    OrderedJson item = {{"name", problem.cluster->device(device).name},
                        {"computing_seconds", to_seconds(time.computing)},
                        {"moving_seconds", to_seconds(time.moving)},
                        {"queued_seconds", to_seconds(time.queued)},
                        {"waiting_seconds", to_seconds(time.waiting)},
                        {"done_seconds", to_seconds(time.done)},
                        {"waits_most_for", nullptr}};
    const DeviceId other = straggler(time);
    if (other.valid()) item["waits_most_for"] = problem.cluster->device(other).name;
    json["devices"].push_back(std::move(item));
  }
  if (explanation.pipeline) json["pipeline"] = pipeline_json(problem, *explanation.pipeline);
  json["busiest"] = spent_json(busiest(problem, simulated), "name");
  json["twice_as_fast"] = OrderedJson::array();
  for (const WhatIf& what : explanation.upgrades) {
    json["twice_as_fast"].push_back({{"name", what.upgrade.name},
                                     {"step_seconds", to_seconds(what.step)},
                                     {"saved_seconds", to_seconds(step - what.step)}});
  }
  const sim::Bounds& bounds = explanation.bounds;
  json["lower_bound_seconds"] = to_seconds(bounds.step());
  json["bounds"] = {{"plan_chain_seconds", to_seconds(bounds.chain)},
                    {"plan_busiest_device_seconds", to_seconds(bounds.stream)},
                    {"plan_busiest_link_seconds", to_seconds(bounds.link)},
                    {"plan_collectives_seconds", to_seconds(bounds.collectives)},
                    {"plan_one_machine_seconds", to_seconds(bounds.one_machine)},
                    {"plan_two_machines_seconds", to_seconds(bounds.two_machines)}};
  json["any_plan_bound_seconds"] = to_seconds(explanation.any_plan);
  return json;
}

}  // namespace heterog::explain
