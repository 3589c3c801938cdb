// Goes through the changes of each device's pace beside each of its tasks.
#include "measure/own_pace.h"

#include <cmath>
#include <map>

namespace heterog::measure {
namespace {

// From when on by how many thousandths a device is slower.
using Paces = std::map<Nanoseconds, std::int64_t>;

IdVector<DeviceId, Paces> paces_in(const compiler::Plan& plan, const runtime::MeasuredStep& step) {
  IdVector<DeviceId, Paces> paces(plan.device_count, Paces());
  for (TaskId task : plan.task_ids()) {
    if (step.end[task] <= step.begin[task]) continue;
    for (DeviceId device : plan.participants[task]) {
      paces[device][step.begin[task]] += plan.drag_of(task, device);
      paces[device][step.end[task]] -= plan.drag_of(task, device);
    }
  }
  for (Paces& changes : paces) {
    std::int64_t drag = 0;
    for (auto& [time, change] : changes) change = drag += change;
  }
  return paces;
}

// Of the time from `begin` to `end`, what an undisturbed device would have needed.
Nanoseconds own_time(const Paces& paces, Nanoseconds begin, Nanoseconds end) {
  double own = 0;
  double slow = 1;
  Nanoseconds from = begin;
  for (const auto& [time, drag] : paces) {
    if (time >= end) break;
    if (time > from) {
      own += static_cast<double>(time - from) / slow;
      from = time;
    }
    slow = 1 + static_cast<double>(drag) / 1000;
  }
  own += static_cast<double>(end - from) / slow;
  return std::llround(own);
}

}  // namespace

std::vector<runtime::MeasuredStep> at_own_pace(const compiler::Plan& plan,
                                               std::vector<runtime::MeasuredStep> steps) {
  if (plan.drag.empty()) return steps;
  for (runtime::MeasuredStep& step : steps) {
    const IdVector<DeviceId, Paces> paces = paces_in(plan, step);
    for (TaskId task : plan.task_ids()) {
      const auto holds = plan.holds[task];
      const bool computes = holds.size() == 1 && holds[0].resource.value() < plan.device_count;
      if (!computes || step.end[task] <= step.begin[task]) continue;
      const Paces& own = paces[DeviceId(holds[0].resource.value())];
      step.end[task] = step.begin[task] + own_time(own, step.begin[task], step.end[task]);
    }
  }
  return steps;
}

}  // namespace heterog::measure
