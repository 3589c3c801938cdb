// Which devices a plan does without and why, and which it could do without: for plan, explain and
// shares.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/compile_options.h"
#include "cost/problem.h"
#include "decide/strategy.h"
#include "explain/json.h"
#include "explain/work.h"
#include "oracle/oracle.h"
#include "search/answers/devices_used.h"
#include "sim/simulator.h"

namespace heterog::cli {

struct DevicesUsed {
  std::vector<DeviceId> used;
  std::vector<DeviceId> unused;
  // The best plain data parallelism over all devices, where the plan leaves some out: what keeps it
  // busy for longest is why.
  struct Together {
    std::string name;
    sim::SimResult result;
    explain::Busiest busiest;
  };
  std::optional<Together> together;
  search::SingleDevice single;
  // Fewer devices that take no longer, or at most a hundredth longer.
  std::optional<search::FewerDevices> enough;
};

// Simulates a few strategies, which no planner counts.
DevicesUsed devices_used(oracle::Oracle& oracle, const decide::Strategy& strategy,
                         const sim::Simulated& simulated, const compiler::CompileOptions& options);

// A line for each of both that there is, with its end; empty where all devices are used and needed.
std::string devices_used_text(const cost::Problem& problem, const sim::Simulated& simulated,
                              const DevicesUsed& used);
// `unused_devices`, `all_devices`, `enough_devices` of --json.
explain::OrderedJson devices_used_json(const cost::Problem& problem, const DevicesUsed& used);

// "a/gpu0, a/gpu1, b/gpu0 and 5 more".
std::string names_text(const cost::Problem& problem, const std::vector<DeviceId>& devices);

}  // namespace heterog::cli
