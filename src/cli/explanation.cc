// Sums over the critical path, and their forms.
#include "cli/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace heterog::cli {

namespace {

using compiler::Plan;
using sim::Segment;

constexpr std::size_t kPathLines = 24;
constexpr std::size_t kGroupLines = 6;
constexpr std::size_t kResourceLines = 6;
constexpr std::size_t kUpgradeLines = 6;

std::vector<Spent> longest_first(const std::map<std::string, Nanoseconds>& times) {
  std::vector<Spent> spent;
  for (const auto& [what, time] : times) spent.push_back({what, time});
  std::stable_sort(spent.begin(), spent.end(),
                   [](const Spent& a, const Spent& b) { return a.time > b.time; });
  return spent;
}

std::string share_text(Nanoseconds part, Nanoseconds whole) {
  return fmt::format(
      "{:.0f} %", whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
}

// Streams and links by busy time.
std::vector<Spent> busiest(const cost::Problem& problem, const Simulated& simulated) {
  std::vector<Spent> all;
  for (DeviceId device : problem.cluster->device_ids()) {
    all.push_back({problem.cluster->device(device).name, simulated.result.device_busy[device]});
  }
  for (LinkId link : id_range<LinkId>(problem.cluster->link_count())) {
    all.push_back({problem.cluster->link(link).name, simulated.result.link_busy[link]});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Spent& a, const Spent& b) { return a.time > b.time; });
  return all;
}

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

std::string bounds_text(const Simulated& simulated, const sim::Bounds& bounds) {
  const Nanoseconds step = simulated.result.step;
  const auto over = [&](Nanoseconds bound) {
    return fmt::format("{} ({} of the step)", milliseconds_text(to_seconds(bound)),
                       share_text(bound, step));
  };
  return fmt::format(
      "no order of this plan is under {}: its longest chain {}, its busiest device {}, its busiest "
      "link {}, collectives that exclude one another {}\n",
      over(bounds.step()), milliseconds_text(to_seconds(bounds.chain)),
      milliseconds_text(to_seconds(bounds.stream)), milliseconds_text(to_seconds(bounds.link)),
      milliseconds_text(to_seconds(bounds.collectives)));
}

std::string path_text(const cost::Problem& problem, const Simulated& simulated,
                      const Explanation& explanation) {
  std::string text = fmt::format("critical path: {} tasks\n", explanation.path.size());
  for (const PathLine& line : path_lines(problem, simulated, explanation, kPathLines)) {
    text += fmt::format("{:>11} {:>11}  {}\n", milliseconds_text(to_seconds(line.begin)),
                        "+" + milliseconds_text(to_seconds(line.length)), line.what);
    if (!line.why.empty()) text += fmt::format("{:>24} {}\n", "<-", line.why);
  }
  return text;
}

std::string times_text(const cost::Problem& problem, const Simulated& simulated,
                       const Explanation& explanation) {
  const Nanoseconds step = simulated.result.step;
  Table table({"device", "computes", "idle: on its way", "queued", "not made yet", "nothing left",
               "waits most for"});
  for (DeviceId device : problem.cluster->device_ids()) {
    const sim::DeviceTime& time = explanation.times[device];
    const DeviceId other = straggler(time);
    table.add_row({problem.cluster->device(device).name, share_text(time.computing, step),
                   share_text(time.moving, step), share_text(time.queued, step),
                   share_text(time.waiting, step), share_text(time.done, step),
                   other.valid() ? problem.cluster->device(other).name : "-"});
  }
  return table.text();
}

}  // namespace

Explanation explain(const cost::Problem& problem, const compiler::Strategy& strategy,
                    const Simulated& simulated, const compiler::CompileOptions& compile) {
  return {
      .path = sim::critical_path(simulated.plan, simulated.result, strategy.order),
      .times = sim::device_times(simulated.plan, simulated.result),
      .bounds = sim::bounds(simulated.plan),
      .upgrades = planner::what_if(problem, strategy, planner::possible_upgrades(*problem.cluster),
                                   {.compile = compile})};
}

std::vector<Spent> spent_by_kind(const cost::Problem& problem, const Simulated& simulated,
                                 const Explanation& explanation) {
  std::map<std::string, Nanoseconds> times;
  for (const Segment& segment : explanation.path) {
    times[task_phase(problem, simulated.plan, segment.task)] += segment.end - segment.begin;
  }
  return longest_first(times);
}

std::vector<Spent> spent_by_group(const cost::Problem& problem, const Simulated& simulated,
                                  const Explanation& explanation) {
  IdVector<GroupId, Nanoseconds> times(problem.grouping.count(), 0);
  for (const Segment& segment : explanation.path) {
    const GroupId group = problem.grouping.group_of[simulated.plan.op[segment.task]];
    times[group] += segment.end - segment.begin;
  }
  std::vector<Spent> spent;
  for (GroupId group : id_range<GroupId>(times.size())) {
    if (times[group] > 0) spent.push_back({group_name(problem, group), times[group]});
  }
  std::stable_sort(spent.begin(), spent.end(),
                   [](const Spent& a, const Spent& b) { return a.time > b.time; });
  return spent;
}

DeviceId straggler(const sim::DeviceTime& time) {
  DeviceId longest;
  for (DeviceId device : id_range<DeviceId>(time.waiting_for.size())) {
    if (time.waiting_for[device] == 0) continue;
    if (!longest.valid() || time.waiting_for[device] > time.waiting_for[longest]) longest = device;
  }
  return longest;
}

