// Work of every device by the strategy's layout, boundaries by its sums, then steps downhill.
#include "search/pipeline/module_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "decide/layout.h"
#include "decide/pass_turns.h"
#include "search/pipeline/stage_strategy.h"

namespace heterog::search {
namespace {

using decide::Pattern;
using decide::Strategy;

// What a device does of the forward pass, in mean seconds of ops on the whole batch.
struct DeviceWork {
  DeviceId device;
  double seconds = 0;
  double place = 0;  // of the ops that it runs, in the mean, weighted by them
};

// Of those that do any, in the order in which the forward pass goes through them.
std::vector<DeviceWork> work_of(const cost::Problem& problem, const decide::Layout& layout) {
  std::vector<DeviceWork> work;
  for (DeviceId device : problem.cluster->device_ids()) work.push_back({device});
  double before = 0;
  for (OpId op : forward_ops(problem)) {
    const double seconds = problem.costs.mean_seconds(op);
    before += seconds;
    if (decide::same_everywhere(problem, op)) continue;
    double samples = 0;
    for (const decide::Slice& slice : layout.op_slices(op)) {
      samples += static_cast<double>(slice.size());
    }
    for (const decide::Slice& slice : layout.op_slices(op)) {
      DeviceWork& one = work[slice.device.value()];
      const double part = seconds * static_cast<double>(slice.size()) / samples;
      one.seconds += part;
      one.place += part * before;
    }
  }
  std::erase_if(work, [](const DeviceWork& one) { return one.seconds <= 0; });
  for (DeviceWork& one : work) one.place /= one.seconds;
  std::ranges::stable_sort(work, {}, &DeviceWork::place);
  return work;
}

// Boundaries where the work before them is nearest to that of the devices before them.
std::vector<ModuleStage> stages_by_work(const std::vector<double>& links,
                                        const std::vector<DeviceWork>& devices) {
  std::vector<ModuleStage> stages;
  double of_devices = 0, of_links = 0;
  for (const DeviceWork& one : devices) of_devices += one.seconds;
  for (double seconds : links) of_links += seconds;
  std::size_t at = 0;
  double done = 0, wanted = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::size_t begin = at;
    const std::size_t most = links.size() - (devices.size() - 1 - i);
    wanted += devices[i].seconds / of_devices * of_links;
    do {
      done += links[at++];
    } while (at < most && (i + 1 == devices.size() || done + links[at] / 2 < wanted));
    stages.push_back({begin, at, devices[i].device});
  }
  return stages;
}

std::vector<std::string> changes_of(const cost::Problem& problem, const Strategy& strategy,
                                    const decide::Layout& layout, const ModulePipeline& pipeline) {
  std::vector<std::string> changes;
  std::size_t spread = 0;
  for (OpId op : forward_ops(problem)) {
    if (decide::same_everywhere(problem, op)) continue;
    spread = std::max(spread, decide::merge_by_device(layout.op_slices(op)).size());
  }
  if (spread > 1) {
    changes.push_back(
        fmt::format("operators on up to {} devices at once: a stage is on one device", spread));
  }
  if (pipeline.micro_batches != strategy.micro_batches) {
    changes.push_back(fmt::format("{} micro-batches: {} of {} samples each", strategy.micro_batches,
                                  pipeline.micro_batches, problem.batch / pipeline.micro_batches));
  }
  if (pipeline.pattern != strategy.pattern || !strategy.strict) {
    changes.push_back(fmt::format(
        "turns {}{}: {}, strictly", decide::pattern_name(strategy.pattern),
        strategy.strict ? "" : " as priorities", decide::pattern_name(pipeline.pattern)));
  }
  if (std::ranges::any_of(strategy.units, &decide::UnitDecision::recompute)) {
    changes.emplace_back("forward passes that run again: none does");
  }
  if (pipeline.pattern == Pattern::kZeroBubble) {
    changes.emplace_back(
        "gradients of parameters put off an operator at a time: a micro-batch at a time");
  }
  if (!strategy.pipeline_of.empty()) changes.emplace_back("pipelines side by side: one");
  return changes;
}

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

Strategy module_strategy(const cost::Problem& problem, const Chain& chain, const StageCosts& costs,
                         const ModulePipeline& pipeline) {
  std::vector<Stage> stages;
  for (const ModuleStage& stage : pipeline.stages) {
    stages.push_back({stage.begin, stage.end, {stage.device}});
  }
  Staging how = staging(problem, chain, pipeline.pattern);
  how.micro_batches = pipeline.micro_batches;
  return stage_strategy(problem, chain, costs, {stages}, how);
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
  std::vector<DeviceId> device_of(modules.size());  // of each link
  for (OpId op : forward_ops(problem)) {
    if (decide::same_everywhere(problem, op)) continue;
    const auto& replicas = strategy.units[decide::unit_of(problem, strategy, op)].replicas;
    DeviceId& device = device_of[chain.layer_of[op]];
    if (replicas.size() != 1 || (device.valid() && device != replicas.front().device)) {
      return std::nullopt;
    }
    device = replicas.front().device;
  }
  for (std::size_t link = 0; link < device_of.size(); ++link) {
    if (device_of[link].valid() &&
        (pipeline.stages.empty() || pipeline.stages.back().device != device_of[link])) {
      pipeline.stages.push_back({pipeline.stages.empty() ? 0 : link, link, device_of[link]});
    }
    if (!pipeline.stages.empty()) pipeline.stages.back().end = link + 1;
  }
  // A device has one stage.
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (pipeline.stages[k].device == pipeline.stages[i].device) return std::nullopt;
    }
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

RoundedPlan round_to_modules(BatchEvaluator& evaluator, const Strategy& strategy,
                             const ModuleChain& modules, const Rounding& rounding) {
  const cost::Problem& problem = evaluator.problem();
  if (const auto exact = exact_pipeline(problem, strategy, modules)) {
    return {{*exact, strategy, evaluator.evaluate(strategy).evaluation}, {}};
  }
  const decide::Layout layout = decide::lay_out(problem, strategy);
  const std::vector<DeviceWork> devices = work_of(problem, layout);
  const Chain chain = chain_of(problem, modules);
  VALIDATE(devices.size() > 1 && strategy.micro_batches > 1,
           "the plan is no pipeline ({} micro-batch{} on {} device{}); expected stages: plan with "
           "--for, or --planner spp",
           strategy.micro_batches, strategy.micro_batches == 1 ? "" : "es", devices.size(),
           devices.size() == 1 ? "" : "s");
  VALIDATE(chain.layers.size() >= devices.size(),
           "{}: {} modules in a row, between which one tensor passes, for {} devices; expected at "
           "least one each",
           problem.graph->name(), chain.layers.size(), devices.size());
  std::vector<double> links(chain.layers.size(), 0);
  for (OpId op : forward_ops(problem)) {
    links[chain.layer_of[op]] += problem.costs.mean_seconds(op);
  }
  RoundedPlan rounded;
  rounded.plan.pipeline = {.stages = stages_by_work(links, devices),
                           .micro_batches = nearest_divisor(problem.batch, strategy.micro_batches),
                           .pattern = Pattern::kOneForwardOneBackward};
  if (strategy.pattern == Pattern::kForwardFirst ||
      (strategy.pattern == Pattern::kZeroBubble && rounding.put_off)) {
    rounded.plan.pipeline.pattern = strategy.pattern;
  }
  if (!has_turns(rounded.plan.pipeline)) rounded.plan.pipeline.pattern = Pattern::kForwardFirst;
  rounded.changes = changes_of(problem, strategy, layout, rounded.plan.pipeline);
  if (rounded.changes.empty()) {
    rounded.changes.emplace_back("boundaries of stages: each in front of a module");
  }
  move_boundaries(evaluator, modules, rounded.plan);
  return rounded;
}

Samples samples_by_work(const cost::Problem& problem, const Strategy& strategy) {
  std::vector<decide::Replica> weights;
  for (const DeviceWork& one : work_of(problem, decide::lay_out(problem, strategy))) {
    weights.push_back({one.device, one.seconds});
  }
  std::ranges::sort(weights, {}, &decide::Replica::device);
  Samples samples(problem.cluster->device_count(), 0);
  for (const decide::Slice& slice : decide::slice_batch(weights, problem.batch)) {
    samples[slice.device] = slice.size();
  }
  return samples;
}

}  // namespace heterog::search
