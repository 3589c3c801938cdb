// Work of every device by the strategy's layout, boundaries by its sums, then steps downhill.
#include "search/pipeline/module_rounding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "decide/layout.h"
#include "decide/pass_turns.h"

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

// The devices of a stage, and what they do of the forward pass.
struct StageWork {
  std::vector<DeviceId> devices;
  double seconds = 0;
  std::vector<double> weights = {};  // of each, of its ops' replicas: a part of a micro-batch
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

// The strategy's stages, in the order of the forward pass, if each is of as many devices, two or
// more, and no device is in two.
std::optional<std::vector<StageWork>> several_each(const cost::Problem& problem,
                                                   const Strategy& strategy) {
  std::vector<StageWork> stages;
  for (OpId op : forward_ops(problem)) {
    if (decide::same_everywhere(problem, op)) continue;
    std::vector<DeviceId> devices;
    double all = 0;
    const auto& replicas = strategy.units[decide::unit_of(problem, strategy, op)].replicas;
    for (const decide::Replica& one : replicas) {
      devices.push_back(one.device);
      all += one.weight;
    }
    auto stage = std::ranges::find(stages, devices, &StageWork::devices);
    if (stage == stages.end()) {
      stages.push_back({devices, 0, std::vector<double>(devices.size(), 0)});
      stage = stages.end() - 1;
    }
    const double seconds = problem.costs.mean_seconds(op);
    stage->seconds += seconds;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      stage->weights[i] += seconds * replicas[i].weight / all;
    }
  }
  std::vector<DeviceId> used;
  for (const StageWork& stage : stages) {
    if (stage.devices.size() != stages.front().devices.size()) return std::nullopt;
    used.insert(used.end(), stage.devices.begin(), stage.devices.end());
  }
  std::ranges::sort(used);
  if (stages.size() < 2 || stages.front().devices.size() < 2) return std::nullopt;
  if (std::ranges::adjacent_find(used) != used.end()) return std::nullopt;
  return stages;
}

// Boundaries where the work before them is nearest to that of the stages before them.
std::vector<ModuleStage> stages_by_work(const std::vector<double>& links,
                                        const std::vector<StageWork>& work) {
  std::vector<ModuleStage> stages;
  double of_stages = 0, of_links = 0;
  for (const StageWork& one : work) of_stages += one.seconds;
  for (double seconds : links) of_links += seconds;
  std::size_t at = 0;
  double done = 0, wanted = 0;
  for (std::size_t i = 0; i < work.size(); ++i) {
    const std::size_t begin = at;
    const std::size_t most = links.size() - (work.size() - 1 - i);
    wanted += work[i].seconds / of_stages * of_links;
    do {
      done += links[at++];
    } while (at < most && (i + 1 == work.size() || done + links[at] / 2 < wanted));
    stages.push_back({begin, at, work[i].devices});
  }
  return stages;
}

// Of a micro-batch, what each place in the stages' devices has in the mean; at least one.
std::vector<std::int64_t> samples_of(const std::vector<StageWork>& work, std::int64_t micro_batch) {
  std::vector<double> weights(work.front().devices.size(), 0);
  for (const StageWork& stage : work) {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] += stage.weights[i];
  }
  return at_least_one_each(weights, micro_batch);
}

// Whether every stage's devices have these samples of each micro-batch already.
bool has_samples(const std::vector<StageWork>& work, const std::vector<std::int64_t>& samples) {
  const auto all = static_cast<double>(std::accumulate(samples.begin(), samples.end(), 0LL));
  return std::ranges::all_of(work, [&](const StageWork& stage) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const double part = stage.weights[i] / std::max(stage.seconds, 1e-30);
      if (std::abs(part - static_cast<double>(samples[i]) / all) > 1e-6) return false;
    }
    return true;
  });
}

std::vector<std::string> changes_of(const cost::Problem& problem, const Strategy& strategy,
                                    const decide::Layout& layout, const ModulePipeline& pipeline) {
  std::vector<std::string> changes;
  std::size_t spread = 0;
  for (OpId op : forward_ops(problem)) {
    if (decide::same_everywhere(problem, op)) continue;
    spread = std::max(spread, decide::merge_by_device(layout.op_slices(op)).size());
  }
  if (spread > replicas_of(pipeline)) {
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
  if (replicas_of(pipeline) > 1 &&
      std::ranges::any_of(strategy.units, &decide::UnitDecision::in_turn)) {
    changes.emplace_back("whole micro-batches in turn: each device takes its part of every one");
  }
  if (!strategy.pipeline_of.empty()) changes.emplace_back("pipelines side by side: one");
  return changes;
}

}  // namespace

RoundedPlan round_to_modules(BatchEvaluator& evaluator, const Strategy& strategy,
                             const ModuleChain& modules, const Rounding& rounding) {
  const cost::Problem& problem = evaluator.problem();
  const auto exact = exact_pipeline(problem, strategy, modules);
  if (exact && (rounding.replicas || replicas_of(*exact) == 1)) {
    return {{*exact, strategy, evaluator.evaluate(strategy).evaluation}, {}};
  }
  const decide::Layout layout = decide::lay_out(problem, strategy);
  const Chain chain = chain_of(problem, modules);
  RoundedPlan rounded;
  ModulePipeline& pipeline = rounded.plan.pipeline;
  pipeline.micro_batches = nearest_divisor(problem.batch, strategy.micro_batches);
  const std::int64_t micro_batch = problem.batch / pipeline.micro_batches;
  std::vector<StageWork> work;
  if (rounding.replicas && strategy.micro_batches > 1) {
    const auto several = several_each(problem, strategy);
    if (several && micro_batch >= static_cast<std::int64_t>(several->front().devices.size())) {
      work = *several;
      pipeline.samples = samples_of(work, micro_batch);
    }
  }
  if (work.empty()) {
    for (const DeviceWork& one : work_of(problem, layout))
      work.push_back({{one.device}, one.seconds});
    pipeline.samples = {micro_batch};
  }
  VALIDATE(work.size() > 1 && strategy.micro_batches > 1,
           "the plan is no pipeline ({} micro-batch{} on {} device{}); expected stages: plan with "
           "--for, or --planner spp",
           strategy.micro_batches, strategy.micro_batches == 1 ? "" : "es", work.size(),
           work.size() == 1 ? "" : "s");
  VALIDATE(chain.layers.size() >= work.size(),
           "{}: {} modules in a row, between which one tensor passes, for {} {}; expected at "
           "least one each",
           problem.graph->name(), chain.layers.size(), work.size(),
           pipeline.samples.size() > 1 ? "stages" : "devices");
  std::vector<double> links(chain.layers.size(), 0);
  for (OpId op : forward_ops(problem)) {
    links[chain.layer_of[op]] += problem.costs.mean_seconds(op);
  }
  pipeline.stages = stages_by_work(links, work);
  pipeline.pattern = Pattern::kOneForwardOneBackward;
  if (strategy.pattern == Pattern::kForwardFirst ||
      (strategy.pattern == Pattern::kZeroBubble && rounding.put_off)) {
    pipeline.pattern = strategy.pattern;
  }
  if (!has_turns(pipeline)) pipeline.pattern = Pattern::kForwardFirst;
  rounded.changes = changes_of(problem, strategy, layout, pipeline);
  if (pipeline.samples.size() > 1 && !has_samples(work, pipeline.samples)) {
    rounded.changes.push_back(
        fmt::format("shares of a stage's devices: {} samples of every micro-batch in all stages",
                    fmt::join(pipeline.samples, ", ")));
  }
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
