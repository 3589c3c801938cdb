// The fields that every file of shares has.
#include "cli/engines/shares_file.h"

#include <fmt/format.h>

#include "base/hash.h"
#include "explain/work.h"

namespace heterog::cli {

OrderedJson shares_file_json(const cost::Problem& problem, const std::string& planner,
                             const search::Samples& samples, const decide::Strategy& strategy,
                             const sim::Simulated& simulated) {
  const sim::SimResult& result = simulated.result;
  const std::int64_t batch = problem.batch / strategy.micro_batches;
  OrderedJson json = {
      {"format", "heterog-shares"},
      {"version", 1},
      {"planner", planner},
      {"graph", {{"name", problem.graph->name()}, {"hash", hash_text(problem.graph->hash())}}},
      {"cluster",
       {{"name", problem.cluster->name()}, {"hash", hash_text(problem.cluster->hash())}}},
      {"batch", batch},
      {"samples_per_rank", OrderedJson::array()},
      {"step_seconds", to_seconds(result.step)},
      {"samples_per_second", explain::samples_per_second(problem.batch, result.step)},
      {"feasible", result.feasible()},
      {"order", decide::order_policy_name(decide::dispatch_order(strategy))},
      {"bucket_bytes", strategy.bucket_bytes},
      {"devices", OrderedJson::array()}};
  for (DeviceId device : problem.cluster->device_ids()) {
    OrderedJson item = {
        {"name", problem.cluster->device(device).name},
        {"type", problem.cluster->type_of(device).name},
        {"rank", nullptr},
        {"samples", samples[device]},
        {"share", static_cast<double>(samples[device]) / static_cast<double>(batch)},
        {"busy_seconds", to_seconds(result.device_busy[device])},
        {"peak_bytes", result.peak_bytes[device]},
        {"capacity_bytes", simulated.plan.capacity[device]}};
    if (samples[device] > 0) {
      item["rank"] = json["samples_per_rank"].size();
      json["samples_per_rank"].push_back(samples[device]);
    }
    json["devices"].push_back(std::move(item));
  }
  if (strategy.micro_batches > 1) json["micro_batches"] = strategy.micro_batches;
  return json;
}

std::string micro_batches_text(std::int64_t micro_batches) {
  if (micro_batches == 1) return "";
  return fmt::format(
      "\n{} micro-batches a step: accumulate gradients over so many batches of the file\n",
      micro_batches);
}

}  // namespace heterog::cli
