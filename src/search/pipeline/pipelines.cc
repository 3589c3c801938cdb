// Every planner of pipelines: its cuts, then whatever the oracle says is fastest.
#include "search/pipeline/pipelines.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <utility>

#include "base/check.h"
#include "decide/decisions.h"
#include "decide/micro_batches.h"
#include "search/best_of.h"
#include "search/pipeline/folded.h"
#include "search/pipeline/trials.h"
#include "search/planner.h"
#include "search/starts/baselines.h"
#include "search/starts/shards.h"

namespace heterog::search {
namespace {

using decide::Pattern;
using decide::Strategy;

constexpr std::string_view kNothingFits =
    "no pipeline of so many stages and micro-batches fits in memory";

using One = TriedPipelines::One;

// The best of cuts of a pool in one schedule.
PlannerResult best_cut(const CutPool& pool, std::span<const Cut> cuts, Pattern pattern,
                       PlannerContext& context) {
  VALIDATE(!cuts.empty(), "{}", kNothingFits);
  const std::vector<bool>& ways = pool.strictness;
  const auto make = [&](std::size_t i) {
    const Staging how{.pattern = pattern, .strict = ways[i % ways.size()]};
    return pool.strategy(context.problem(), cuts[i / ways.size()], how);
  };
  return best_of(cuts.size() * ways.size(), make, context.oracle, context.budget);
}

PlannerResult plan_spp(const PipelineOptions& options, PlannerContext& context) {
  if (options.form == PipelineOptions::Form::kPaper) {
    VALIDATE(options.gradients == PipelineOptions::Gradients::kAtOnce,
             "gradients: put-off with form paper, whose list has turns for all of a backward pass; "
             "expected at-once, or form unequal");
    // Algorithm 3: for each number of stages the best partition, in the order of PE.
    const CutPool pool = promising_pool(context.oracle, options);
    return best_cut(pool, pool.found, Pattern::kListed, context);
  }
  BatchEvaluator evaluator(context.oracle, context.budget);
  const TriedPipelines tried = try_pipelines(evaluator, {}, options);
  VALIDATE(!tried.all.empty(), "{}", kNothingFits);
  const One& best = *std::ranges::min_element(tried.all, better, &One::evaluation);
  return {.strategy = best.strategy,
          .evaluation = best.evaluation,
          .evaluations = evaluator.evaluations()};
}

// Of the best cuts by estimate, the devices there and back.
PlannerResult plan_folded(const PipelineOptions& options, PlannerContext& context) {
  constexpr std::size_t kOfCuts = 6;
  const CutPool pool = promising_pool(context.oracle, options);
  std::vector<Cut> cuts;
  for (const Cut* one : pool.choose({.count = kOfCuts, .alike = 1})) {
    for (bool from_last : {false, true}) {
      std::ranges::move(folded_cuts(pool, *one, from_last, kNoStep), std::back_inserter(cuts));
    }
  }
  VALIDATE(
      !cuts.empty(),
      "no pipeline goes there and back; expected two devices or more, stages that is not 1, and "
      "memory that holds some");
  std::ranges::stable_sort(cuts, {}, &Cut::seconds);
  const Staging how{.pattern = Pattern::kZeroBubble,
                    .order_rounds = 1,
                    .tied_together = ties_layers(context.problem(), pool.once.chain)};
  const auto make = [&](std::size_t i) { return pool.strategy(context.problem(), cuts[i], how); };
  return best_of(std::min(cuts.size(), kSimulatedCuts), make, context.oracle, context.budget);
}

// About as many layers on each device, in the order of the cluster file.
PlannerResult plan_gpipe(const PipelineOptions& options, PlannerContext& context) {
  const cost::Problem& problem = context.problem();
  const CutPool pool(problem, options);
  const std::size_t devices = problem.cluster->device_count();
  const std::size_t layers = pool.once.chain.layers.size();
  const std::size_t count = std::min(stage_counts(problem, options.stages, devices).last, layers);
  std::vector<Stage> stages;
  for (std::size_t s = 0; s < count; ++s) {
    stages.push_back({s * layers / count, (s + 1) * layers / count, {DeviceId(s)}});
  }
  std::vector<Cut> cuts;
  for (std::size_t m = 0; m < pool.micro_batches.size(); ++m) {
    for (bool recompute : pool.recomputation) {
      cuts.push_back({.stages = stages, .costs = m, .recompute = recompute});
    }
  }
  return best_cut(pool, cuts, Pattern::kForwardFirst, context);
}

// Stages in the order of the cluster file, with replicas, so that the slowest is fastest.
PlannerResult plan_pipedream(const PipelineOptions& options, PlannerContext& context) {
  const cost::Problem& problem = context.problem();
  CutPool pool(problem, options);
  pool.add({file_order(problem)}, stage_counts(problem, options.stages), &context.oracle);
  const auto cuts = std::span(pool.found).first(std::min(kSimulatedCuts, pool.found.size()));
  return best_cut(pool, cuts, pattern_of(options), context);
}

// A pipeline in each machine, a device a stage, side by side: synchronous, in place of HetPipe's
// waves of stale parameters.
PlannerResult plan_hetpipe(const PipelineOptions& options, PlannerContext& context) {
  const cost::Problem& problem = context.problem();
  const CutPool pool(problem, options);
  const std::vector<bool>& ways = pool.strictness;
  struct Found {
    std::size_t costs = 0;  // which micro-batches
    bool recompute = false;
    Pipelines pipelines;
  };
  std::vector<Found> found;
  for (std::size_t m = 0; m < pool.micro_batches.size(); ++m) {
    for (bool recompute : pool.recomputation) {
      const CutPool::Costed& kind = pool.of(recompute);
      Pipelines pipelines;
      for (MachineId machine : id_range<MachineId>(problem.cluster->machine_count())) {
        const auto& line = problem.cluster->machine(machine).devices;
        const Line along(kind.costs[m], line);
        const std::size_t stages = std::min(along.runs(), kind.chain.layers.size());
        const auto cut =
            Partitioner(kind.costs[m], along, pool.micro_batches[m], stages).partition(stages);
        if (cut) pipelines.push_back(*cut);
      }
      if (pipelines.size() < problem.cluster->machine_count()) continue;
      found.push_back({m, recompute, std::move(pipelines)});
      break;
    }
  }
  VALIDATE(!found.empty(), "{}", kNothingFits);
  const auto make = [&](std::size_t i) {
    const Found& one = found[i / ways.size()];
    return pool.strategy(
        problem, one.pipelines, one.costs, one.recompute,
        {.pattern = Pattern::kOneForwardOneBackward, .strict = ways[i % ways.size()]});
  };
  return best_of(found.size() * ways.size(), make, context.oracle, context.budget);
}

// Data parallelism, or one device, in micro-batches, one after the other or as queued ranks have
// it.
PlannerResult plan_accumulate(const PipelineOptions& options, PlannerContext& context) {
  const cost::Problem& problem = context.problem();
  // In one order each, and of devices of one type the first alone.
  std::vector<NamedStrategy> baselines = baseline_strategies(problem);
  std::vector<DeviceTypeId> types;
  std::erase_if(baselines, [&](const NamedStrategy& one) {
    if (one.strategy.order != decide::OrderPolicy::kRank) return true;
    const std::vector<decide::Replica>& replicas = one.strategy.units.raw().front().replicas;
    if (replicas.size() > 1) return false;
    const DeviceTypeId type = problem.cluster->device(replicas.front().device).type;
    if (std::ranges::find(types, type) != types.end()) return true;
    types.push_back(type);
    return false;
  });
  if (options.state != StateOption::kWhole) {
    std::vector<NamedStrategy> of_rows;
    for (const NamedStrategy& one : baselines) {
      const decide::UnitDecision& unit = one.strategy.units.raw().front();
      if (unit.replicas.size() == 1 || unit.sync != decide::SyncMethod::kAllReduce) continue;
      of_rows.push_back({one.name, options.state == StateOption::kGathered
                                       ? gathered(one.strategy)
                                       : sharded(one.strategy)});
    }
    VALIDATE(!of_rows.empty(), "state: {} on one device; expected several, or state whole",
             kStateWords[static_cast<std::size_t>(options.state)]);
    baselines = std::move(of_rows);
  }
  struct Cut {
    const Strategy* whole = nullptr;
    std::int64_t micro_batches = 0;
  };
  std::vector<Cut> cuts;
  for (const NamedStrategy& one : baselines) {
    for (const std::int64_t count : micro_batch_counts(problem, options.micro_batches)) {
      // What is asked for is refused by who makes it.
      const bool asked = options.micro_batches > 0;
      if (!asked && !decide::can_accumulate(problem, one.strategy, count)) continue;
      cuts.push_back({&one.strategy, count});
    }
  }
  VALIDATE(!cuts.empty(),
           "{} devices: {} instances of an op are the most, and two micro-batches have "
           "more; expected fewer devices",
           problem.cluster->device_count(), decide::most_instances_of_each(problem));
  const auto make = [&](std::size_t i) {
    Strategy made = decide::accumulate(problem, *cuts[i / 2].whole, cuts[i / 2].micro_batches);
    // Without turns gradients leave earlier, and more micro-batches are kept at a time.
    if (i % 2 == 1) {
      decide::set_plain_order(made, decide::OrderPolicy::kRankQueued);
    }
    return made;
  };
  return best_of(2 * cuts.size(), make, context.oracle, context.budget);
}

using PlanPipeline = PlannerResult (*)(const PipelineOptions&, PlannerContext&);

class PipelinePlanner final : public Planner {
 public:
  PipelinePlanner(PlanPipeline plan, const PipelineOptions& options)
      : plan_(plan), options_(options) {}
  PlannerResult plan(PlannerContext& context) const override { return plan_(options_, context); }

