// Lays out tasks by lane, memory by device and decisions by group, in flat arrays.
#include "explain/page_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/plan_text.h"
#include "explain/decision_text.h"
#include "explain/gradients.h"
#include "explain/names.h"
#include "explain/path_lines.h"
#include "sim/memory.h"

namespace heterog::explain {

namespace {

using compiler::Plan;
using compiler::TaskKind;

// The script's numbers of kinds: forward, backward, update, then the other kinds of tasks.
int kind_number(const cost::Problem& problem, const Plan& plan, TaskId task) {
  switch (plan.kind[task]) {
    case TaskKind::kCompute:
      return static_cast<int>(problem.graph->op(plan.op[task]).phase);
    case TaskKind::kUpdate:
      return 2;
    case TaskKind::kMerge:
      return 3;
    case TaskKind::kTransfer:
      return 4;
    case TaskKind::kSum:
    case TaskKind::kAccumulate:
      return 5;
    case TaskKind::kAllReduce:
    case TaskKind::kReduceScatter:
    case TaskKind::kAllGather:
      return 6;
    case TaskKind::kPush:
      return 7;
    case TaskKind::kPull:
      return 8;
    case TaskKind::kOverhead:
    case TaskKind::kTurn:
      return 9;
  }
  return 0;
}

// Each distinct text once.
class Strings {
 public:
  std::size_t number(const std::string& text) {
    const auto [at, is_new] = numbers_.try_emplace(text, list_.size());
    if (is_new) list_.push_back(text);
    return at->second;
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::map<std::string, std::size_t> numbers_;
  std::vector<std::string> list_;
};

void add_tasks(const cost::Problem& problem, const DrawnPlan& drawn, OrderedJson& json) {
  const Plan& plan = drawn.simulated.plan;
  std::vector<std::uint8_t> critical(plan.task_count(), 0);
  for (const sim::Segment& segment : drawn.explanation.path) critical[segment.task.value()] = 1;
  Strings strings;
  std::vector<int> kind;
  std::vector<std::size_t> name;
  std::vector<std::int64_t> begin, end, bytes;
  for (TaskId task : plan.task_ids()) {
    kind.push_back(kind_number(problem, plan, task));
    name.push_back(strings.number(compiler::task_subject(plan, *problem.graph, task)));
    begin.push_back(plan.begin[task]);
    end.push_back(plan.end[task]);
    bytes.push_back(plan.moved_bytes[task]);
  }
  json["tasks"] = {{"kind", kind}, {"name", name},   {"begin", begin},
                   {"end", end},   {"bytes", bytes}, {"critical", critical}};
  json["strings"] = strings.list();
}

// One lane per compute stream and per link; what holds them, in order of time. Tasks of no time are
// left out: there is nothing to see.
OrderedJson lanes_data(const cost::Problem& problem, const sim::Simulated& simulated,
                       const std::optional<PipelineTime>& pipeline) {
  const Plan& plan = simulated.plan;
  struct Lane {
    std::vector<std::int64_t> start, length;
    std::vector<std::uint32_t> task;
  };
  std::vector<Lane> lanes(plan.resource_count());
  for (TaskId task : simulated.result.dispatch) {
    for (const compiler::Hold& hold : plan.holds[task]) {
      if (hold.duration == 0) continue;
      Lane& lane = lanes[hold.resource.value()];
      lane.start.push_back(simulated.result.start[task]);
      lane.length.push_back(sim::held_until(plan, simulated.result, task, hold) -
                            simulated.result.start[task]);
      lane.task.push_back(task.value());
    }
  }
  OrderedJson json = OrderedJson::array();
  const auto add = [&](const std::string& name, const char* kind, ResourceId resource) {
    const Lane& lane = lanes[resource.value()];
    json.push_back({{"name", name},
                    {"kind", kind},
                    {"start", lane.start},
                    {"length", lane.length},
                    {"task", lane.task}});
  };
  // Of a pipeline, stage by stage.
  std::vector<std::uint8_t> added(problem.cluster->place_count(), 0);
  if (pipeline) {
    for (std::size_t i = 0; i < pipeline->stages.size(); ++i) {
      for (DeviceId device : pipeline->stages[i].devices) {
        const std::string name = fmt::format("{}: {}", i + 1, problem.cluster->device(device).name);
        add(name, "device", plan.compute_stream(device));
        added[device.value()] = 1;
      }
    }
  }
  for (DeviceId device : problem.cluster->place_ids()) {
    if (added[device.value()]) continue;
    add(problem.cluster->device(device).name, "device", plan.compute_stream(device));
  }
  for (LinkId link : id_range<LinkId>(problem.cluster->link_count())) {
    const bool unused = lanes[plan.link(link).value()].task.empty();
    if (unused && problem.cluster->is_connection(link)) continue;
    add(problem.cluster->link(link).name, "link", plan.link(link));
  }
  return json;
}

void add_memory(const cost::Problem& problem, const sim::Simulated& simulated, OrderedJson& json) {
  constexpr std::size_t kLargest = 5;
  const auto peaks = sim::memory_peaks(problem, simulated.plan, simulated.result);
  json["devices"] = OrderedJson::array();
  for (DeviceId device : problem.cluster->place_ids()) {
    const sim::MemoryPeak& peak = peaks[device];
    OrderedJson memory, largest = OrderedJson::array();
    for (int i = 0; i < sim::kMemoryPurposeCount; ++i) {
      const auto purpose = static_cast<sim::MemoryPurpose>(i);
      memory[std::string(sim::memory_purpose_name(purpose))] = peak.of(purpose);
    }
    for (std::size_t i = 0; i < std::min(kLargest, peak.held.size()); ++i) {
      const sim::HeldMemory& held = peak.held[i];
      largest.push_back(
          {{"name", held.tensor.valid()
                        ? problem.graph->tensor(held.tensor).name
                        : "workspace of " + task_name(problem, simulated.plan, held.maker)},
           {"bytes", held.bytes},
           {"until", task_name(problem, simulated.plan, held.until)}});
    }
    json["devices"].push_back({{"name", problem.cluster->device(device).name},
                               {"type", problem.cluster->type_of(device).name},
                               {"busy", simulated.result.device_busy[device]},
                               {"peak", simulated.result.peak_bytes[device]},
                               {"peak_at", peak.time},
                               {"capacity", simulated.plan.capacity[device]},
                               {"memory", memory},
                               {"largest", largest}});
  }
  struct Curve {
    std::vector<Nanoseconds> time;
    std::vector<Bytes> bytes;
  };
  IdVector<DeviceId, Curve> curves(problem.cluster->place_count());
  for (const sim::MemoryPoint& point : sim::memory_curve(simulated.plan, simulated.result)) {
    curves[point.device].time.push_back(point.time);
    curves[point.device].bytes.push_back(point.bytes);
  }
  json["curves"] = OrderedJson::array();
  for (const Curve& curve : curves) {
    json["curves"].push_back({{"time", curve.time}, {"bytes", curve.bytes}});
  }
}

void add_explanation(const cost::Problem& problem, const DrawnPlan& drawn, OrderedJson& json) {
  const Explanation& explanation = drawn.explanation;
  json["path"] = OrderedJson::array();
  for (const PathLine& line : path_lines(problem, drawn.simulated, explanation)) {
    json["path"].push_back(
        {{"begin", line.begin}, {"length", line.length}, {"what", line.what}, {"why", line.why}});
  }
  const sim::Bounds& bounds = explanation.bounds;
  json["bounds"] = {{"plan_chain", bounds.chain},
                    {"plan_device", bounds.stream},
                    {"plan_link", bounds.link},
                    {"plan_collectives", bounds.collectives},
                    {"plan_one_machine", bounds.one_machine},
                    {"plan_two_machines", bounds.two_machines},
                    {"step", bounds.step()}};
  json["by_kind"] = OrderedJson::array();
  for (const Spent& spent : spent_by_kind(problem, drawn.simulated, explanation)) {
    json["by_kind"].push_back({{"name", spent.what}, {"time", spent.time}});
  }
  json["upgrades"] = OrderedJson::array();
  for (const WhatIf& what : explanation.upgrades) {
    json["upgrades"].push_back({{"name", what.upgrade.name}, {"step", what.step}});
  }
  json["times"] = OrderedJson::array();
  for (DeviceId device : problem.cluster->place_ids()) {
    const sim::DeviceTime& time = explanation.times[device];
    const DeviceId other = straggler(time);
    json["times"].push_back(
        {{"name", problem.cluster->device(device).name},
         {"computing", time.computing},
         {"moving", time.moving},
         {"queued", time.queued},
         {"waiting", time.waiting},
         {"done", time.done},
         {"waits_for", other.valid() ? problem.cluster->device(other).name : ""}});
  }
}

// A group of the problem shows what is decided for its op that takes longest.
void add_groups(const cost::Problem& problem, const DrawnPlan& drawn, OrderedJson& json) {
  Strings decisions;
  json["groups"] = OrderedJson::array();
  for (GroupId group : id_range<GroupId>(problem.grouping.count())) {
    double seconds = 0;
    OpId heaviest;
    for (OpId op : problem.grouping.members[group]) {
      seconds += problem.costs.mean_seconds(op);
      if (!heaviest.valid() ||
          problem.costs.mean_seconds(op) > problem.costs.mean_seconds(heaviest)) {
        heaviest = op;
      }
    }
    const std::string decision =
        decision_text(problem, drawn.strategy, decision_of(problem, drawn.strategy, heaviest));
    json["groups"].push_back({{"name", group_name(problem, group)},
                              {"seconds", seconds},
                              {"decision", decisions.number(decision)}});
  }
  json["decisions"] = OrderedJson::array();
  for (const std::string& text : decisions.list()) json["decisions"].push_back({{"text", text}});
}

OrderedJson planners_data(const std::vector<PlannerRow>& rows) {
  OrderedJson json = OrderedJson::array();
  for (const PlannerRow& row : rows) {
    json.push_back({{"name", row.name},
                    {"baseline", row.baseline},
                    {"step", row.step},
                    {"feasible", row.feasible},
                    {"missing", row.missing_bytes}});
  }
  return json;
}

}  // namespace

OrderedJson plan_data(const cost::Problem& problem, DrawnPlan drawn) {
  OrderedJson json = {{"name", drawn.name},
                      {"planner", drawn.planner + compression_words(problem)},
                      {"order", decide::order_policy_name(dispatch_order(drawn.strategy))},
                      {"step", drawn.simulated.result.step},
                      {"feasible", drawn.simulated.result.feasible()}};
  add_memory(problem, drawn.simulated, json);
  json["lanes"] = lanes_data(problem, drawn.simulated, drawn.explanation.pipeline);
  add_tasks(problem, drawn, json);
  add_explanation(problem, drawn, json);
  add_groups(problem, drawn, json);
  if (drawn.measured) {
    json["measured"] = drawn.measured->end;
    for (OrderedJson& lane : drawn.measured->lanes) json["lanes"].push_back(std::move(lane));
  }
  return json;
}

OrderedJson page_data(const cost::Problem& problem, const std::vector<PlannerRow>& planners,
                      OrderedJson plans) {
  return {{"graph", problem.graph->name()},
          {"cluster", problem.cluster->name()},
          {"batch", problem.batch},
          {"planners", planners_data(planners)},
          {"plans", std::move(plans)}};
}

}  // namespace heterog::explain
