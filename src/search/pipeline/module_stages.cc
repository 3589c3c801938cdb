// Stages of modules as strategies and back, and steps downhill.
#include "search/pipeline/module_stages.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/check.h"
#include "decide/pass_turns.h"
#include "search/pipeline/stage_strategy.h"

namespace heterog::search {
namespace {

using decide::Pattern;
using decide::Strategy;

// Whatever their units are.
bool same_decisions(const cost::Problem& problem, const Strategy& a, Strategy b) {
  for (OpId op : problem.graph->op_ids()) {
    if (a.units[decide::unit_of(problem, a, op)] != b.units[decide::unit_of(problem, b, op)]) {
      return false;
    }
  }
  b.unit_of_op = a.unit_of_op;
  b.units = a.units;
  return a == b;
}

}  // namespace

std::int64_t nearest_divisor(std::int64_t batch, std::int64_t wanted) {
  std::int64_t best = 1;
  for (std::int64_t i = 1; i <= batch; ++i) {
    if (batch % i == 0 && std::abs(i - wanted) <= std::abs(best - wanted)) best = i;
  }
  return best;
}

Staging staging(const cost::Problem& problem, const Chain& chain, Pattern pattern) {
  return {.pattern = pattern, .strict = in_line(problem, chain), .copies = Copies::kWhereRead};
}

std::vector<std::int64_t> at_least_one_each(const std::vector<double>& weights,
                                            std::int64_t samples) {
  EXPECT(samples >= std::ssize(weights));
  std::vector<decide::Replica> replicas;
  for (std::size_t i = 0; i < weights.size(); ++i) replicas.push_back({DeviceId(i), weights[i]});
  std::vector<std::int64_t> sizes(weights.size(), 0);
  for (const decide::Slice& slice : decide::slice_batch(replicas, samples)) {
    sizes[slice.device.value()] = slice.size();
  }
  for (std::int64_t& size : sizes) {
    if (size > 0) continue;
    --*std::ranges::max_element(sizes);
    size = 1;
  }
  return sizes;
}

std::optional<std::vector<std::int64_t>> replica_samples(const StageCosts& costs,
                                                         const std::vector<ModuleStage>& stages,
                                                         std::int64_t micro_batch) {
  const std::size_t replicas = stages.front().devices.size();
  if (micro_batch < static_cast<std::int64_t>(replicas)) return std::nullopt;
  std::vector<double> speeds(replicas, std::numeric_limits<double>::infinity());
  for (const ModuleStage& stage : stages) {
    for (std::size_t i = 0; i < replicas; ++i) {
      const double speed = costs.speed(stage.begin, stage.end, stage.devices[i], replicas);
      speeds[i] = std::min(speeds[i], speed);
    }
  }
  return at_least_one_each(speeds, micro_batch);
}

Strategy module_strategy(const cost::Problem& problem, const Chain& chain, const StageCosts& costs,
                         const ModulePipeline& pipeline) {
  Staging how = staging(problem, chain, pipeline.pattern);
  how.micro_batches = pipeline.micro_batches;
  if (replicas_of(pipeline) > 1) how.samples = pipeline.samples;
  return stage_strategy(problem, chain, costs, {pipeline.stages}, how);
}

bool has_turns(const ModulePipeline& pipeline) {
  return pipeline.pattern == Pattern::kForwardFirst ||
         pipeline.micro_batches >= static_cast<std::int64_t>(pipeline.stages.size());
}

std::vector<ModulePipeline> moved_boundaries(const ModulePipeline& pipeline, std::size_t links) {
  std::vector<ModulePipeline> moved;
  for (std::size_t i = 0; i + 1 < pipeline.stages.size(); ++i) {
    for (const bool back : {true, false}) {
      const ModuleStage& gives = pipeline.stages[back ? i : i + 1];
      if (gives.end - gives.begin <= links) continue;
      std::vector<ModuleStage>& stages = moved.emplace_back(pipeline).stages;
      stages[i].end = stages[i + 1].begin = back ? stages[i].end - links : stages[i].end + links;
    }
  }
  return moved;
}

void move_boundaries(BatchEvaluator& evaluator, const ModuleChain& modules, ModulePlan& plan) {
  const cost::Problem& problem = evaluator.problem();
  const Chain chain = chain_of(problem, modules);
  LayerTimes times(problem, chain);
  const StageCosts costs(times, plan.pipeline.micro_batches, false);
  plan.strategy = module_strategy(problem, chain, costs, plan.pipeline);
  plan.evaluation = evaluator.evaluate(plan.strategy).evaluation;
  // Every boundary one link back or forth; the best of these, as long as it is better.
  for (bool moved = true; moved && !evaluator.spent();) {
    moved = false;
    const std::vector<ModulePipeline> tried = moved_boundaries(plan.pipeline, 1);
    std::vector<Strategy> strategies;
    for (const ModulePipeline& one : tried) {
      strategies.push_back(module_strategy(problem, chain, costs, one));
    }
    if (strategies.empty()) break;
    const std::vector<Measured> measured = evaluator.evaluate(strategies);
    for (std::size_t i = 0; i < measured.size(); ++i) {
      if (!better(measured[i].evaluation, plan.evaluation)) continue;
      plan.pipeline = tried[i];
      plan.strategy = strategies[i];
      plan.evaluation = measured[i].evaluation;
      moved = true;
    }
  }
}

std::optional<ModulePipeline> exact_pipeline(const cost::Problem& problem, const Strategy& strategy,
                                             const ModuleChain& modules) {
  ModulePipeline pipeline{.micro_batches = strategy.micro_batches, .pattern = strategy.pattern};
  if (problem.batch % strategy.micro_batches != 0) return std::nullopt;
  if (strategy.pattern != Pattern::kForwardFirst &&
      strategy.pattern != Pattern::kOneForwardOneBackward) {
    return std::nullopt;
  }
  const Chain chain = chain_of(problem, modules);
  using Replicas = std::vector<decide::Replica>;
  std::vector<const Replicas*> of_link(modules.size(), nullptr);
  for (OpId op : forward_ops(problem)) {
    if (decide::same_everywhere(problem, op)) continue;
    const Replicas& replicas = strategy.units[decide::unit_of(problem, strategy, op)].replicas;
    const Replicas*& of_this = of_link[chain.layer_of[op]];
    if (of_this && *of_this != replicas) return std::nullopt;
    of_this = &replicas;
  }
  const Replicas* last = nullptr;
  for (std::size_t link = 0; link < of_link.size(); ++link) {
    if (of_link[link] && (!last || *of_link[link] != *last)) {
      pipeline.stages.push_back({.begin = last ? link : 0, .end = link, .devices = {}});
      for (const decide::Replica& one : *of_link[link]) {
        pipeline.stages.back().devices.push_back(one.device);
      }
      last = of_link[link];
    }
    if (!pipeline.stages.empty()) pipeline.stages.back().end = link + 1;
  }
  // A device has one stage, all stages have as many.
  std::vector<DeviceId> devices;
  for (const ModuleStage& stage : pipeline.stages) {
    if (stage.devices.size() != pipeline.stages.front().devices.size()) return std::nullopt;
    devices.insert(devices.end(), stage.devices.begin(), stage.devices.end());
  }
  std::ranges::sort(devices);
  if (std::ranges::adjacent_find(devices) != devices.end() || !last) return std::nullopt;
  pipeline.samples = {problem.batch / strategy.micro_batches};
  if (last->size() > 1) {
    pipeline.samples.clear();
    std::int64_t all = 0;
    for (const decide::Replica& one : *last) {  // as stage_strategy() weighs them
      if (one.weight > static_cast<double>(problem.batch)) return std::nullopt;
      pipeline.samples.push_back(static_cast<std::int64_t>(one.weight) / strategy.micro_batches);
      all += pipeline.samples.back();
    }
    if (all * strategy.micro_batches != problem.batch) return std::nullopt;
  }
  // What else there is to decide.
  if (pipeline.stages.size() < 2 || strategy.micro_batches < 2 || !has_turns(pipeline)) {
    return std::nullopt;
  }
  LayerTimes times(problem, chain);
  const StageCosts costs(times, pipeline.micro_batches, false);
  if (!same_decisions(problem, module_strategy(problem, chain, costs, pipeline), strategy)) {
    return std::nullopt;
  }
  return pipeline;
}

}  // namespace heterog::search
