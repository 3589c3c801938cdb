// Each engine's own search, over what it can say.
#include "cli/engines/engines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "cli/output.h"
#include "search/answers/ddp_plan.h"
#include "search/answers/fsdp2_plan.h"
#include "search/pipeline/module_search.h"

namespace heterog::cli {

void expect_engine(std::string_view option, std::string_view engine) {
  VALIDATE(std::ranges::find(kEngines, engine) != kEngines.end(), "{}: \"{}\" given; expected {}",
           option, printable(std::string(engine)), fmt::join(kEngines, ", "));
}

search::ModuleChain modules_for(std::string_view engine, const graph::ModelGraph& graph) {
  const search::ModuleChain modules = search::module_chain(graph);
  // Of the others, the embedding and what follows the layers belong to the first and last stage.
  if (engine != "torch-pipelining") return search::layer_chain(graph, modules).chain;
  return search::with_modules(graph, modules);
}

bool runs_replicas(std::string_view engine) { return engine == "torch-pipelining"; }

search::PlannerResult plan_for(std::string_view engine, search::BatchEvaluator& evaluator) {
  search::PlannerResult found;
  if (engine == "ddp" || engine == "fsdp2") {
    const bool in_shards = engine == "fsdp2";
    if (in_shards) search::check_for_fsdp2(evaluator.problem());
    search::DdpPlan plan = search::search_ddp(evaluator, {.in_shards = in_shards}).best;
    if (in_shards) expect_fsdp2_fits(plan.evaluation);
    found = {.strategy = std::move(plan.strategy), .evaluation = plan.evaluation};
  } else {
    const auto modules = modules_for(engine, *evaluator.problem().graph);
    const bool replicas = runs_replicas(engine);
    auto plan = search::search_modules(evaluator, modules, {.replicas = replicas});
    if (!plan) {
      throw Error(ErrorKind::kInfeasible,
                  fmt::format("no plan for {} fits in memory: no stages of {} each do, in any "
                              "number of micro-batches",
                              engine, replicas ? "as many devices" : "one device"));
    }
    found = {.strategy = std::move(plan->strategy), .evaluation = plan->evaluation};
  }
  found.evaluations = evaluator.evaluations();
  found.refused = evaluator.refused();
  found.found_by = fmt::format("for {}", engine);
  return found;
}

void expect_fsdp2_fits(const oracle::Evaluation& evaluation) {
  if (evaluation.feasible) return;
  throw Error(ErrorKind::kInfeasible,
              fmt::format("no plan for fsdp2 fits in memory: with parameters that stay whole from "
                          "the forward to the backward pass (reshard_after_forward=False), and "
                          "each rank's rows of them, all devices together lack {}",
                          gigabytes_text(evaluation.missing_bytes)));
}

}  // namespace heterog::cli
