// One pass over the tasks in order of start; what computes when is laid out first.
#include "oracle/step_profile.h"

#include <algorithm>
#include <vector>

#include "sim/slack.h"

namespace heterog::oracle {
namespace {

using compiler::Plan;
using sim::SimResult;

// When a device computes: intervals that follow one another.
class Computing {
 public:
  void add(Nanoseconds begin, Nanoseconds end) {
    begins_.push_back(begin);
    ends_.push_back(end);
    before_.push_back(before_.back() + end - begin);
  }
  // Of the time from `begin` to `end`.
  Nanoseconds within(Nanoseconds begin, Nanoseconds end) const { return until(end) - until(begin); }

 private:
  Nanoseconds until(Nanoseconds time) const {
    const auto after = static_cast<std::size_t>(
        std::upper_bound(begins_.begin(), begins_.end(), time) - begins_.begin());
    if (after == 0) return 0;
    return before_[after - 1] + std::min(time, ends_[after - 1]) - begins_[after - 1];
  }
  std::vector<Nanoseconds> begins_;
  std::vector<Nanoseconds> ends_;
  std::vector<Nanoseconds> before_ = {0};  // computed before each, and before the end
};

// What a group does on a device, in order of start.
struct Share {
  Nanoseconds computing = 0;
  Nanoseconds exposed = 0;
  Nanoseconds seen_until = 0;  // of what is on its way: two that overlap count once
};

bool on_stream(const Plan& plan, const compiler::Hold& hold) {
  return hold.resource.value() < plan.device_count;
}

IdVector<DeviceId, Computing> computing_times(const Plan& plan, const SimResult& result) {
  IdVector<DeviceId, Computing> computing(plan.device_count);
  for (TaskId task : result.dispatch) {
    for (const compiler::Hold& hold : plan.holds[task]) {
      if (!on_stream(plan, hold)) continue;
      computing[DeviceId(hold.resource.value())].add(result.start[task],
                                                     held_until(plan, result, task, hold));
    }
  }
  return computing;
}

// A device waits for [begin, end), which belongs to the group of `share`.
void note_waiting(Share& share, const Computing& computing, Nanoseconds begin, Nanoseconds end) {
  begin = std::max(begin, share.seen_until);
  if (begin >= end) return;
  share.exposed += end - begin - computing.within(begin, end);
  share.seen_until = end;
}

}  // namespace

StepProfile profile_step(const Plan& plan, const SimResult& result,
                         const graph::Grouping& grouping) {
  ENSURE(result.dispatch.size() == plan.task_count());
  const auto slack = sim::slacks(plan, result);
  const auto computing = computing_times(plan, result);
  const double step = static_cast<double>(std::max<Nanoseconds>(result.step, 1));
  const auto part = [step](Nanoseconds time) { return static_cast<double>(time) / step; };
  StepProfile profile;
  profile.groups.resize(grouping.count());
  std::vector<Share> shares(grouping.count() * plan.device_count);
  const auto share_of = [&](GroupId group, DeviceId device) -> Share& {
    return shares[group.value() * plan.device_count + device.value()];
  };
  for (TaskId task : result.dispatch) {
    if (!plan.op[task].valid()) continue;  // between turns
    const GroupId group = grouping.group_of[plan.op[task]];
    GroupProfile& of = profile.groups[group];
    of.slack = std::min(of.slack, part(slack[task]));
    for (const compiler::Hold& hold : plan.holds[task]) {
      if (!on_stream(plan, hold)) continue;
      share_of(group, DeviceId(hold.resource.value())).computing +=
          held_until(plan, result, task, hold) - result.start[task];
    }
    const auto wait = [&](DeviceId device) {
      note_waiting(share_of(group, device), computing[device], result.start[task],
                   result.end[task]);
    };
    if (compiler::is_transfer(plan.kind[task])) wait(plan.device[task]);
    if (compiler::is_collective(plan.kind[task])) {
      for (DeviceId device : plan.participants[task]) wait(device);
    }
  }
  for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
    for (GroupId group : id_range<GroupId>(grouping.count())) {
      GroupProfile& of = profile.groups[group];
      of.busy = std::max(of.busy, part(share_of(group, device).computing));
      of.exposed = std::max(of.exposed, part(share_of(group, device).exposed));
    }
    const auto capacity = static_cast<double>(std::max<Bytes>(plan.capacity[device], 1));
    profile.devices.push_back(
        {.busy = part(result.device_busy[device]),
         .memory = static_cast<double>(result.peak_bytes[device]) / capacity});
  }
  return profile;
}

}  // namespace heterog::oracle