 private:
  PlanPipeline plan_;
  PipelineOptions options_;
};

constexpr Field<PipelineOptions> kStages = {
    "stages", "into how many stages the model is cut; 0: whatever is best",
    IntegerField<PipelineOptions>{&PipelineOptions::stages, {0, 4096}}};
constexpr Field<PipelineOptions> kParts = {
    "micro_batches", "into how many parts the batch is cut; 0: whatever is best",
    IntegerField<PipelineOptions>{&PipelineOptions::micro_batches, {0, 65536}}};
constexpr std::array<std::string_view, 2> kFormWords = {"unequal", "paper"};
constexpr std::array<std::string_view, 3> kTurnWords = {"best", "priorities", "strict"};
constexpr Field<PipelineOptions> kTurns = {
    "turns",
    "whether a device that waits for its turn takes another that is ready: it does, it does not, "
    "or whatever is best",
    choice<PipelineOptions, &PipelineOptions::turns>(kTurnWords)};
constexpr std::array<std::string_view, 3> kRecomputeWords = {"if-needed", "none", "all"};
constexpr Field<PipelineOptions> kRecompute = {
    "recompute", "whether forward passes run again for backward passes, which saves memory",
    choice<PipelineOptions, &PipelineOptions::recompute>(kRecomputeWords)};
constexpr std::array<std::string_view, 2> kReplicaWords = {"together", "in-turn"};
constexpr Field<PipelineOptions> kReplicas = {
    "replicas",
    "whether the devices of a stage share every micro-batch, or take whole ones in turn",
    choice<PipelineOptions, &PipelineOptions::replicas>(kReplicaWords)};
constexpr std::array<std::string_view, 2> kGradientWords = {"at-once", "put-off"};
constexpr Field<PipelineOptions> kGradients = {
    "gradients",
    "when gradients of parameters are made: in the turn of their backward pass, or once a device "
    "would wait (zero bubble)",
    choice<PipelineOptions, &PipelineOptions::gradients>(kGradientWords)};
constexpr std::array<Field<PipelineOptions>, 7> kSppFields = {
    kStages,
    kParts,
    kTurns,
    kRecompute,
    kReplicas,
    kGradients,
    Field<PipelineOptions>{
        "form",
        "what is believed of stages: unequal devices, shared network cards and memory, or what the "
        "paper has",
        choice<PipelineOptions, &PipelineOptions::form>(kFormWords)}};
constexpr std::array<Field<PipelineOptions>, 4> kFields = {kStages, kParts, kTurns, kRecompute};
constexpr std::array<Field<PipelineOptions>, 6> kPipeDreamFields = {
    kStages, kParts, kTurns, kRecompute, kReplicas, kGradients};
constexpr std::array<Field<PipelineOptions>, 3> kFoldedFields = {kStages, kParts, kRecompute};
constexpr std::array<Field<PipelineOptions>, 3> kWithoutStages = {kParts, kTurns, kRecompute};
constexpr std::array<std::string_view, 3> kAccumulatedStateWords = {"whole", "sharded", "gathered"};
constexpr std::array<Field<PipelineOptions>, 2> kPartsAlone = {
    kParts,
    Field<PipelineOptions>{
        "state",
        "the optimizer's state: whole on every device, or of every parameter's an equal part "
        "of the rows on each (ZeRO stage 1), or so and frozen parameters in rows too, gathered for "
        "each pass of a micro-batch (stage 3)",
        choice<PipelineOptions, &PipelineOptions::state>(kAccumulatedStateWords)}};

PlannerEntry entry(std::string_view name, std::string_view one_line,
                   std::span<const Field<PipelineOptions>> fields, PlanPipeline plan) {
  return planner_entry<PipelineOptions>(name, one_line, fields,
                                        [plan](const PipelineOptions& options) {
                                          return std::make_unique<PipelinePlanner>(plan, options);
                                        });
}

}  // namespace

std::vector<Tried> try_accumulation(BatchEvaluator& evaluator) {
  const cost::Problem& problem = evaluator.problem();
  std::vector<Tried> tried;
  bool fits = true;
  for (std::int64_t micro_batches : decide::kAccumulatedParts) {
    if (!fits || evaluator.spent()) continue;
    std::vector<Strategy> strategies;
    for (const Strategy& whole : {even_all_reduce(problem), proportional_all_reduce(problem)}) {
      if (!decide::can_accumulate(problem, whole, micro_batches)) continue;
      strategies.push_back(decide::accumulate(problem, whole, micro_batches));
    }
    if (strategies.empty()) continue;
    fits = false;
    const std::vector<Measured> measured = evaluator.evaluate(strategies);
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      fits |= measured[i].evaluation.feasible;
      tried.push_back({std::move(strategies[i]), measured[i].evaluation});
    }
  }
  return tried;
}

std::vector<PlannerEntry> pipeline_entries() {
  return {
      entry("accumulate", "data parallelism in micro-batches one after the other", kPartsAlone,
            plan_accumulate),
      entry("gpipe", "a stage a device of as many layers; forward passes, then backward passes",
            kFields, plan_gpipe),
      entry("pipedream", "stages with replicas along the devices; forward and backward in turns",
            kPipeDreamFields, plan_pipedream),
      entry("hetpipe", "a pipeline in each machine, side by side", kWithoutStages, plan_hetpipe),
      entry("spp", "stages with replicas along the best line of devices, simulated in many forms",
            kSppFields, plan_spp),
      entry("folded", "stages along a line of devices and back again, gradients put off",
            kFoldedFields, plan_folded),
  };
}

}  // namespace heterog::search
