// Adds up a plan's tasks.
#include "explain/work.h"

#include <fmt/format.h>

#include <algorithm>

#include "explain/amounts.h"

namespace heterog::explain {

double samples_per_second(std::int64_t batch, Nanoseconds step) {
  return static_cast<double>(batch) / to_seconds(std::max<Nanoseconds>(1, step));
}

std::string rate_text(std::int64_t batch, Nanoseconds step) {
  const double rate = samples_per_second(batch, step);
  return fmt::format("{:.{}f} samples/s", rate, rate < 10 ? 2 : rate < 100 ? 1 : 0);
}

std::string step_text(std::int64_t batch, Nanoseconds step) {
  return fmt::format("{}, {}", milliseconds_text(to_seconds(step)), rate_text(batch, step));
}

IdVector<DeviceId, double> work_shares(const cost::Problem& problem, const compiler::Plan& plan) {
  IdVector<DeviceId, double> work(problem.cluster->place_count(), 0.0);
  double sum = 0;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != compiler::TaskKind::kCompute) continue;
    const double part = problem.costs.mean_seconds(plan.op[task]) *
                        static_cast<double>(plan.end[task] - plan.begin[task]);
    work[plan.device[task]] += part;
    sum += part;
  }
  for (double& part : work) part /= sum > 0 ? sum : 1;
  return work;
}

Busiest busiest_of(const cost::Problem& problem, const sim::SimResult& result) {
  Busiest busiest;
  for (DeviceId device : problem.cluster->place_ids()) {
    if (result.device_busy[device] <= busiest.busy) continue;
    busiest = {.device = device, .link = {}, .busy = result.device_busy[device]};
  }
  for (LinkId link : id_range<LinkId>(problem.cluster->link_count())) {
    if (result.link_busy[link] <= busiest.busy) continue;
    busiest = {.device = {}, .link = link, .busy = result.link_busy[link]};
  }
  return busiest;
}

std::string busiest_name(const cost::Problem& problem, const Busiest& busiest) {
  if (busiest.link.valid()) {
    const cluster::Link& link = problem.cluster->link(busiest.link);
    return fmt::format("{} ({:.3g} GB/s)", link.name, link.bytes_per_second * 1e-9);
  }
  if (!busiest.device.valid()) return "nothing";
  return fmt::format("{} ({})", problem.cluster->device(busiest.device).name,
                     problem.cluster->type_of(busiest.device).name);
}

}  // namespace heterog::explain