// The common beginning of the scopes of its forward ops, in whole words; if they share none, the op
// that takes longest.
std::string group_name(const cost::Problem& problem, GroupId group) {
  const graph::ModelGraph& graph = *problem.graph;
  std::string common;
  bool first = true;
  OpId heaviest;
  for (OpId op : problem.grouping.members[group]) {
    if (graph.op(op).alias) continue;
    if (!heaviest.valid() ||
        problem.costs.mean_seconds(op) > problem.costs.mean_seconds(heaviest)) {
      heaviest = op;
    }
    if (graph.op(op).phase != graph::Phase::kForward) continue;
    const std::string scope(graph.scope(op));
    if (first) common = scope;
    first = false;
    while (!common.empty() && scope != common && !scope.starts_with(common + ".")) {
      const std::size_t dot = common.rfind('.');
      common.resize(dot == std::string::npos ? 0 : dot);
    }
  }
  if (common.empty() && heaviest.valid()) common = graph.op(heaviest).name;
  return fmt::format("#{} {}", group.value(), common);
}

OrderedJson explanation_json(const cost::Problem& problem, const Simulated& simulated,
                             const Explanation& explanation) {
  const Nanoseconds step = simulated.result.step;
  OrderedJson json;
  json["step_seconds"] = to_seconds(step);
  json["critical_path"] = OrderedJson::array();
  for (const Segment& segment : explanation.path) {
    json["critical_path"].push_back(segment_json(problem, simulated.plan, segment));
  }
  json["stretches"] = OrderedJson::array();
  for (const PathLine& line : path_lines(problem, simulated, explanation, kPathLines)) {
    json["stretches"].push_back({{"begin_seconds", to_seconds(line.begin)},
                                 {"seconds", to_seconds(line.length)},
                                 {"what", line.what},
                                 {"why", line.why}});
  }
  json["by_kind"] = spent_json(spent_by_kind(problem, simulated, explanation), "kind");
  json["by_group"] = spent_json(spent_by_group(problem, simulated, explanation), "group");
  json["devices"] = OrderedJson::array();
  for (DeviceId device : problem.cluster->device_ids()) {
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
  json["busiest"] = spent_json(busiest(problem, simulated), "name");
  json["twice_as_fast"] = OrderedJson::array();
  for (const planner::WhatIf& what : explanation.upgrades) {
    json["twice_as_fast"].push_back({{"name", what.upgrade.name},
                                     {"step_seconds", to_seconds(what.step)},
                                     {"saved_seconds", to_seconds(step - what.step)}});
  }
  const sim::Bounds& bounds = explanation.bounds;
  json["lower_bound_seconds"] = to_seconds(bounds.step());
  json["bounds"] = {{"plan_chain_seconds", to_seconds(bounds.chain)},
                    {"plan_busiest_device_seconds", to_seconds(bounds.stream)},
                    {"plan_busiest_link_seconds", to_seconds(bounds.link)},
                    {"plan_collectives_seconds", to_seconds(bounds.collectives)}};
  return json;
}

std::string explanation_text(const cost::Problem& problem, const Simulated& simulated,
                             const Explanation& explanation) {
  const Nanoseconds step = simulated.result.step;
  std::string text = bounds_text(simulated, explanation.bounds) + "\n" +
                     path_text(problem, simulated, explanation) + "\n";
  Table kinds({"on the path", "time", "of step"});
  for (const Spent& spent : spent_by_kind(problem, simulated, explanation)) {
    kinds.add_row(
        {spent.what, milliseconds_text(to_seconds(spent.time)), share_text(spent.time, step)});
  }
  std::size_t groups = 0;
  for (const Spent& spent : spent_by_group(problem, simulated, explanation)) {
    if (groups++ == kGroupLines) break;
    kinds.add_row({"group " + spent.what, milliseconds_text(to_seconds(spent.time)),
                   share_text(spent.time, step)});
  }
  text += kinds.text() + "\n" + times_text(problem, simulated, explanation) + "\n";
  Table resources({"busiest", "busy", "of step"});
  std::size_t shown = 0;
  for (const Spent& spent : busiest(problem, simulated)) {
    if (shown++ == kResourceLines) break;
    resources.add_row(
        {spent.what, milliseconds_text(to_seconds(spent.time)), share_text(spent.time, step)});
  }
  text += resources.text() + "\n";
  Table upgrades({"twice as fast", "step", "saves", "of step"});
  bool any = false;
  for (std::size_t i = 0; i < std::min(kUpgradeLines, explanation.upgrades.size()); ++i) {
    const planner::WhatIf& what = explanation.upgrades[i];
    if (1000 * (step - what.step) < step) break;  // the rest save less than 0.1 %
    any = true;
    upgrades.add_row({what.upgrade.name, milliseconds_text(to_seconds(what.step)),
                      milliseconds_text(to_seconds(step - what.step)),
                      fmt::format("{:.1f} %", 100 * to_seconds(step - what.step) /
                                                  to_seconds(std::max<Nanoseconds>(1, step)))});
  }
  return text + (any ? upgrades.text()
                     : "twice as fast: no one device, type of device or link saves 0.1 %\n");
}

}  // namespace heterog::cli
