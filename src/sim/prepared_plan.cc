// Finds streams and hold sets, and folds the memory of each task into two numbers.
#include "sim/prepared_plan.h"

#include <algorithm>
#include <span>
#include <utility>

namespace heterog::sim {
namespace {

using compiler::Hold;
using compiler::Plan;

constexpr std::uint32_t kUnused = 0xffffffff;
constexpr std::uint32_t kShared = 0xfffffffe;
constexpr std::uint32_t kEmpty = 0xffffffff;

bool same_resources(std::span<const Hold> a, std::span<const Hold> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Hold& x, const Hold& y) { return x.resource == y.resource; });
}

}  // namespace

// Sums what each resource carries on the way.
void PreparedPlan::find_streams(const Plan& plan) {
  stream_of_.assign(plan.resource_count(), kUnused);
  device_busy.assign(plan.device_count, 0);
  link_busy.assign(plan.link_count, 0);
  link_bytes.assign(plan.link_count, 0);
  const std::size_t first_link = 2 * plan.device_count;
  for (TaskId task : plan.task_ids()) {
    const std::span<const Hold> holds = plan.holds[task];
    const bool alone = holds.size() == 1 && holds[0].duration == plan.duration[task] &&
                       plan.participants[task].empty();
    for (const Hold& hold : holds) {
      const std::uint32_t resource = hold.resource.value();
      std::uint32_t& stream = stream_of_[resource];
      stream = alone && stream != kShared ? 0 : kShared;
      if (resource < plan.device_count) {
        device_busy[DeviceId(resource)] += hold.duration;
      } else if (resource >= first_link && resource < first_link + plan.link_count) {
        link_busy[LinkId(resource - first_link)] += hold.duration;
        link_bytes[LinkId(resource - first_link)] += hold.bytes;
      }
    }
  }
  streams = 0;
  for (std::uint32_t& stream : stream_of_) {
    if (stream == 0) stream = static_cast<std::uint32_t>(streams++);
  }
}

std::uint32_t PreparedPlan::hold_set(const Plan& plan, TaskId task) {
  const std::span<const Hold> holds = plan.holds[task];
  if (2 * (hold_sets.size() + 1) > table_.size()) {  // grow, and find everyone a new place
    table_.assign(std::max<std::size_t>(64, 4 * table_.size()), kEmpty);
    const std::vector<TaskId> known = std::exchange(hold_sets, {});
    for (TaskId one : known) hold_set(plan, one);
  }
  std::uint64_t hash = holds.size();
  for (const Hold& hold : holds) hash = (hash ^ hold.resource.value()) * 0x9e3779b97f4a7c15;
  const std::size_t mask = table_.size() - 1;
  for (std::size_t place = (hash >> 32) & mask;; place = (place + 1) & mask) {
    if (table_[place] == kEmpty) {
      table_[place] = static_cast<std::uint32_t>(hold_sets.size());
      hold_sets.push_back(task);
    } else if (!same_resources(plan.holds[hold_sets[table_[place]]], holds)) {
      continue;
    }
    return table_[place];
  }
}

void PreparedPlan::add_memory(const Plan& plan, TaskId task) {
  TaskRecord& record = tasks[task.value()];
  record.take = record.give = plan.workspace[task];
  for (BufferId buffer : plan.allocates[task]) {
    const Plan::Buffer& info = plan.buffers[buffer];
    if (info.device.value() != record.device) {
      if (!any_foreign) allocates_foreign.assign(plan.task_count(), 0);
      any_foreign = true;
      allocates_foreign[task.value()] = 1;
      continue;
    }
    record.take += info.bytes;
    if (plan.readers[buffer] == 0) record.give += info.bytes;
  }
}

void PreparedPlan::prepare(const Plan& plan) {
  find_streams(plan);
  hold_sets.clear();
  std::fill(table_.begin(), table_.end(), kEmpty);
  any_foreign = false;
  tasks.resize(plan.task_count());
  for (TaskId task : plan.task_ids()) {
    TaskRecord& record = tasks[task.value()];
    record.waiting_for = plan.predecessors[task];
    record.order = plan.priority[task];
    record.device = plan.device[task].value();
    const std::span<const Hold> holds = plan.holds[task];
    const std::uint32_t stream =
        holds.size() == 1 ? stream_of_[holds[0].resource.value()] : kShared;
    record.lane =
        stream < kShared ? stream : static_cast<std::uint32_t>(streams) + hold_set(plan, task);
    add_memory(plan, task);
  }
  buffers.resize(plan.buffers.size());
  for (BufferId buffer : id_range<BufferId>(plan.buffers.size())) {
    const Plan::Buffer& info = plan.buffers[buffer];
    buffers[buffer.value()] = {info.bytes, info.device.value(), plan.readers[buffer]};
  }
}

}  // namespace heterog::sim
