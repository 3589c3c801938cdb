// Adds up the streams of each stage.
#include "explain/stages.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "decide/pass_turns.h"

namespace heterog::explain {
namespace {

using compiler::TaskKind;
using graph::Phase;

struct DeviceWork {
  bool is_forward = false;
  Nanoseconds filled = 0;  // its longest forward op has run for the first time
  Nanoseconds last = 0;    // the end of its last backward op
  std::vector<std::pair<Nanoseconds, Nanoseconds>> busy;  // of its compute stream
  // Until `end`.
  Nanoseconds computes(Nanoseconds end) const {
    Nanoseconds sum = 0;
    for (const auto& [from, to] : busy) {
      if (from < end) sum += std::min(to, end) - from;
    }
    return sum;
  }
};

std::vector<DeviceWork> work_of_devices(const cost::Problem& problem,
                                        const sim::Simulated& simulated) {
  const compiler::Plan& plan = simulated.plan;
  const sim::SimResult& result = simulated.result;
  std::vector<DeviceWork> work(plan.device_count);
  std::vector<std::set<OpId>> seen(plan.device_count);
  std::vector<Nanoseconds> longest(plan.device_count, -1);
  for (TaskId task : plan.task_ids()) {
    for (const compiler::Hold& hold : plan.holds[task]) {
      if (hold.resource.value() >= plan.device_count) continue;
      work[hold.resource.value()].busy.emplace_back(result.start[task], result.end[task]);
    }
    if (plan.kind[task] != TaskKind::kCompute) continue;
    const OpId op = plan.op[task];
    const std::size_t device = plan.device[task].value();
    const Phase phase = problem.graph->op(op).phase;
    if (phase == Phase::kBackward)
      work[device].last = std::max(work[device].last, result.end[task]);
    if (phase != Phase::kForward || decide::same_everywhere(problem, op)) continue;
    work[device].is_forward = true;
    if (seen[device].insert(op).second && plan.duration[task] > longest[device]) {
      longest[device] = plan.duration[task];
      work[device].filled = result.end[task];
    }
  }
  return work;
}

}  // namespace

std::optional<PipelineTime> pipeline_time(const cost::Problem& problem,
                                          const decide::Strategy& strategy,
                                          const sim::Simulated& simulated) {
  if (strategy.micro_batches < 2) return std::nullopt;
  const auto stage_of =
      decide::stages_of_devices(problem, strategy, decide::lay_out(problem, strategy));
  const std::vector<DeviceWork> work = work_of_devices(problem, simulated);
  std::map<std::uint32_t, std::vector<DeviceId>> by_stage;
  Nanoseconds end = 0;
  for (std::size_t device = 0; device < work.size(); ++device) {
    if (!work[device].is_forward) continue;
    by_stage[stage_of[DeviceId(device)].stage].push_back(DeviceId(device));
    end = std::max(end, work[device].last);
  }
  if (by_stage.size() < 2) return std::nullopt;
  PipelineTime time{.micro_batches = strategy.micro_batches};
  for (auto& [number, devices] : by_stage) {
    const auto computes = [&](DeviceId device) { return work[device.value()].computes(end); };
    const DeviceWork& busiest = work[std::ranges::max(devices, {}, computes).value()];
    const Nanoseconds until_filled = busiest.computes(busiest.filled);
    const Nanoseconds until_last = busiest.computes(busiest.last);
    StageTime& stage = time.stages.emplace_back();
    stage.computes = busiest.computes(end);
    stage.fills = busiest.filled - until_filled;
    stage.bubbles = busiest.last - busiest.filled - (until_last - until_filled);
    stage.drains = end - busiest.last - (stage.computes - until_last);
    stage.devices = std::move(devices);
  }
  const auto slowest = std::ranges::max_element(time.stages, {}, &StageTime::computes);
  time.slowest = static_cast<std::size_t>(slowest - time.stages.begin());
  time.one_more_saves = slowest->idle() / (time.micro_batches + 1);
  return time;
}

}  // namespace heterog::explain
