// Sets a plan beside plain data parallelism on all devices, and beside itself on fewer.
#include "cli/answers/devices_used.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "explain/amounts.h"
#include "loading/plan_files.h"
#include "oracle/batch_evaluator.h"

namespace heterog::cli {

namespace {

using decide::Strategy;
using explain::milliseconds_text;
using explain::OrderedJson;

// What is busy for that part of a step is why it takes so long.
constexpr double kWhy = 0.5;

std::string together_text(const cost::Problem& problem, const sim::Simulated& simulated,
                          const DevicesUsed& used) {
  const DevicesUsed::Together& all = *used.together;
  std::string text =
      fmt::format("{} of {} devices do it. ", used.used.size(), problem.cluster->device_count());
  if (!all.result.feasible()) {
    return text + fmt::format("No plain data parallelism on all {} fits in memory.\n",
                              problem.cluster->device_count());
  }
  const double step = to_seconds(all.result.step);
  const double busy = to_seconds(all.busiest.busy);
  text += fmt::format("Plain data parallelism on all {} takes {} at best ({})",
                      problem.cluster->device_count(), milliseconds_text(step), all.name);
  if (all.result.step < simulated.result.step) return text + ", less than this plan.\n";
  const std::string name = explain::busiest_name(problem, all.busiest);
  return text + fmt::format("; {}{}, busy for {} of it.\n",
                            busy >= kWhy * step ? "the reason is " : "the busiest is ", name,
                            milliseconds_text(busy));
}

}  // namespace

std::string names_text(const cost::Problem& problem, const std::vector<DeviceId>& devices) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> names;
  for (DeviceId device : devices) {
    if (names.size() == kNamed && devices.size() > kNamed + 1) break;
    names.push_back(problem.cluster->device(device).name);
  }
  const std::size_t more = devices.size() - names.size();
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

DevicesUsed devices_used(oracle::Oracle& oracle, const Strategy& strategy,
                         const sim::Simulated& simulated, const compiler::CompileOptions& options) {
  const cost::Problem& problem = oracle.problem();
  DevicesUsed used;
  const auto work = explain::work_shares(problem, simulated.plan);
  for (DeviceId device : problem.cluster->device_ids()) {
    (work[device] > 0 ? used.used : used.unused).push_back(device);
  }
  oracle::BatchEvaluator evaluator(oracle);
  used.single = search::best_single(evaluator);
  if (!used.unused.empty() && used.used.size() > 0 && simulated.result.feasible()) {
    if (const auto best = search::best_together(oracle)) {
      sim::Simulated all = loading::simulate_strategy(problem, best->strategy, options);
      const explain::Busiest busiest = explain::busiest_of(problem, all.result);
      used.together = DevicesUsed::Together{best->name, std::move(all.result), busiest};
    }
  }
  used.enough = search::enough_devices(
      evaluator, strategy,
      {.step = simulated.result.step, .feasible = simulated.result.feasible()});
  return used;
}

std::string devices_used_text(const cost::Problem& problem, const sim::Simulated& simulated,
                              const DevicesUsed& used) {
  std::string text;
  if (used.together) text += together_text(problem, simulated, used);
  if (used.enough) {
    const Nanoseconds now = simulated.result.step, fewer = used.enough->evaluation.step;
    text += fmt::format("{} could do something else: without {} a step takes {} ({:+.1f} %).\n",
                        names_text(problem, used.enough->left_out),
                        used.enough->left_out.size() == 1 ? "it" : "them",
                        milliseconds_text(to_seconds(fewer)),
                        100 * (to_seconds(fewer) / to_seconds(now) - 1));
  }
  return text;
}

OrderedJson devices_used_json(const cost::Problem& problem, const DevicesUsed& used) {
  const auto names = [&](const std::vector<DeviceId>& devices) {
    OrderedJson list = OrderedJson::array();
    for (DeviceId device : devices) list.push_back(problem.cluster->device(device).name);
    return list;
  };
  OrderedJson json = {{"unused_devices", names(used.unused)},
                      {"all_devices", nullptr},
                      {"enough_devices", nullptr}};
  if (used.together) {
    const DevicesUsed::Together& all = *used.together;
    json["all_devices"] = {
        {"planner", all.name},
        {"step_seconds", to_seconds(all.result.step)},
        {"feasible", all.result.feasible()},
        {"busiest", all.busiest.link.valid()     ? problem.cluster->link(all.busiest.link).name
                    : all.busiest.device.valid() ? problem.cluster->device(all.busiest.device).name
                                                 : ""},
        {"busiest_seconds", to_seconds(all.busiest.busy)}};
  }
  if (used.enough) {
    json["enough_devices"] = {{"left_out", names(used.enough->left_out)},
                              {"step_seconds", to_seconds(used.enough->evaluation.step)}};
  }
  return json;
}

}  // namespace heterog::cli
