// Writes an explanation as text, the longest of each kind first and the rest left out.
#include "explain/explanation_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "explain/amounts.h"
#include "explain/path_lines.h"
#include "explain/table.h"

namespace heterog::explain {

namespace {

constexpr std::size_t kGroupLines = 6;
constexpr std::size_t kResourceLines = 6;
constexpr std::size_t kUpgradeLines = 6;

std::string share_text(Nanoseconds part, Nanoseconds whole) {
  return fmt::format(
      "{:.0f} %", whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
}

std::string bounds_text(const sim::Simulated& simulated, const Explanation& explanation) {
  const sim::Bounds& bounds = explanation.bounds;
  const Nanoseconds step = simulated.result.step;
  const auto over = [&](Nanoseconds bound) {
    return fmt::format("{} ({} of the step)", milliseconds_text(to_seconds(bound)),
                       share_text(bound, step));
  };
  return fmt::format(
      "no order of this plan is under {}: its longest chain {}, its busiest device {}, its busiest "
      "link {}, collectives that exclude one another {}, one resource at a time {}, a stream and "
      "what it feeds {}\nno plan at all is under {}\n",
      over(bounds.step()), milliseconds_text(to_seconds(bounds.chain)),
      milliseconds_text(to_seconds(bounds.stream)), milliseconds_text(to_seconds(bounds.link)),
      milliseconds_text(to_seconds(bounds.collectives)),
      milliseconds_text(to_seconds(bounds.one_machine)),
      milliseconds_text(to_seconds(bounds.two_machines)), over(explanation.any_plan));
}

std::string path_text(const cost::Problem& problem, const sim::Simulated& simulated,
                      const Explanation& explanation) {
  std::string text = fmt::format("critical path: {} tasks\n", explanation.path.size());
  for (const PathLine& line : path_lines(problem, simulated, explanation)) {
    text += fmt::format("{:>11} {:>11}  {}\n", milliseconds_text(to_seconds(line.begin)),
                        "+" + milliseconds_text(to_seconds(line.length)), line.what);
    if (!line.why.empty()) text += fmt::format("{:>24} {}\n", "<-", line.why);
  }
  return text;
}

std::string times_text(const cost::Problem& problem, const sim::Simulated& simulated,
                       const Explanation& explanation) {
  const Nanoseconds step = simulated.result.step;
  Table table({"device", "computes", "idle: on its way", "queued", "not made yet", "nothing left",
               "waits most for"});
  for (DeviceId device : problem.cluster->place_ids()) {
    const sim::DeviceTime& time = explanation.times[device];
    const DeviceId other = straggler(time);
    table.add_row({problem.cluster->device(device).name, share_text(time.computing, step),
                   share_text(time.moving, step), share_text(time.queued, step),
                   share_text(time.waiting, step), share_text(time.done, step),
                   other.valid() ? problem.cluster->device(other).name : "-"});
  }
  return table.text();
}

std::string pipeline_text(const cost::Problem& problem, const sim::Simulated& simulated,
                          const PipelineTime& pipeline) {
  const Nanoseconds step = simulated.result.step;
  std::string text = fmt::format(
      "pipeline of {} stages, {} micro-batches: stage {} computes longest; one micro-batch more "
      "would "
      "save about {} ({} of the step), if it computes as fast on fewer samples\n",
      pipeline.stages.size(), pipeline.micro_batches, pipeline.slowest + 1,
      milliseconds_text(to_seconds(pipeline.one_more_saves)),
      share_text(pipeline.one_more_saves, step));
  Table table({"stage", "computes", "idle: fills", "bubbles", "drains", "devices"});
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
    const StageTime& stage = pipeline.stages[i];
    std::vector<std::string> names;
    for (DeviceId device : stage.devices) names.push_back(problem.cluster->device(device).name);
    table.add_row({std::to_string(i + 1), share_text(stage.computes, step),
                   share_text(stage.fills, step), share_text(stage.bubbles, step),
                   share_text(stage.drains, step), fmt::format("{}", fmt::join(names, ", "))});
  }
  return text + table.text();
}

}  // namespace

std::string explanation_text(const cost::Problem& problem, const sim::Simulated& simulated,
                             const Explanation& explanation) {
  const Nanoseconds step = simulated.result.step;
  std::string text = bounds_text(simulated, explanation) + "\n" +
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
  if (explanation.pipeline) {
    text += pipeline_text(problem, simulated, *explanation.pipeline) + "\n";
  }
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
    const WhatIf& what = explanation.upgrades[i];
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

}  // namespace heterog::explain
