// Sums over the critical path.
#include "explain/explanation.h"

#include <algorithm>
#include <map>
#include <utility>

#include "explain/names.h"
#include "sim/least_step.h"

namespace heterog::explain {

namespace {

using sim::Segment;

std::vector<Spent> longest_first(std::vector<Spent> spent) {
  std::stable_sort(spent.begin(), spent.end(),
                   [](const Spent& a, const Spent& b) { return a.time > b.time; });
  return spent;
}

}  // namespace

Explanation explain_plan(const cost::Problem& problem, const decide::Strategy& strategy,
                         const sim::Simulated& simulated, const compiler::CompileOptions& compile) {
  return {.path = sim::critical_path(simulated.plan, simulated.result,
                                     decide::dispatch_order(strategy)),
          .times = sim::device_times(simulated.plan, simulated.result),
          .bounds = sim::bounds(simulated.plan),
          .any_plan = sim::least_step(problem),
          .upgrades =
              what_if(problem, strategy, possible_upgrades(*problem.cluster), {.compile = compile}),
          .pipeline = pipeline_time(problem, strategy, simulated)};
}

std::vector<Spent> spent_by_kind(const cost::Problem& problem, const sim::Simulated& simulated,
                                 const Explanation& explanation) {
  std::map<std::string, Nanoseconds> times;
  for (const Segment& segment : explanation.path) {
    times[task_phase(problem, simulated.plan, segment.task)] += segment.end - segment.begin;
  }
  std::vector<Spent> spent;
  spent.reserve(times.size());
  for (const auto& [what, time] : times) spent.push_back({what, time});
  return longest_first(std::move(spent));
}

std::vector<Spent> spent_by_group(const cost::Problem& problem, const sim::Simulated& simulated,
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
  return longest_first(std::move(spent));
}

std::vector<Spent> busiest(const cost::Problem& problem, const sim::Simulated& simulated) {
  std::vector<Spent> all;
  for (DeviceId device : problem.cluster->place_ids()) {
    all.push_back({problem.cluster->device(device).name, simulated.result.device_busy[device]});
  }
  for (LinkId link : id_range<LinkId>(problem.cluster->link_count())) {
    all.push_back({problem.cluster->link(link).name, simulated.result.link_busy[link]});
  }
  return longest_first(std::move(all));
}

DeviceId straggler(const sim::DeviceTime& time) {
  DeviceId longest;
  for (DeviceId device : id_range<DeviceId>(time.waiting_for.size())) {
    if (time.waiting_for[device] == 0) continue;
    if (!longest.valid() || time.waiting_for[device] > time.waiting_for[longest]) longest = device;
  }
  return longest;
}

}  // namespace heterog::explain
