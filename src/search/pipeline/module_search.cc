// Choices of devices, a dynamic program of boundaries for each, and the best cuts simulated.
#include "search/pipeline/module_search.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "base/check.h"
#include "decide/decisions.h"
#include "decide/micro_batches.h"
#include "search/pipeline/module_replicas.h"
#include "search/pipeline/trials.h"

namespace heterog::search {
namespace {

using decide::Pattern;
using Lines = std::vector<std::vector<DeviceId>>;

constexpr std::size_t kMostStages = 12;  // those of Partitioner, of single devices
constexpr std::size_t kMostLines = 64;   // of a number of devices
constexpr std::size_t kSimulatedCuts = 24;
constexpr std::size_t kInOtherTurns = 8;
constexpr std::size_t kClimbedFrom = 12;
constexpr std::size_t kClimbedFromReplicas = 4;
constexpr double kFarBehind = 1.25;
// Plans from each of these, without a budget.
constexpr std::int64_t kMoves = 100;

// Divisors of the batch, near the numbers that pipelines try.
std::vector<std::int64_t> micro_batches_of_one_size(const cost::Problem& problem) {
  std::vector<std::int64_t> counts;
  const auto ops = static_cast<std::int64_t>(problem.folded->ops.size());
  for (std::int64_t wanted : decide::kPipelineParts) {
    const std::int64_t count = nearest_divisor(problem.batch, std::min(wanted, problem.batch));
    if (count == 1 || count > decide::kMostInstances / std::max<std::int64_t>(1, ops)) continue;
    if (std::ranges::find(counts, count) == counts.end()) counts.push_back(count);
  }
  VALIDATE(!counts.empty(),
           "batch {}: no micro-batches of one size; expected a batch of two samples or more",
           problem.batch);
  std::ranges::sort(counts);
  return counts;
}

// At most kMostLayers links, at boundaries that cut the time most evenly; of each, the links of the
// whole chain before it.
std::vector<std::size_t> coarse(const cost::Problem& problem, const ModuleChain& modules) {
  std::vector<std::size_t> begins;
  if (modules.size() <= kMostLayers) {
    for (std::size_t i = 0; i < modules.size(); ++i) begins.push_back(i);
    return begins;
  }
  const Chain chain = chain_of(problem, modules);
  std::vector<double> seconds(modules.size(), 0);
  double all = 0;
  for (OpId op : forward_ops(problem)) {
    seconds[chain.layer_of[op]] += problem.costs.mean_seconds(op);
    all += problem.costs.mean_seconds(op);
  }
  double before = 0;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const double reached = before / all * static_cast<double>(kMostLayers);
    if (begins.empty() ||
        (reached >= static_cast<double>(begins.size()) && begins.size() < kMostLayers)) {
      begins.push_back(i);
    }
    before += seconds[i];
  }
  return begins;
}

// The dynamic program evens out stages. A step of few micro-batches is also the time through all of
// them: boundaries move as long as the estimate of the whole step gets less.
std::vector<Stage> by_estimate(const StageCosts& costs, std::vector<Stage> stages,
                               std::int64_t micro_batches) {
  const auto fits = [&](std::size_t s) {
    const auto behind = static_cast<std::int64_t>(stages.size() - s);
    return costs.fits(stages[s].begin, stages[s].end, costs.group(stages[s].devices),
                      std::min(micro_batches, behind));
  };
  double least = estimate_step(costs, stages, micro_batches);
  for (std::size_t links = costs.layers() / 2; links > 0;) {
    bool moved = false;
    for (std::size_t i = 0; i + 1 < stages.size(); ++i) {
      for (const bool back : {true, false}) {
        const Stage &gives = stages[back ? i : i + 1], before = stages[i], after = stages[i + 1];
        if (gives.end - gives.begin <= links) continue;
        stages[i].end = back ? before.end - links : before.end + links;
        stages[i + 1].begin = stages[i].end;
        const double seconds = estimate_step(costs, stages, micro_batches);
        if (seconds < least && fits(i) && fits(i + 1)) {
          least = seconds;
          moved = true;
        } else {
          stages[i] = before;
          stages[i + 1] = after;
        }
      }
    }
    if (!moved) links /= 2;
  }
  return stages;
}

// Neighbours in a promising line, so many. Of lines that have devices of the same types and
// machines in the same places, the first. `ends_together`: also with the second device behind all
// others, for the gradient of a weight that the first stage and the last share.
Lines lines_of(const cost::Problem& problem, std::size_t count, bool ends_together) {
  const cluster::Cluster& cluster = *problem.cluster;
  Lines found;
  std::vector<std::vector<std::pair<DeviceTypeId, MachineId>>> kinds;
  const auto add = [&](std::vector<DeviceId> line) {
    std::vector<std::pair<DeviceTypeId, MachineId>> kind;
    for (DeviceId device : line) {
      kind.emplace_back(cluster.device(device).type, cluster.device(device).machine);
    }
    if (found.size() == kMostLines || std::ranges::find(kinds, kind) != kinds.end()) return;
    kinds.push_back(std::move(kind));
    found.push_back(std::move(line));
  };
  for (const std::vector<DeviceId>& line : promising_lines(problem)) {
    for (std::size_t first = 0; first + count <= line.size(); ++first) {
      const auto begin = line.begin() + static_cast<std::ptrdiff_t>(first);
      std::vector<DeviceId> some(begin, begin + static_cast<std::ptrdiff_t>(count));
      add(some);
      if (!ends_together) continue;
      std::rotate(some.begin() + 1, some.begin() + 2, some.end());
      add(std::move(some));
    }
  }
  return found;
}

// From a pipeline downhill.
class Climb {
 public:
  Climb(BatchEvaluator& evaluator, const ModuleChain& modules,
        const std::vector<std::int64_t>& micro_batches)
      : evaluator_(evaluator),
        problem_(evaluator.problem()),
        chain_(chain_of(problem_, modules)),
        times_(problem_, chain_),
        micro_batches_(micro_batches) {}

