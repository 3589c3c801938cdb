// Each engine's own search, over what it can say.
#include "cli/engines/engines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "search/answers/ddp_plan.h"
#include "search/pipeline/module_search.h"

namespace heterog::cli {

void expect_engine(std::string_view option, std::string_view engine) {
  VALIDATE(
      engine != "fsdp2",
      "{}: fsdp2 given, whose ranks hold parts of each parameter, gather a layer before each of "
      "its passes and scatter its gradients: no plan says that, so neither step nor memory can "
      "be predicted; expected heterog.auto_shares in the script, which measures, or one of {}",
      option, fmt::join(kEngines, ", "));
  VALIDATE(std::ranges::find(kEngines, engine) != kEngines.end(), "{}: \"{}\" given; expected {}",
           option, printable(std::string(engine)), fmt::join(kEngines, ", "));
}

search::ModuleChain modules_for(std::string_view engine, const graph::ModelGraph& graph) {
  const search::ModuleChain modules = search::module_chain(graph);
  // Of the others, the embedding and what follows the layers belong to the first and last stage.
  if (engine != "torch-pipelining") return search::layer_chain(graph, modules).chain;
  return search::with_modules(graph, modules);
}

search::PlannerResult plan_for(std::string_view engine, search::BatchEvaluator& evaluator) {
  search::PlannerResult found;
  if (engine == "ddp") {
    search::DdpPlan plan = search::search_ddp(evaluator).best;
    found = {.strategy = std::move(plan.strategy), .evaluation = plan.evaluation};
  } else {
    const auto modules = modules_for(engine, *evaluator.problem().graph);
    auto plan = search::search_modules(evaluator, modules);
    if (!plan) {
      throw Error(ErrorKind::kInfeasible,
                  fmt::format("no plan for {} fits in memory: no stages of one device each do, in "
                              "any number of micro-batches",
                              engine));
    }
    found = {.strategy = std::move(plan->strategy), .evaluation = plan->evaluation};
  }
  found.evaluations = evaluator.evaluations();
  found.refused = evaluator.refused();
  found.found_by = fmt::format("for {}", engine);
  return found;
}

}  // namespace heterog::cli
