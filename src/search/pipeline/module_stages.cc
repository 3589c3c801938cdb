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

// As many samples in each micro-batch, about as many of them; of two that are as near, the more.
std::int64_t nearest_divisor(std::int64_t batch, std::int64_t wanted) {
  std::int64_t best = 1;
  for (std::int64_t i = 1; i <= batch; ++i) {
    if (batch % i == 0 && std::abs(i - wanted) <= std::abs(best - wanted)) best = i;
  }
  return best;
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
  if (!strategy.pipeline_of.empty()) changes.emplace_back("pipelines side by side: one");
  return changes;
}

}  // namespace

RoundedPlan round_to_modules(BatchEvaluator& evaluator, const Strategy& strategy,
                             const ModuleChain& modules) {
  const cost::Problem& problem = evaluator.problem();
  const decide::Layout layout = decide::lay_out(problem, strategy);
  const std::vector<DeviceWork> devices = work_of(problem, layout);
  const Chain chain = chain_of(problem, modules);
  VALIDATE(devices.size() > 1 && strategy.micro_batches > 1,
           "the plan is no pipeline ({} micro-batch{} on {} device{}); expected stages: plan with "
           "--planner spp",
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
  rounded.pipeline = {.stages = stages_by_work(links, devices),
                      .micro_batches = nearest_divisor(problem.batch, strategy.micro_batches),
                      .pattern = strategy.pattern == Pattern::kForwardFirst
                                     ? Pattern::kForwardFirst
                                     : Pattern::kOneForwardOneBackward};
  rounded.changes = changes_of(problem, strategy, layout, rounded.pipeline);

  LayerTimes times(problem, chain);
  const StageCosts costs(times, rounded.pipeline.micro_batches, false);
  const Staging how{.micro_batches = rounded.pipeline.micro_batches,
                    .pattern = rounded.pipeline.pattern,
                    .strict = in_line(problem, chain),
                    .copies = Copies::kWhereRead};
  const auto strategy_of = [&](const std::vector<ModuleStage>& stages) {
    std::vector<Stage> found;
    for (const ModuleStage& stage : stages)
      found.push_back({stage.begin, stage.end, {stage.device}});
    return stage_strategy(problem, chain, costs, {found}, how);
  };
  rounded.strategy = strategy_of(rounded.pipeline.stages);
  rounded.evaluation = evaluator.evaluate(rounded.strategy).evaluation;
  // Every boundary one link back or forth; the best of these, as long as it is better.
  for (bool moved = true; moved && !evaluator.spent();) {
    moved = false;
    std::vector<std::vector<ModuleStage>> tried;
    std::vector<Strategy> strategies;
    const std::vector<ModuleStage>& now = rounded.pipeline.stages;
    for (std::size_t i = 0; i + 1 < now.size(); ++i) {
      for (const bool back : {true, false}) {
        const ModuleStage& gives = back ? now[i] : now[i + 1];
        if (gives.end - gives.begin == 1) continue;
        std::vector<ModuleStage>& stages = tried.emplace_back(now);
        stages[i].end = stages[i + 1].begin = back ? now[i].end - 1 : now[i].end + 1;
        strategies.push_back(strategy_of(stages));
      }
    }
    if (strategies.empty()) break;
    const std::vector<Measured> measured = evaluator.evaluate(strategies);
    for (std::size_t i = 0; i < measured.size(); ++i) {
      if (!better(measured[i].evaluation, rounded.evaluation)) continue;
      rounded.pipeline.stages = tried[i];
      rounded.strategy = strategies[i];
      rounded.evaluation = measured[i].evaluation;
      moved = true;
    }
  }
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
