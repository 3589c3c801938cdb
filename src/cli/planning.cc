// The common end of plan, finetune and simulate.
#include "cli/planning.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "decide/plan_io.h"
#include "explain/simulation.h"
#include "sim/trace_io.h"

namespace heterog::cli {

void write_trace(const std::string& path, const cost::Problem& problem,
                 const sim::Simulated& simulated) {
  if (path.empty()) return;
  const std::string trace = sim::chrome_trace(problem, simulated.plan, simulated.result);
  write_file(path, trace);
  logger().info("{}: trace written, {} bytes", printable(path, 400), trace.size());
}

void expect_fit(const cost::Problem& problem, const sim::Simulated& simulated) {
  if (simulated.result.feasible()) return;
  throw Error(ErrorKind::kInfeasible, "no plan fits in memory; in the closest one " +
                                          explain::out_of_memory_text(problem, simulated));
}

void write_plan_file(const PlanFile& file, const cost::Problem& problem,
                     const decide::Strategy& strategy, const sim::Simulated& simulated) {
  decide::PlanRecord record{.strategy = strategy,
                            .planner = file.planner,
                            .max_groups = file.max_groups,
                            .step_seconds = to_seconds(simulated.result.step),
                            .feasible = simulated.result.feasible(),
                            .peak_bytes = simulated.result.peak_bytes.raw()};
  decide::write_plan(file.path, record, problem);
  logger().info("{}: plan written, {} units", printable(file.path, 400), strategy.units.size());
}

}  // namespace heterog::cli
