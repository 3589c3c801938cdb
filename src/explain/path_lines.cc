// Tells what each stretch of the critical path does, and what it waited for.
#include "explain/path_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "compiler/plan_text.h"
#include "explain/amounts.h"
#include "explain/names.h"

namespace heterog::explain {

namespace {

using compiler::Plan;
using compiler::TaskKind;
using sim::Cause;
using sim::Segment;

constexpr std::size_t kOpsNamed = 3;

class Teller {
 public:
  Teller(const cost::Problem& problem, const sim::Simulated& simulated,
         const Explanation& explanation)
      : problem_(problem), plan_(simulated.plan), path_(explanation.path) {}

  PathLine line(const sim::Stretch& stretch) const {
    const std::span<const Segment> segments =
        std::span(path_).subspan(stretch.first, stretch.last - stretch.first);
    return {.begin = stretch.begin,
            .length = stretch.length(),
            .what = stretch.mixed ? mixed(segments)
                    : moves(segments.front().task)
                        ? moving(segments)
                        : device_name(segments.front().task) + " " + computing(segments),
            .why = why(segments.front())};
  }

 private:
  bool moves(TaskId task) const { return compiler::is_communication(plan_.kind[task]); }
  std::string name(DeviceId device) const { return problem_.cluster->device(device).name; }
  std::string device_name(TaskId task) const { return name(plan_.device[task]); }
  std::string subject(TaskId task) const {
    return compiler::task_subject(plan_, *problem_.graph, task);
  }
  std::string way(TaskId task) const {
    if (plan_.peer[task].valid()) return name(plan_.peer[task]) + " > " + device_name(task);
    return fmt::format("{} devices", plan_.participants[task].size());
  }

  // "forward 120 tasks (addmm_3 4.1 ms, …)".
  std::string computing(std::span<const Segment> segments) const {
    std::vector<std::string> phases;
    std::vector<Segment> heaviest(segments.begin(), segments.end());
    for (const Segment& segment : segments) {
      const std::string phase = task_phase(problem_, plan_, segment.task);
      if (std::find(phases.begin(), phases.end(), phase) == phases.end()) phases.push_back(phase);
    }
    if (phases.size() > 3) phases = {"forward to update"};
    const std::size_t named = std::min(kOpsNamed, heaviest.size());
    std::partial_sort(heaviest.begin(), heaviest.begin() + static_cast<std::ptrdiff_t>(named),
                      heaviest.end(), [](const Segment& a, const Segment& b) {
                        const Nanoseconds length_a = a.end - a.begin, length_b = b.end - b.begin;
                        return length_a != length_b ? length_a > length_b : a.begin < b.begin;
                      });
    std::vector<std::string> names;
    for (std::size_t i = 0; i < named; ++i) {
      names.push_back(
          fmt::format("{} {}", subject(heaviest[i].task),
                      milliseconds_text(to_seconds(heaviest[i].end - heaviest[i].begin))));
    }
    const std::string what = fmt::format("{}", fmt::join(phases, ", "));
    if (segments.size() == 1) return fmt::format("{} {}", what, subject(segments.front().task));
    return fmt::format("{}: {} tasks, {}", what, segments.size(), fmt::join(names, ", "));
  }

  std::string moving(std::span<const Segment> segments) const {
    const TaskId first = segments.front().task;
    Bytes bytes = 0;
    for (const Segment& segment : segments) bytes += plan_.moved_bytes[segment.task];
    const std::string kind(compiler::task_kind_name(plan_.kind[first]));
    if (segments.size() == 1) {
      return fmt::format("{} of {}, {}, {}", kind, subject(first), way(first), bytes_text(bytes));
    }
    return fmt::format("{} × {}, {}, {}", segments.size(), kind, way(first), bytes_text(bytes));
  }

  std::string mixed(std::span<const Segment> segments) const {
    Nanoseconds computing = 0, moving = 0;
    std::map<DeviceId, Nanoseconds> where;
    for (const Segment& segment : segments) {
      const Nanoseconds length = segment.end - segment.begin;
      (moves(segment.task) ? moving : computing) += length;
      if (!moves(segment.task)) where[plan_.device[segment.task]] += length;
    }
    std::string text = fmt::format("{} tasks in turns: computing {}, moving {}", segments.size(),
                                   milliseconds_text(to_seconds(computing)),
                                   milliseconds_text(to_seconds(moving)));
    std::vector<std::pair<Nanoseconds, DeviceId>> devices;
    for (const auto& [device, time] : where) devices.emplace_back(-time, device);
    std::sort(devices.begin(), devices.end());
    if (!devices.empty()) text += ", mostly on " + name(devices.front().second);
    return text;
  }

  std::string why(const Segment& segment) const {
    if (!segment.waited_for.valid()) return "";
    const TaskId before = segment.waited_for;
    if (segment.cause == Cause::kInput) {
      if (compiler::is_collective(plan_.kind[segment.task]) && !moves(before)) {
        return fmt::format("the last to be there is {}", device_name(before));
      }
      if (moves(before))
        return fmt::format("needs what arrives by {}",
                           compiler::task_kind_name(plan_.kind[before]));
      return fmt::format("needs {} of {}", subject(before), device_name(before));
    }
    return fmt::format(
        "{} was taken by {} {}{}", resource_name(problem_, plan_, segment.resource),
        compiler::task_kind_name(plan_.kind[before]), subject(before),
        segment.cause == Cause::kResource ? " of higher priority" : ", there before it");
  }

  const cost::Problem& problem_;
  const Plan& plan_;
  const std::vector<Segment>& path_;
};

}  // namespace

std::vector<PathLine> path_lines(const cost::Problem& problem, const sim::Simulated& simulated,
                                 const Explanation& explanation, std::size_t most) {
  const Teller teller(problem, simulated, explanation);
  std::vector<PathLine> lines;
  for (const sim::Stretch& stretch : sim::fold_path(simulated.plan, explanation.path, most)) {
    lines.push_back(teller.line(stretch));
  }
  return lines;
}

}  // namespace heterog::explain
