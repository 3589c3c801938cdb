// Reads a plan file and what it names.
#include "loading/plan_files.h"

#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "sim/improved_order.h"

namespace heterog::loading {

namespace {

decide::OrderPolicy parse_order(const std::string& text) {
  const auto policy = decide::find_order_policy(text);
  VALIDATE(policy && policy != decide::OrderPolicy::kPriority, "--order: \"{}\" given; it is {}",
           printable(text), decide::kPlainOrders);
  return *policy;
}

}  // namespace

sim::Simulated simulate_strategy(const cost::Problem& problem, const decide::Strategy& strategy,
                                 const compiler::CompileOptions& options) {
  return sim::simulated_in_order(strategy, compiler::compile(problem, strategy, options));
}

LoadedPlan load_plan(const std::string& path, ProblemOptions options, const std::string& order) {
  const decide::PlanHeader header = decide::read_plan_header(path);
  VALIDATE(options.batch == 0 || options.batch == header.batch,
           "--batch: {} given, {} is for batch {}", options.batch, path, header.batch);
  options.batch = header.batch;
  options.max_groups = header.max_groups;
  VALIDATE(options.compress.empty() || compression_of(options) == header.compression,
           "--compress: {} given, {} was made for {}; plan again with it", options.compress, path,
           cost::compression_text(header.compression));
  options.compress = cost::compression_text(header.compression);
  LoadedPlan loaded;
  LoadedProblem read = load_problem_file(options);
  loaded.problem = std::move(read.problem);
  loaded.known = std::move(read.known);
  loaded.record = decide::read_plan(path, *loaded.problem);
  if (!order.empty()) {
    decide::set_plain_order(loaded.record.strategy, parse_order(order));
  }
  loaded.simulated =
      simulate_strategy(*loaded.problem, loaded.record.strategy, compile_options(options));
  return loaded;
}

}  // namespace heterog::loading
