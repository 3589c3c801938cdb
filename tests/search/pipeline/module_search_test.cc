// Pipelines of modules: against all that there are, and known again in a plan.
#include "search/pipeline/module_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/rng.h"
#include "decide/micro_batches.h"
#include "oracle/simulated_oracle.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

using decide::Pattern;

ModulePlan search(const cost::Problem& problem, const ModuleChain& modules,
                  const ModuleSearch& options = {}, int threads = 2) {
  ThreadPool pool(threads);
  oracle::SimulatedOracle simulator(problem, pool);
  BatchEvaluator evaluator(simulator);
  auto found = search_modules(evaluator, modules, options);
  EXPECT_TRUE(found);
  return *std::move(found);
}

// Samples of a micro-batch in every way, one at least for each of so many replicas.
std::vector<std::vector<std::int64_t>> every_share(std::int64_t samples, std::size_t replicas) {
  if (replicas == 1) return {{samples}};
  std::vector<std::vector<std::int64_t>> all;
  for (std::int64_t first = 1; first < samples; ++first) {
    for (std::vector<std::int64_t>& rest : every_share(samples - first, replicas - 1)) {
      all.emplace_back(1, first).insert(all.back().end(), rest.begin(), rest.end());
    }
  }
  return all;
}

// Every two stages of two of the four devices; of devices that are alike, the first first.
std::vector<ModulePipeline> every_pair(const cost::Problem& problem, std::size_t links) {
  std::vector<ModulePipeline> all;
  std::vector<DeviceId> devices;
  for (DeviceId device : problem.cluster->device_ids()) devices.push_back(device);
  EXPECT_EQ(devices.size(), 4u);
  std::set<std::vector<DeviceTypeId>> known;
  do {
    std::vector<DeviceTypeId> types;
    for (DeviceId device : devices) types.push_back(problem.cluster->device(device).type);
    if (!known.insert(types).second) continue;
    for (std::size_t cut = 1; cut < links; ++cut) {
      for (std::int64_t count = 2; count <= problem.batch; ++count) {
        if (problem.batch % count != 0) continue;
        for (const auto& samples : every_share(problem.batch / count, 2)) {
          for (Pattern pattern : {Pattern::kOneForwardOneBackward, Pattern::kForwardFirst}) {
            all.push_back(
                {{{0, cut, {devices[0], devices[1]}}, {cut, links, {devices[2], devices[3]}}},
                 samples,
                 count,
                 pattern});
          }
        }
      }
    }
  } while (std::ranges::next_permutation(devices).found);
  return all;
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
        more.push_back({begin, end, {device}});
        auto now = used;
        now.insert(device);
        if (end < links) {
          self(self, more, now, end);
        } else if (more.size() > 1) {
          for (std::int64_t count = 2; count <= problem.batch; ++count) {
            if (problem.batch % count != 0) continue;
            for (Pattern pattern : {Pattern::kOneForwardOneBackward, Pattern::kForwardFirst}) {
              all.push_back({more, {problem.batch / count}, count, pattern});
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

// Two devices a stage are faster than one there.
TEST(ModuleSearch, FindsTheBestOfAllWithTwoDevicesAStage) {
  const auto problem = load_test_problem("vgg19", "heterog-4gpu", 32);
  const ModuleChain modules = with_modules(*problem->graph, module_chain(*problem->graph));
  ModuleChain few;
  for (std::size_t i = 0; i < modules.size(); i += 7) few.links.push_back(modules.links[i]);
  ThreadPool pool(2);
  oracle::SimulatedOracle simulator(*problem, pool);
  BatchEvaluator evaluator(simulator);
  std::vector<decide::Strategy> strategies;
  for (const ModulePipeline& one : every_pair(*problem, few.size())) {
    strategies.push_back(strategy_of(*problem, few, one));
  }
  std::optional<Evaluation> best;
  for (const Measured& one : evaluator.evaluate(strategies)) {
    if (!best || better(one.evaluation, *best)) best = one.evaluation;
  }
  const ModulePlan found = search(*problem, few, {.replicas = true});
  EXPECT_EQ(replicas_of(found.pipeline), 2u);
  EXPECT_EQ(found.evaluation.step, best->step);
  EXPECT_LT(found.evaluation.step, search(*problem, few).evaluation.step);
}

// Each micro-batch, in every stage, in the order of the replicas.
TEST(ModuleSearch, ReplicasHaveTheirSamplesOfEveryMicroBatch) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu", 24);
  const ModuleChain modules = module_chain(*problem->graph);
  Rng rng(3);
  for (int round = 0; round < 20; ++round) {
    const std::size_t replicas = 2 + rng.below(2), stages = 2 + rng.below(8 / replicas - 1);
    ModulePipeline pipeline{
        .stages = {}, .samples = {}, .micro_batches = std::array{2, 4, 6}[rng.below(3)]};
    std::vector<DeviceId> devices;
    for (DeviceId device : problem->cluster->device_ids()) devices.push_back(device);
    for (std::size_t i = devices.size(); i > 1; --i)
      std::swap(devices[i - 1], devices[rng.below(i)]);
    std::size_t at = 0;
    for (std::size_t s = 0; s < stages; ++s) {
      const std::size_t end = s + 1 == stages ? modules.size() : (s + 1) * modules.size() / stages;
      pipeline.stages.push_back({at, end, {}});
      for (std::size_t i = 0; i < replicas; ++i) {
        pipeline.stages.back().devices.push_back(devices[s * replicas + i]);
      }
      at = end;
    }
    std::vector<double> weights;
    for (std::size_t i = 0; i < replicas; ++i)
      weights.push_back(1 + static_cast<double>(rng.below(3)));
    pipeline.samples = at_least_one_each(weights, 24 / pipeline.micro_batches);
    if (!has_turns(pipeline)) pipeline.pattern = Pattern::kForwardFirst;
    const decide::Strategy strategy = strategy_of(*problem, modules, pipeline);
    const auto slices = decide::slices_of(strategy, strategy.units[UnitId(0)], 24);
    ASSERT_EQ(slices.size(), replicas * static_cast<std::size_t>(pipeline.micro_batches));
    for (std::size_t i = 0; i < slices.size(); ++i) {
      EXPECT_EQ(slices[i].size(), pipeline.samples[i % replicas]);
      EXPECT_EQ(slices[i].device, pipeline.stages[0].devices[i % replicas]);
    }
    const auto known = exact_pipeline(*problem, strategy, modules);
    ASSERT_TRUE(known);
    EXPECT_EQ(known->stages, pipeline.stages);
    EXPECT_EQ(known->samples, pipeline.samples);
    decide::Strategy other = strategy;
    for (auto& unit : other.units) unit.replicas.front().weight += 1;
    EXPECT_FALSE(exact_pipeline(*problem, other, modules));
    other = strategy;
    std::swap(other.units[UnitId(0)].replicas[0].device, other.units[UnitId(0)].replicas[1].device);
    EXPECT_FALSE(exact_pipeline(*problem, other, modules));
  }
}

TEST(ModuleSearch, SharesAreByWeightButOneEachAtTheLeast) {
  using Shares = std::vector<std::int64_t>;
  EXPECT_EQ(at_least_one_each({3, 1}, 8), (Shares{6, 2}));
  EXPECT_EQ(at_least_one_each({100, 1, 1}, 6), (Shares{4, 1, 1}));
  EXPECT_EQ(at_least_one_each({0, 5}, 2), (Shares{1, 1}));
}

TEST(ModuleSearch, DoesNotDependOnThreads) {
  const auto problem = load_test_problem("vgg19", "heterog-4gpu", 32);
  const ModuleChain modules = with_modules(*problem->graph, module_chain(*problem->graph));
  const ModuleSearch options{.replicas = true};
  EXPECT_EQ(search(*problem, modules, options, 1).strategy,
            search(*problem, modules, options, 3).strategy);
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
    EXPECT_EQ(known->stages[i].devices, found.pipeline.stages[i].devices);
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
