// Pipelines of modules: against all that there are, and known again in a plan.
#include "search/pipeline/module_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "oracle/simulated_oracle.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

using decide::Pattern;

ModulePlan search(const cost::Problem& problem, const ModuleChain& modules, int threads = 2) {
  ThreadPool pool(threads);
  oracle::SimulatedOracle simulator(problem, pool);
  BatchEvaluator evaluator(simulator);
  auto found = search_modules(evaluator, modules);
  EXPECT_TRUE(found);
  return *std::move(found);
}

// Every choice of so many devices in every order, every cut, every micro-batch, both patterns.
std::vector<ModulePipeline> every_pipeline(const cost::Problem& problem, std::size_t links) {
  std::vector<ModulePipeline> all;
  const auto cut = [&](auto&& self, std::vector<ModuleStage> stages, std::set<DeviceId> used,
                       std::size_t begin) -> void {
    for (DeviceId device : problem.cluster->device_ids()) {
      if (used.contains(device)) continue;
      for (std::size_t end = begin + 1; end <= links; ++end) {
        auto more = stages;
        more.push_back({begin, end, device});
        auto now = used;
        now.insert(device);
        if (end < links) {
          self(self, more, now, end);
        } else if (more.size() > 1) {
          for (std::int64_t count = 2; count <= problem.batch; ++count) {
            if (problem.batch % count != 0) continue;
            for (Pattern pattern : {Pattern::kOneForwardOneBackward, Pattern::kForwardFirst}) {
              all.push_back({more, count, pattern});
              if (!has_turns(all.back())) all.pop_back();
            }
          }
        }
      }
    }
  };
  cut(cut, {}, {}, 0);
  return all;
}

decide::Strategy strategy_of(const cost::Problem& problem, const ModuleChain& modules,
                             const ModulePipeline& pipeline) {
  const Chain chain = chain_of(problem, modules);
  LayerTimes times(problem, chain);
  return module_strategy(problem, chain, StageCosts(times, pipeline.micro_batches, false),
                         pipeline);
}

TEST(ModuleSearch, FindsTheBestOfAllPipelines) {
  const auto problem = load_test_problem("bert_large24", "workstation-3090-4090", 12);
  ModuleChain modules = layer_chain(*problem->graph, module_chain(*problem->graph)).chain;
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  BatchEvaluator evaluator(simulator);
  std::optional<Evaluation> best;
  for (const ModulePipeline& one : every_pipeline(*problem, modules.size())) {
    const Evaluation found = evaluator.evaluate(strategy_of(*problem, modules, one)).evaluation;
    if (!best || better(found, *best)) best = found;
  }
  EXPECT_EQ(search(*problem, modules).evaluation.step, best->step);
}

// The best has the two V100 at both ends, which share the table of words.
TEST(ModuleSearch, FindsTheBestOfAllOnFourDevices) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 8);
  ModuleChain modules = layer_chain(*problem->graph, module_chain(*problem->graph)).chain;
  ModuleChain few;
  for (std::size_t i = 0; i < modules.size(); i += 5) few.links.push_back(modules.links[i]);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  BatchEvaluator evaluator(simulator);
  std::vector<decide::Strategy> strategies;
  for (const ModulePipeline& one : every_pipeline(*problem, few.size())) {
    strategies.push_back(strategy_of(*problem, few, one));
  }
  std::optional<Evaluation> best;
  for (const Measured& one : evaluator.evaluate(strategies)) {
    if (!best || better(one.evaluation, *best)) best = one.evaluation;
  }
  const ModulePlan found = search(*problem, few);
  EXPECT_TRUE(found.evaluation.feasible);
  EXPECT_EQ(found.evaluation.step, best->step);
}

TEST(ModuleSearch, DoesNotDependOnThreads) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 16);
  const ModuleChain modules = with_modules(*problem->graph, module_chain(*problem->graph));
  EXPECT_EQ(search(*problem, modules, 1).strategy, search(*problem, modules, 3).strategy);
}

TEST(ModuleSearch, PlansAreKnownAgainAndNothingElseIs) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 16);
  const ModuleChain modules = module_chain(*problem->graph);
  const ModulePlan found = search(*problem, modules);
  const auto known = exact_pipeline(*problem, found.strategy, modules);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->micro_batches, found.pipeline.micro_batches);
  ASSERT_EQ(known->stages.size(), found.pipeline.stages.size());
  for (std::size_t i = 0; i < known->stages.size(); ++i) {
    EXPECT_EQ(known->stages[i].end, found.pipeline.stages[i].end);
    EXPECT_EQ(known->stages[i].device, found.pipeline.stages[i].device);
  }
  // Of a chain with fewer boundaries, unless all of these stages begin at one of them.
  ModuleChain ends;
  ends.links = {modules.links.front(), modules.links.back()};
  EXPECT_FALSE(exact_pipeline(*problem, found.strategy, ends));
  const auto refused = [&](auto&& change) {
    decide::Strategy other = found.strategy;
    change(other);
    return !exact_pipeline(*problem, other, modules);
  };
  EXPECT_TRUE(refused([](auto& other) { other.pattern = Pattern::kZeroBubble; }));
  EXPECT_TRUE(refused([](auto& other) { other.strict = false; }));
  EXPECT_TRUE(refused([](auto& other) { other.units[UnitId(3)].recompute = true; }));
  EXPECT_TRUE(refused([](auto& other) { other.micro_batches = 5; }));
  EXPECT_TRUE(refused([&](auto& other) {
    std::swap(other.units[UnitId(0)], other.units[UnitId(modules.size() - 1)]);
  }));
}

TEST(ModuleSearch, EveryStageHasAModuleOfItsOwn) {
  for (const char* model : {"gnmt4", "resnet50", "bert_large24"}) {
    const auto problem = load_test_problem(model, "heterog-4gpu", 16);
    const ModuleChain modules = with_modules(*problem->graph, module_chain(*problem->graph));
    for (std::size_t i = 0; i < modules.size(); ++i) {
      EXPECT_FALSE(modules_of(*problem->graph, modules, i, i + 1).empty()) << model << " " << i;
    }
  }
}

}  // namespace
}  // namespace heterog::search
