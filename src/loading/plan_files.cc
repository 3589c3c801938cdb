// Reads a plan file and what it names.
#include "loading/plan_files.h"

#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "sim/improved_order.h"

namespace heterog::loading {

namespace {

compiler::OrderPolicy parse_order(const std::string& text) {
  const auto policy = compiler::find_order_policy(text);
  VALIDATE(policy && policy != compiler::OrderPolicy::kPriority, "--order: \"{}\" given; it is {}",
           printable(text), compiler::kPlainOrders);
  return *policy;
}

}  // namespace

sim::Simulated simulate_strategy(const cost::Problem& problem, const compiler::Strategy& strategy,
                                 const compiler::CompileOptions& options) {
  return sim::simulated_in_order(strategy, compiler::compile(problem, strategy, options));
}

LoadedPlan load_plan(const std::string& path, ProblemOptions options, const std::string& order) {
  const compiler::PlanHeader header = compiler::read_plan_header(path);
  VALIDATE(options.batch == 0 || options.batch == header.batch,
           "--batch: {} given, {} is for batch {}", options.batch, path, header.batch);
  options.batch = header.batch;
  options.max_groups = header.max_groups;
  LoadedPlan loaded;
  LoadedProblem read = load_problem_file(options);
  loaded.problem = std::move(read.problem);
  loaded.known = std::move(read.known);
  loaded.record = compiler::read_plan(path, *loaded.problem);
  if (!order.empty()) {
    compiler::set_plain_order(loaded.record.strategy, parse_order(order));
  }
  loaded.simulated =
      simulate_strategy(*loaded.problem, loaded.record.strategy, compile_options(options));
  return loaded;
}

}  // namespace heterog::loading