  ModulePlan from(const ModulePipeline& pipeline) {
    end_ =
        evaluator_.evaluations_left() < kUnlimited ? kUnlimited : evaluator_.evaluations() + kMoves;
    ModulePlan plan{.pipeline = pipeline, .strategy = strategy(pipeline), .evaluation = {}};
    plan.evaluation = evaluator_.evaluate(plan.strategy).evaluation;
    while (take_best(moved_boundaries(plan.pipeline, 1), plan) ||
           take_best(further(plan.pipeline), plan)) {
    }
    return plan;
  }

 private:
  static constexpr std::int64_t kUnlimited = std::int64_t{1} << 40;

  const StageCosts& costs(std::int64_t micro_batches) {
    return costs_.try_emplace(micro_batches, times_, micro_batches, false).first->second;
  }
  decide::Strategy strategy(const ModulePipeline& pipeline) {
    return module_strategy(problem_, chain_, costs(pipeline.micro_batches), pipeline);
  }

  // True if one is better.
  bool take_best(std::vector<ModulePipeline> tried, ModulePlan& plan) {
    std::erase_if(tried, [](const ModulePipeline& one) { return !has_turns(one); });
    const auto left = std::min(end_ - evaluator_.evaluations(), evaluator_.evaluations_left());
    if (evaluator_.spent() || left <= 0) return false;
    std::vector<decide::Strategy> strategies;
    if (static_cast<std::int64_t>(tried.size()) > left) {
      tried.resize(static_cast<std::size_t>(left));
    }
    for (const ModulePipeline& one : tried) strategies.push_back(strategy(one));
    const std::vector<Measured> measured = evaluator_.evaluate(strategies);
    bool found = false;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      if (!better(measured[i].evaluation, plan.evaluation)) continue;
      plan = {tried[i], std::move(strategies[i]), measured[i].evaluation};
      found = true;
    }
    return found;
  }

  // What boundaries that move by one link do not come to.
  std::vector<ModulePipeline> further(const ModulePipeline& now) {
    std::vector<ModulePipeline> all;
    const auto at = std::ranges::find(micro_batches_, now.micro_batches);
    const auto count = [&](std::int64_t micro_batches) {
      ModulePipeline other = now;
      const StageCosts& costs = this->costs(micro_batches);
      const auto samples = replica_samples(costs, now.stages, problem_.batch / micro_batches);
      if (!samples) return;
      other.micro_batches = micro_batches;
      other.samples = *samples;
      all.push_back(other);
      other.stages = by_estimate(costs, std::move(other.stages), micro_batches);
      all.push_back(std::move(other));  // with boundaries of its own
    };
    if (at != micro_batches_.begin()) count(*(at - 1));
    if (at + 1 != micro_batches_.end()) count(*(at + 1));
    all.emplace_back(now).pattern = now.pattern == Pattern::kForwardFirst
                                        ? Pattern::kOneForwardOneBackward
                                        : Pattern::kForwardFirst;
    // The first stage and the last may share a weight, which joins them.
    const std::size_t replicas = replicas_of(now), places = now.stages.size() * replicas;
    const auto device_at = [&](ModulePipeline& one, std::size_t place) -> DeviceId& {
      return one.stages[place / replicas].devices[place % replicas];
    };
    ModulePipeline same = now;
    for (std::size_t i = 0; i < places; ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (alike(device_at(same, i), device_at(same, k))) continue;
        ModulePipeline& other = all.emplace_back(now);
        std::swap(device_at(other, i), device_at(other, k));
      }
    }
    std::vector<DeviceId> others;  // unused
    for (DeviceId device : problem_.cluster->device_ids()) {
      const bool used = std::ranges::any_of(now.stages, [&](const ModuleStage& stage) {
        return std::ranges::find(stage.devices, device) != stage.devices.end();
      });
      const bool known =
          std::ranges::any_of(others, [&](DeviceId other) { return alike(device, other); });
      if (!used && !known) others.push_back(device);
    }
    for (std::size_t i = 0; i < places; ++i) {
      for (DeviceId device : others) {
        if (!alike(device, device_at(same, i))) device_at(all.emplace_back(now), i) = device;
      }
    }
    for (std::size_t gives = 0; gives < replicas; ++gives) {
      for (std::size_t takes = 0; takes < replicas; ++takes) {
        if (gives == takes || now.samples[gives] == 1) continue;
        std::vector<std::int64_t>& samples = all.emplace_back(now).samples;
        --samples[gives];
        ++samples[takes];
      }
    }
    for (std::size_t links = 2; links < chain_.layers.size(); links *= 2) {
      std::ranges::move(moved_boundaries(now, links), std::back_inserter(all));
    }
    return all;
  }

  bool alike(DeviceId a, DeviceId b) const {
    const cluster::Device &one = problem_.cluster->device(a), &other = problem_.cluster->device(b);
    return one.type == other.type && one.machine == other.machine;
  }

  BatchEvaluator& evaluator_;
  const cost::Problem& problem_;
  const Chain chain_;
  LayerTimes times_;
  std::map<std::int64_t, StageCosts> costs_;
  const std::vector<std::int64_t>& micro_batches_;
  std::int64_t end_ = 0;
};

