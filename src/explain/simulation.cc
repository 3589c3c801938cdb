// Writes what was simulated as JSON and text.
#include "explain/simulation.h"

#include <fmt/format.h>

#include <algorithm>

#include "explain/amounts.h"
#include "explain/names.h"
#include "explain/table.h"
#include "explain/work.h"
#include "sim/bounds.h"
#include "sim/least_step.h"
#include "sim/memory.h"

namespace heterog::explain {

namespace {

// What an allocation is called and who makes it.
std::string held_name(const cost::Problem& problem, const compiler::Plan& plan,
                      const sim::HeldMemory& held) {
  if (held.tensor.valid()) return problem.graph->tensor(held.tensor).name;
  return "workspace of " + problem.graph->op(plan.op[held.maker]).name;
}
std::string maker_name(const cost::Problem& problem, const compiler::Plan& plan, TaskId task) {
  std::string name = task_name(problem, plan, task);
  if (plan.peer[task].valid()) name += " from " + problem.cluster->device(plan.peer[task]).name;
  return name;
}

constexpr std::size_t kLargestShown = 10;

OrderedJson memory_json(const cost::Problem& problem, const compiler::Plan& plan,
                        const sim::MemoryPeak& peak) {
  OrderedJson json = {{"at_seconds", to_seconds(peak.time)}, {"task", nullptr}};
  if (peak.task.valid()) json["task"] = task_name(problem, plan, peak.task);
  for (int i = 0; i < sim::kMemoryPurposeCount; ++i) {
    const auto purpose = static_cast<sim::MemoryPurpose>(i);
    json[std::string(sim::memory_purpose_name(purpose)) + "_bytes"] = peak.of(purpose);
  }
  json["largest"] = OrderedJson::array();
  for (const sim::HeldMemory& held : peak.held) {
    if (json["largest"].size() == kLargestShown) break;
    json["largest"].push_back({{"name", held_name(problem, plan, held)},
                               {"bytes", held.bytes},
                               {"purpose", sim::memory_purpose_name(held.purpose)},
                               {"made_by", maker_name(problem, plan, held.maker)},
                               {"kept_until", task_name(problem, plan, held.until)}});
  }
  return json;
}

Bytes missing(const sim::Simulated& simulated, DeviceId device) {
  return std::max<Bytes>(0, simulated.result.peak_bytes[device] - simulated.plan.capacity[device]);
}

}  // namespace

OrderedJson simulation_json(const cost::Problem& problem, const sim::Simulated& simulated) {
  const sim::SimResult& result = simulated.result;
  OrderedJson json;
  json["step_seconds"] = to_seconds(result.step);
  json["samples_per_second"] = samples_per_second(problem.batch, simulated.result.step);
  json["feasible"] = result.feasible();
  json["tasks"] = simulated.plan.task_count();
  if (problem.compression.any()) {
    json["compression"] = cost::compression_text(problem.compression);
  }
  const auto peaks = sim::memory_peaks(problem, simulated.plan, result);
  const auto work = work_shares(problem, simulated.plan);
  json["devices"] = OrderedJson::array();
  for (DeviceId device : problem.cluster->place_ids()) {
    json["devices"].push_back({{"name", problem.cluster->device(device).name},
                               {"work_share", work[device]},
                               {"busy_seconds", to_seconds(result.device_busy[device])},
                               {"peak_bytes", result.peak_bytes[device]},
                               {"capacity_bytes", simulated.plan.capacity[device]},
                               {"memory", memory_json(problem, simulated.plan, peaks[device])}});
  }
  json["links"] = OrderedJson::array();
  for (LinkId link : id_range<LinkId>(problem.cluster->link_count())) {
    json["links"].push_back({{"name", problem.cluster->link(link).name},
                             {"busy_seconds", to_seconds(result.link_busy[link])},
                             {"bytes", result.link_bytes[link]}});
  }
  json["computation_seconds"] = to_seconds(result.computation);
  json["communication_seconds"] = to_seconds(result.communication);
  json["lower_bound_seconds"] = to_seconds(sim::bounds(simulated.plan).step());
  json["any_plan_bound_seconds"] = to_seconds(sim::least_step(problem));
  if (result.out_of_memory) {
    const sim::OutOfMemory& reason = *result.out_of_memory;
    json["reason"] = {{"device", problem.cluster->device(reason.device).name},
                      {"task", nullptr},
                      {"missing_bytes", reason.missing_bytes}};
    if (reason.task.valid()) {
      json["reason"]["task"] = task_name(problem, simulated.plan, reason.task);
    }
  }
  return json;
}

std::string simulation_text(const cost::Problem& problem, const sim::Simulated& simulated) {
  const sim::SimResult& result = simulated.result;
  const Nanoseconds least = std::max<Nanoseconds>(1, sim::least_step(problem));
  std::string text = fmt::format(
      "step {}   feasible {}   {} tasks\ncomputation {}   communication {}   no order of this plan "
      "under {}\nno plan at all under {}: at most {:.1f} % can be gained\n\n",
      step_text(problem.batch, result.step), result.feasible() ? "yes" : "no",
      simulated.plan.task_count(), milliseconds_text(to_seconds(result.computation)),
      milliseconds_text(to_seconds(result.communication)),
      milliseconds_text(to_seconds(sim::bounds(simulated.plan).step())),
      milliseconds_text(to_seconds(least)),
      100 * (to_seconds(result.step) / to_seconds(least) - 1));
  Table devices({"device", "type", "busy", "of step", "peak memory", "of", "used"});
  for (DeviceId device : problem.cluster->place_ids()) {
    const double busy = to_seconds(result.device_busy[device]);
    devices.add_row(
        {problem.cluster->device(device).name, problem.cluster->type_of(device).name,
         milliseconds_text(busy),
         fmt::format("{:.0f} %", result.step > 0 ? 100 * busy / to_seconds(result.step) : 0.0),
         gigabytes_text(result.peak_bytes[device]), gigabytes_text(simulated.plan.capacity[device]),
         fmt::format("{:.0f} %{}",
                     100 * static_cast<double>(result.peak_bytes[device]) /
                         static_cast<double>(simulated.plan.capacity[device]),
                     missing(simulated, device) > 0 ? " !" : "")});
  }
  text += devices.text() + "\n" + memory_text(problem, simulated);
  Table links({"link", "busy", "of step", "moved"});
  bool any = false;
  for (LinkId link : id_range<LinkId>(problem.cluster->link_count())) {
    if (result.link_bytes[link] == 0) continue;
    any = true;
    const double busy = to_seconds(result.link_busy[link]);
    links.add_row({problem.cluster->link(link).name, milliseconds_text(busy),
                   fmt::format("{:.0f} %", 100 * busy / to_seconds(result.step)),
                   gigabytes_text(result.link_bytes[link])});
  }
  if (any) text += "\n" + links.text();
  if (!result.feasible()) {
    text += "\nout of memory: " + out_of_memory_text(problem, simulated) + "\n";
  }
  return text;
}

std::string memory_text(const cost::Problem& problem, const sim::Simulated& simulated) {
  using sim::MemoryPurpose;
  const auto peaks = sim::memory_peaks(problem, simulated.plan, simulated.result);
  Table table({"memory at the peak", "parameters", "optimizer", "gradients", "activations", "other",
               "workspace", "reserve", "peak at", "largest tensor"});
  for (DeviceId device : problem.cluster->place_ids()) {
    const sim::MemoryPeak& peak = peaks[device];
    const auto cell = [&](MemoryPurpose purpose) { return gigabytes_text(peak.of(purpose)); };
    const Bytes other = peak.of(MemoryPurpose::kBuffers) + peak.of(MemoryPurpose::kTemporaries) +
                        peak.of(MemoryPurpose::kBuckets);
    table.add_row({problem.cluster->device(device).name, cell(MemoryPurpose::kParameters),
                   cell(MemoryPurpose::kOptimizerState), cell(MemoryPurpose::kGradients),
                   cell(MemoryPurpose::kActivations), gigabytes_text(other),
                   cell(MemoryPurpose::kWorkspace), cell(MemoryPurpose::kReserve),
                   milliseconds_text(to_seconds(peak.time)),
                   peak.held.empty()
                       ? "-"
                       : fmt::format("{} {}", held_name(problem, simulated.plan, peak.held.front()),
                                     gigabytes_text(peak.held.front().bytes))});
  }
  return table.text();
}

std::string out_of_memory_text(const cost::Problem& problem, const sim::Simulated& simulated) {
  constexpr std::size_t kNamed = 8;  // and the first that lacks anything
  std::string text;
  std::size_t named = 0, more = 0;
  Bytes most = 0;  // of those that are not named
  const auto& first = simulated.result.out_of_memory;
  for (DeviceId device : problem.cluster->place_ids()) {
    const bool is_first = first && first->device == device;
    if (missing(simulated, device) == 0 && !is_first) continue;
    if (!is_first && ++named > kNamed) {
      ++more;
      most = std::max(most, missing(simulated, device));
      continue;
    }
    if (!text.empty()) text += ", ";
    text +=
        fmt::format("{} lacks {} of {}", problem.cluster->device(device).name,
                    gigabytes_text(is_first ? first->missing_bytes : missing(simulated, device)),
                    gigabytes_text(simulated.plan.capacity[device]));
    if (!is_first) continue;
    text += first->task.valid()
                ? fmt::format(" (first at {})", task_name(problem, simulated.plan, first->task))
                : " (parameters and optimizer state alone do not fit)";
  }
  if (more > 0) text += fmt::format(", and {} more up to {}", more, gigabytes_text(most));
  return text;
}

Bytes missing_bytes(const sim::Simulated& simulated) {
  Bytes sum = 0;
  for (DeviceId device : id_range<DeviceId>(simulated.plan.device_count)) {
    sum += missing(simulated, device);
  }
  return sum;
}

}  // namespace heterog::explain
