// Words a plan for whoever asked for it; `--verbose` has the tables.
#include "cli/answers/plan_screen.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/output.h"
#include "explain/gradients.h"
#include "explain/simulation.h"
#include "sim/bounds.h"
#include "sim/least_step.h"

namespace heterog::cli {

namespace {

// Rows of devices, or else of types of device.
constexpr std::size_t kDeviceRows = 8;

std::string milliseconds(Nanoseconds time) { return milliseconds_text(to_seconds(time)); }

// The best of all baselines, and one device alone.
std::string gain_text(const PlanScreen& screen) {
  const search::BaselineResult* best = nullptr;
  for (const search::BaselineResult& one : screen.found.baselines) {
    if (best == nullptr || oracle::better(one.evaluation, best->evaluation)) best = &one;
  }
  const bool fits = screen.simulated.result.feasible();
  const auto over = [&](Nanoseconds step) {
    return speedup_text(to_seconds(step), to_seconds(screen.simulated.result.step)) + " over ";
  };
  std::string text;
  const bool alone = best != nullptr && best->name == "single";
  if (best != nullptr && !alone) {
    text = best->evaluation.feasible ? fmt::format("{}the best baseline, {} ({}); ",
                                                   fits ? over(best->evaluation.step) : "",
                                                   best->name, milliseconds(best->evaluation.step))
                                     : "no baseline fits in memory; ";
  }
  const Nanoseconds single = screen.used.single.evaluation.step;
  if (!screen.used.single.evaluation.feasible) return text + "no device holds it alone\n";
  return text + fmt::format("{}{}{} alone ({})\n", fits ? over(single) : "",
                            alone ? "the best baseline, " : "",
                            screen.problem.cluster->device(screen.used.single.device).name,
                            milliseconds(single));
}

std::string memory_line(const PlanScreen& screen) {
  const sim::Simulated& simulated = screen.simulated;
  if (!simulated.result.feasible()) {
    return fmt::format("does not fit: all devices together lack {}\n",
                       gigabytes_text(explain::missing_bytes(simulated)));
  }
  DeviceId fullest;
  double most = -1;
  for (DeviceId device : screen.problem.cluster->place_ids()) {
    const double part = static_cast<double>(simulated.result.peak_bytes[device]) /
                        static_cast<double>(simulated.plan.capacity[device]);
    if (part <= most) continue;
    most = part;
    fullest = device;
  }
  return fmt::format("fits; the fullest is {} with {} of {}, {:.0f} %\n",
                     screen.problem.cluster->device(fullest).name,
                     gigabytes_text(simulated.result.peak_bytes[fullest]),
                     gigabytes_text(simulated.plan.capacity[fullest]), 100 * most);
}

std::string range_text(double least, double most) {
  const std::string low = fmt::format("{:.1f}", 100 * least),
                    high = fmt::format("{:.1f}", 100 * most);
  return low == high ? low + " %" : fmt::format("{} to {} %", low, high);
}

// Devices that the plan uses: each, or where there are many, those of a type together.
std::string devices_table(const PlanScreen& screen) {
  const cost::Problem& problem = screen.problem;
  const sim::SimResult& result = screen.simulated.result;
  const auto work = explain::work_shares(problem, screen.simulated.plan);
  const auto of_step = [&](DeviceId device) {
    return to_seconds(result.device_busy[device]) /
           to_seconds(std::max<Nanoseconds>(1, result.step));
  };
  const bool each = screen.used.used.size() <= kDeviceRows;
  Table table({"device", "type", each ? "of the work" : "of the work, each", "busy", "memory"});
  std::vector<std::vector<DeviceId>> rows;
  for (DeviceId device : screen.used.used) {
    const auto same = [&](const std::vector<DeviceId>& row) {
      return problem.cluster->device(row.front()).type == problem.cluster->device(device).type;
    };
    const auto row = each ? rows.end() : std::ranges::find_if(rows, same);
    if (row == rows.end()) {
      rows.push_back({device});
    } else {
      row->push_back(device);
    }
  }
  for (std::size_t i = 0; i < std::min(rows.size(), kDeviceRows); ++i) {
    const auto least_and_most = [&](auto&& figure) {
      const auto [least, most] = std::ranges::minmax(rows[i], {}, figure);
      return std::pair(figure(least), figure(most));
    };
    const auto [least, most] = least_and_most([&](DeviceId device) { return work[device]; });
    const auto [idlest, busiest] = least_and_most(of_step);
    const auto [emptiest, fullest] =
        least_and_most([&](DeviceId device) { return result.peak_bytes[device]; });
    table.add_row({each ? problem.cluster->device(rows[i].front()).name
                        : fmt::format("{} devices", rows[i].size()),
                   problem.cluster->type_of(rows[i].front()).name, range_text(least, most),
                   idlest == busiest
                       ? fmt::format("{:.0f} %", 100 * busiest)
                       : fmt::format("{:.0f} to {:.0f} %", 100 * idlest, 100 * busiest),
                   gigabytes_text(fullest)});
  }
  std::string text = table.text();
  if (rows.size() > kDeviceRows) {
    text += fmt::format("and {} more types of device\n", rows.size() - kDeviceRows);
  }
  return text;
}

}  // namespace

std::string plan_screen(const PlanScreen& screen) {
  const cost::Problem& problem = screen.problem;
  const sim::SimResult& result = screen.simulated.result;
  std::string text =
      fmt::format("{} on {}, batch {}: step {}\n\n", problem.graph->name(), problem.cluster->name(),
                  problem.batch, explain::step_text(problem.batch, result.step));
  text += "gain       " + gain_text(screen);
  text += fmt::format("bound      no order of this plan is under {}, no plan at all under {}\n",
                      milliseconds(sim::bounds(screen.simulated.plan).step()),
                      milliseconds(sim::least_step(problem)));
  const explain::Busiest busiest = explain::busiest_of(problem, result);
  text += fmt::format(
      "busiest    {}, {:.0f} % of the step\n", explain::busiest_name(problem, busiest),
      100 * to_seconds(busiest.busy) / to_seconds(std::max<Nanoseconds>(1, result.step)));
  text += "memory     " + memory_line(screen);
  text += "gradients  " + explain::gradients_text(problem, screen.found.strategy) + "\n";
  if (screen.bfloat16) text += bfloat16_line(*screen.bfloat16);
  text += fmt::format("found by   {}, {} plans simulated in {:.2f} s\n\n", screen.found.found_by,
                      screen.found.evaluations, screen.plan_seconds);
  text += devices_table(screen);
  return text + devices_used_text(problem, screen.simulated, screen.used);
}

}  // namespace heterog::cli