// Of cuts into stages their best boundaries by estimate; the shortest estimates first.
void settle_boundaries(BatchEvaluator& evaluator, CutPool& pool) {
  std::erase_if(pool.found, [&](const Cut& cut) {
    return pool.micro_batches[cut.costs] < static_cast<std::int64_t>(cut.stages.size());
  });
  const std::int64_t batch = evaluator.problem().batch;
  evaluator.oracle().for_each(pool.found.size(), [&](std::size_t i) {
    Cut& cut = pool.found[i];
    const std::int64_t micro_batches = pool.micro_batches[cut.costs];
    const StageCosts& costs = pool.once.costs[cut.costs];
    cut.stages = by_estimate(costs, std::move(cut.stages), micro_batches);
    cut.seconds = estimate_step(costs, cut.stages, micro_batches);
    cut.busiest = busiest_stage(costs, cut.stages, micro_batches);
    if (cut.stages.front().devices.size() > 1) {
      cut.samples = *replica_samples(costs, cut.stages, batch / micro_batches);
    }
  });
  std::ranges::stable_sort(pool.found, {}, &Cut::seconds);
}

// No cuts yet, of the links that begin at `begins`.
CutPool empty_pool(const cost::Problem& problem, const ModuleChain& modules,
                   const std::vector<std::size_t>& begins) {
  ModuleChain links;
  for (std::size_t begin : begins) links.links.push_back(modules.links[begin]);
  Chain chain = chain_of(problem, links);
  const bool strict = staging(problem, chain, Pattern::kOneForwardOneBackward).strict;
  using Turns = PipelineOptions::Turns;
  return {problem,
          {.turns = strict ? Turns::kStrict : Turns::kPriorities,
           .recompute = PipelineOptions::Recompute::kNone},
          std::move(chain),
          micro_batches_of_one_size(problem)};
}

// One device a stage.
void cut(BatchEvaluator& evaluator, CutPool& pool) {
  const cost::Problem& problem = evaluator.problem();
  const bool ends_together = ties_layers(problem, pool.once.chain);
  const std::size_t most =
      std::min({problem.cluster->device_count(), pool.once.chain.layers.size(), kMostStages});
  for (std::size_t count = 2; count <= most; ++count) {
    if (evaluator.spent() && !pool.found.empty()) break;  // of many devices each takes seconds
    pool.add(lines_of(problem, count, ends_together), {count, count}, &evaluator.oracle());
  }
  settle_boundaries(evaluator, pool);
}

// Several devices a stage, where that is not far behind one a stage by estimate, `single` seconds:
// gradients of large models take too long between such devices, and plans would be for nothing.
void cut_for_replicas(BatchEvaluator& evaluator, CutPool& pool, double single) {
  const cost::Problem& problem = evaluator.problem();
  const std::size_t devices = problem.cluster->device_count();
  const std::size_t layers = pool.once.chain.layers.size();
  for (std::size_t replicas = 2; replicas <= std::min(devices / 2, kMostReplicas); ++replicas) {
    for (std::size_t count = 2; count <= std::min({devices / replicas, layers, kMostStages});
         ++count) {
      if (evaluator.spent()) break;
      add_cuts_of_replicas(problem, pool, count, replicas, evaluator.oracle());
    }
  }
  settle_boundaries(evaluator, pool);
  std::erase_if(pool.found, [&](const Cut& cut) { return cut.seconds > kFarBehind * single; });
}

// The most promising in one forward, one backward pass, the best of them with all forward passes
// first; the best in front.
void simulate(BatchEvaluator& evaluator, TriedPipelines& tried) {
  const cost::Problem& problem = evaluator.problem();
  const Chain& chain = tried.pool.once.chain;
  const Staging in_turn = staging(problem, chain, Pattern::kOneForwardOneBackward);
  Trials trials(evaluator, tried);
  trials.simulate(tried.pool.choose({.count = kSimulatedCuts}), in_turn);
  if (tried.all.empty()) return;
  trials.simulate(trials.alike(trials.fastest(2), trials.shortest_that_fits()), in_turn);
  trials.simulate(trials.best(kInOtherTurns), staging(problem, chain, Pattern::kForwardFirst));
  std::ranges::stable_sort(tried.all, better, &TriedPipelines::One::evaluation);
}

// Of the whole chain's links.
ModulePipeline pipeline_of(const TriedPipelines::One& one, const std::vector<std::size_t>& begins,
                           std::size_t links, std::int64_t batch) {
  ModulePipeline pipeline{.stages = {},
                          .samples = one.cut->samples,
                          .micro_batches = one.strategy.micro_batches,
                          .pattern = one.strategy.pattern};
  if (pipeline.samples.empty()) pipeline.samples = {batch / pipeline.micro_batches};
  for (const Stage& stage : one.cut->stages) {
    const std::size_t end = stage.end == begins.size() ? links : begins[stage.end];
    pipeline.stages.push_back({begins[stage.begin], end, stage.devices});
  }
  return pipeline;
}

}  // namespace

std::optional<ModulePlan> search_modules(BatchEvaluator& evaluator, const ModuleChain& modules,
                                         const ModuleSearch& options) {
  const cost::Problem& problem = evaluator.problem();
  VALIDATE(problem.cluster->device_count() > 1,
           "{}: one device; expected two or more for a pipeline", problem.cluster->name());
  VALIDATE(modules.size() > 1,
           "{}: no modules in a row, between which one tensor passes; such an engine cannot split "
           "it",
           problem.graph->name());
  const std::vector<std::size_t> begins = coarse(problem, modules);
  TriedPipelines tried{empty_pool(problem, modules, begins)}, replicas{tried.pool};
  cut(evaluator, tried.pool);
  simulate(evaluator, tried);
  if (options.replicas) {
    const auto& cuts = tried.pool.found;  // the shortest estimates first
    cut_for_replicas(evaluator, replicas.pool, cuts.empty() ? kNoStep : cuts.front().seconds);
    simulate(evaluator, replicas);
  }
  std::vector<const TriedPipelines::One*> all;
  for (const TriedPipelines* some : {&tried, &replicas}) {
    for (const TriedPipelines::One& one : some->all) all.push_back(&one);
  }
  std::ranges::stable_sort(all, better, [](const auto* one) { return one->evaluation; });
  Climb climb(evaluator, modules, tried.pool.micro_batches);
  std::optional<ModulePlan> best;
  // All different in their devices or numbers of micro-batches: few moves lead from one to another.
  using Start = std::pair<std::vector<std::vector<DeviceId>>, std::int64_t>;
  std::vector<Start> climbed, climbed_replicas;
  for (const TriedPipelines::One* one : all) {
    const bool several = !one->cut->samples.empty();
    std::vector<Start>& known = several ? climbed_replicas : climbed;
    Start start{{}, one->strategy.micro_batches};
    for (const Stage& stage : one->cut->stages) start.first.push_back(stage.devices);
    if (known.size() == (several ? kClimbedFromReplicas : kClimbedFrom)) continue;
    if (std::ranges::find(known, start) != known.end()) continue;
    known.push_back(std::move(start));
    ModulePlan plan = climb.from(pipeline_of(*one, begins, modules.size(), problem.batch));
    if (!best || better(plan.evaluation, best->evaluation)) best = std::move(plan);
  }
  return best;
}

ModuleChain with_modules(const graph::ModelGraph& graph, const ModuleChain& modules) {
  ModuleChain kept;
  std::vector<std::size_t> begins = {0};
  for (std::size_t link = 1; link < modules.size(); ++link) {
    if (!modules_of(graph, modules, begins.back(), link).empty()) begins.push_back(link);
  }
  while (begins.size() > 1 && modules_of(graph, modules, begins.back(), modules.size()).empty()) {
    begins.pop_back();
  }
  for (std::size_t begin : begins) kept.links.push_back(modules.links[begin]);
  return kept;
}

}  // namespace heterog::search
