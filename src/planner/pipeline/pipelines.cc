// Candidates by the dynamic program, then whatever the oracle says is fastest.
#include "planner/pipeline/pipelines.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "compiler/accumulate.h"
#include "planner/baselines.h"
#include "planner/best_of.h"
#include "planner/pipeline/device_order.h"
#include "planner/pipeline/stage_strategy.h"
#include "planner/planner.h"

namespace heterog::planner {
namespace {

using compiler::Strategy;

constexpr std::string_view kNothingFits =
    "no pipeline of so many stages and micro-batches fits in memory";
constexpr std::size_t kLayers = 64;
constexpr std::array<std::int64_t, 11> kMicroBatches = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

std::vector<std::int64_t> micro_batch_counts(const cost::Problem& problem, std::int64_t given) {
  VALIDATE(given <= problem.batch, "micro_batches: {} of a batch of {}; expected at most {}", given,
           problem.batch, problem.batch);
  if (given > 0) return {given};
  std::vector<std::int64_t> counts;
  for (std::int64_t count : kMicroBatches) {
    if (count <= problem.batch) counts.push_back(count);
  }
  if (counts.empty()) counts.push_back(1);
  return counts;
}

struct StageCounts {
  std::size_t first = 1, last = 1;
};
StageCounts stage_counts(const cost::Problem& problem, std::int64_t given, std::size_t most) {
  VALIDATE(given <= static_cast<std::int64_t>(most),
           "stages: {} on {} devices; expected at most {}", given, problem.cluster->device_count(),
           most);
  if (given > 0) return {static_cast<std::size_t>(given), static_cast<std::size_t>(given)};
  return {1, most};
}
// Of the planners whose stages the dynamic program finds.
StageCounts stage_counts(const cost::Problem& problem, std::int64_t given) {
  return stage_counts(problem, given, most_stages(problem.cluster->device_count()));
}

struct Promising {
  double seconds = 0;
  std::vector<Stage> stages;
  std::size_t costs = 0;  // which micro-batches
  std::size_t line = 0;
  bool recompute = false;
};

Sharing sharing_of(const PipelineOptions& options) {
  return options.replicas == PipelineOptions::Replicas::kInTurn ? Sharing::kInTurn
                                                                : Sharing::kTogether;
}

// A model's layers, and what stages of them cost in so many micro-batches.
struct Costed {
  Chain chain;
  std::vector<StageCosts> costs;  // of each number of micro-batches
};

Costed costed(const cost::Problem& problem, Chain chain,
              const std::vector<std::int64_t>& micro_batches, PipelineOptions::Form form) {
  Costed made{std::move(chain), {}};
  for (std::int64_t count : micro_batches) {
    made.costs.emplace_back(problem, made.chain, count, form == PipelineOptions::Form::kPaper);
  }
  return made;
}

// What all candidates of a problem share.
struct Pool {
  PipelineOptions options;
  std::vector<std::int64_t> micro_batches;
  Costed once;   // forward passes run once
  Costed again;  // they run again for the backward pass; empty where options exclude it
  bool strict_possible = false;
  std::vector<Promising> found;

  Pool(const cost::Problem& problem, const PipelineOptions& given)
      : options(given),
        micro_batches(micro_batch_counts(problem, given.micro_batches)),
        once(costed(problem, make_chain(problem, kLayers), micro_batches, given.form)),
        strict_possible(in_line(problem, once.chain)) {
    if (given.recompute != PipelineOptions::Recompute::kNone) {
      again = costed(problem, recomputed(once.chain), micro_batches, given.form);
    }
    VALIDATE(
        given.turns != PipelineOptions::Turns::kStrict || strict_possible,
        "turns: strict, but layers of this model wait for later layers, or for all micro-batches "
        "(batch normalisation); expected priorities");
  }

  const Costed& of(bool recompute) const { return recompute ? again : once; }

  // The best partition of the line for each number of stages and micro-batches.
  void add(const std::vector<DeviceId>& devices, StageCounts stages, std::size_t number = 0) {
    const Line line(once.costs.front(), devices);
    for (std::size_t count = stages.first; count <= stages.last; ++count) {
      for (std::size_t m = 0; m < micro_batches.size(); ++m) {
        for (bool recompute : {false, true}) {
          if (recompute ? again.costs.empty()
                        : options.recompute == PipelineOptions::Recompute::kAll) {
            continue;
          }
          const Costed& kind = of(recompute);
          const auto cut = partition(kind.chain, kind.costs[m], line,
                                     {.stages = count, .micro_batches = micro_batches[m]});
          if (!cut) continue;
          const double seconds = estimate_step(kind.costs[m], *cut, micro_batches[m]);
          found.push_back({seconds, *cut, m, number, recompute});
          break;  // it costs time, and is for what would not fit
        }
      }
    }
    std::ranges::stable_sort(found, {}, &Promising::seconds);
  }

  // `how` but for its micro-batches and what runs again.
  Strategy strategy(const cost::Problem& problem, const Promising& one, Staging how) const {
    how.micro_batches = micro_batches[one.costs];
    how.recompute = one.recompute;
    how.sharing = sharing_of(options);
    const Costed& kind = of(one.recompute);
    return stage_strategy(problem, kind.chain, kind.costs[one.costs], {one.stages}, how);
  }

  // About: an op once a micro-batch on each device of its stage.
  std::size_t tasks(const cost::Problem& problem, const Promising& one) const {
    std::size_t replicas = 0;
    for (const Stage& stage : one.stages) {
      replicas += (stage.end - stage.begin) * stage.devices.size();
    }
    const auto parts = static_cast<std::size_t>(micro_batches[one.costs]);
    return problem.folded->ops.size() * parts * replicas / once.chain.layers.size();
  }

  // The best by estimate, but few of one line and number of stages: neighbours are alike, and what
  // the estimate is wrong about in one it is wrong about in all.
  std::vector<const Promising*> choose(const cost::Problem& problem,
                                       const PipelineLimits& limits) const {
    constexpr int kAlike = 3;
    std::map<std::pair<std::size_t, std::size_t>, int> alike;
    std::vector<const Promising*> chosen;
    std::size_t all = 0;
    for (const Promising& one : found) {
      if (chosen.size() >= limits.count || one.seconds > limits.seconds) break;
      if (++alike[{one.line, one.stages.size()}] > kAlike) continue;
      all += tasks(problem, one);
      if (!chosen.empty() && all > limits.tasks) break;
      chosen.push_back(&one);
    }
    return chosen;
  }

  // Of the line and number of stages of one of `cuts`, but none of `known`.
  std::vector<const Promising*> alike(const std::vector<const Promising*>& cuts,
                                      const std::vector<const Promising*>& known) const {
    std::vector<const Promising*> chosen;
    for (const Promising& one : found) {
      const bool is_alike = std::ranges::any_of(cuts, [&](const Promising* cut) {
        return cut->line == one.line && cut->stages.size() == one.stages.size();
      });
      if (is_alike && std::ranges::find(known, &one) == known.end()) chosen.push_back(&one);
    }
    return chosen;
  }
};

// The cuts that were simulated fastest, so many of different lines or numbers of stages.
std::vector<const Promising*> fastest(const std::vector<const Promising*>& cuts,
                                      const std::vector<Tried>& tried, std::size_t count) {
  std::vector<std::size_t> order(cuts.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, better, [&](std::size_t i) { return tried[i].evaluation; });
  std::vector<const Promising*> found;
  for (std::size_t i : order) {
    const bool known = std::ranges::any_of(found, [&](const Promising* one) {
      return one->line == cuts[i]->line && one->stages.size() == cuts[i]->stages.size();
    });
    if (!known && found.size() < count) found.push_back(cuts[i]);
  }
  return found;
}

std::vector<DeviceId> file_order(const cost::Problem& problem) {
  std::vector<DeviceId> line;
  for (DeviceId device : problem.cluster->device_ids()) line.push_back(device);
  return line;
}

Pool promising_pool(const cost::Problem& problem, const PipelineOptions& options) {
  Pool pool(problem, options);
  // Minimum cuts take the fourth power of the devices.
  constexpr std::size_t kMostCut = 64;
  std::vector<std::vector<DeviceId>> lines = {problem.cluster->device_count() > kMostCut
                                                  ? file_order(problem)
                                                  : recursive_device_order(*problem.cluster)};
  if (options.form == PipelineOptions::Form::kOurs) {
    // People list their machines in an order of their own, the fastest first say. And stages on
    // unequal devices are not the same backwards.
    lines.push_back(file_order(problem));
    for (std::size_t i = 0; i < 2; ++i) lines.emplace_back(lines[i].rbegin(), lines[i].rend());
  }
  const StageCounts stages = stage_counts(problem, options.stages);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (std::find(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(i), lines[i]) ==
        lines.begin() + static_cast<std::ptrdiff_t>(i)) {
      pool.add(lines[i], stages, i);
    }
  }
  return pool;
}

constexpr std::size_t kSimulated = 24;

// The ways in which options let devices keep to turns.
std::vector<Keeping> keepings(const Pool& pool) {
  using Turns = PipelineOptions::Turns;
  std::vector<Keeping> made;
  if (pool.options.turns != Turns::kStrict) made.push_back(Keeping::kAsPriorities);
  const bool strict = pool.options.turns != Turns::kPriorities && pool.strict_possible;
  if (strict) made.push_back(Keeping::kStrictly);
  return made;
}

// The best of cuts of a pool in one schedule.
PlannerResult best_cut(const Pool& pool, std::span<const Promising> cuts, Schedule schedule,
                       PlannerContext& context) {
  VALIDATE(!cuts.empty(), "{}", kNothingFits);
  const std::vector<Keeping> ways = keepings(pool);
  const auto make = [&](std::size_t i) {
    const Staging how{.schedule = schedule, .keeping = ways[i % ways.size()]};
    return pool.strategy(context.problem(), cuts[i / ways.size()], how);
  };
  return best_of(cuts.size() * ways.size(), make, context.oracle, context.budget);
}

PlannerResult plan_spp(const PipelineOptions& options, PlannerContext& context) {
  if (options.form == PipelineOptions::Form::kPaper) {
    // Algorithm 3: for each number of stages the best partition, in the order of PE.
    const Pool pool = promising_pool(context.problem(), options);
    return best_cut(pool, pool.found, Schedule::kListed, context);
  }
  BatchEvaluator evaluator(context.oracle, context.budget);
  std::vector<Tried> tried = try_pipelines(evaluator, {.count = kSimulated}, options);
  VALIDATE(!tried.empty(), "{}", kNothingFits);
  const auto best = std::ranges::min_element(tried, better, &Tried::evaluation);
  return {.strategy = std::move(best->strategy),
          .evaluation = best->evaluation,
          .evaluations = evaluator.evaluations()};
}

// About as many layers on each device, in the order of the cluster file.
PlannerResult plan_gpipe(const PipelineOptions& options, PlannerContext& context) {
  const cost::Problem& problem = context.problem();
  const Pool pool(problem, options);
  const std::size_t devices = problem.cluster->device_count();
  const std::size_t layers = pool.once.chain.layers.size();
  const std::size_t count = std::min(stage_counts(problem, options.stages, devices).last, layers);
  std::vector<Stage> stages;
  for (std::size_t s = 0; s < count; ++s) {
    stages.push_back({s * layers / count, (s + 1) * layers / count, {DeviceId(s)}});
  }
  std::vector<Promising> cuts;
  for (std::size_t m = 0; m < pool.micro_batches.size(); ++m) {
    for (bool recompute : {false, true}) {
      if (recompute ? pool.again.costs.empty()
                    : options.recompute == PipelineOptions::Recompute::kAll) {
        continue;
      }
      cuts.push_back({.stages = stages, .costs = m, .recompute = recompute});
    }
  }
  return best_cut(pool, cuts, Schedule::kForwardFirst, context);
}

// Stages in the order of the cluster file, with replicas, so that the slowest is fastest.
PlannerResult plan_pipedream(const PipelineOptions& options, PlannerContext& context) {
  const cost::Problem& problem = context.problem();
  Pool pool(problem, options);
  pool.add(file_order(problem), stage_counts(problem, options.stages));
  const auto cuts = std::span(pool.found).first(std::min(kSimulated, pool.found.size()));
  return best_cut(pool, cuts, Schedule::kOneForwardOneBackward, context);
}

// A pipeline in each machine, a device a stage, side by side: synchronous, in place of HetPipe's
// waves of stale parameters.
PlannerResult plan_hetpipe(const PipelineOptions& options, PlannerContext& context) {
  const cost::Problem& problem = context.problem();
  const Pool pool(problem, options);
  const std::vector<Keeping> ways = keepings(pool);
  struct Found {
    std::size_t costs = 0;  // which micro-batches
    bool recompute = false;
    Pipelines pipelines;
  };
  std::vector<Found> found;
  for (std::size_t m = 0; m < pool.micro_batches.size(); ++m) {
    for (bool recompute : {false, true}) {
      if (recompute ? pool.again.costs.empty()
                    : options.recompute == PipelineOptions::Recompute::kAll) {
        continue;
      }
      const Costed& kind = pool.of(recompute);
      Pipelines pipelines;
      for (MachineId machine : id_range<MachineId>(problem.cluster->machine_count())) {
        const auto& line = problem.cluster->machine(machine).devices;
        const auto cut =
            partition(kind.chain, kind.costs[m], Line(kind.costs[m], line),
                      {.stages = std::min(most_stages(line.size()), kind.chain.layers.size()),
                       .micro_batches = pool.micro_batches[m]});
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
    const Costed& kind = pool.of(one.recompute);
    return stage_strategy(problem, kind.chain, kind.costs[one.costs], one.pipelines,
                          {.micro_batches = pool.micro_batches[one.costs],
                           .schedule = Schedule::kOneForwardOneBackward,
                           .keeping = ways[i % ways.size()],
                           .recompute = one.recompute,
                           .sharing = sharing_of(options)});
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
    if (one.strategy.order != compiler::OrderPolicy::kRank) return true;
    const std::vector<compiler::Replica>& replicas = one.strategy.units.raw().front().replicas;
    if (replicas.size() > 1) return false;
    const DeviceTypeId type = problem.cluster->device(replicas.front().device).type;
    if (std::ranges::find(types, type) != types.end()) return true;
    types.push_back(type);
    return false;
  });
  const std::vector<std::int64_t> counts = micro_batch_counts(problem, options.micro_batches);
  const auto make = [&](std::size_t i) {
    Strategy made = compiler::accumulate(problem, baselines[i / 2 / counts.size()].strategy,
                                         counts[i / 2 % counts.size()]);
    // Without turns gradients leave earlier, and more micro-batches are kept at a time.
    if (i % 2 == 1) {
      made.priorities.clear();
      made.order = compiler::OrderPolicy::kRankQueued;
    }
    return made;
  };
  return best_of(2 * baselines.size() * counts.size(), make, context.oracle, context.budget);
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
    "or "
    "whatever is best",
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
constexpr std::array<Field<PipelineOptions>, 6> kSppFields = {
    kStages,
    kParts,
    kTurns,
    kRecompute,
    kReplicas,
    Field<PipelineOptions>{
        "form",
        "what is believed of stages: unequal devices, shared network cards and memory, or what the "
        "paper has",
        choice<PipelineOptions, &PipelineOptions::form>(kFormWords)}};
constexpr std::array<Field<PipelineOptions>, 4> kFields = {kStages, kParts, kTurns, kRecompute};
constexpr std::array<Field<PipelineOptions>, 5> kPipeDreamFields = {kStages, kParts, kTurns,
                                                                    kRecompute, kReplicas};
constexpr std::array<Field<PipelineOptions>, 3> kWithoutStages = {kParts, kTurns, kRecompute};
constexpr std::array<Field<PipelineOptions>, 1> kPartsAlone = {kParts};

PlannerEntry entry(std::string_view name, std::string_view one_line,
                   std::span<const Field<PipelineOptions>> fields, PlanPipeline plan) {
  return planner_entry<PipelineOptions>(name, one_line, fields,
                                        [plan](const PipelineOptions& options) {
                                          return std::make_unique<PipelinePlanner>(plan, options);
                                        });
}

}  // namespace

std::vector<Tried> try_pipelines(BatchEvaluator& evaluator, const PipelineLimits& limits,
                                 const PipelineOptions& options) {
  constexpr std::size_t kAtATime = 8;  // a budget of seconds may end in between
  const std::size_t lines = limits.count < kSimulated ? 1 : 2;  // looked at once more
  const std::size_t listed = std::max<std::size_t>(3, limits.count / 3);
  const cost::Problem& problem = evaluator.problem();
  const Pool pool = promising_pool(problem, options);
  std::vector<Tried> tried;
  std::vector<std::size_t> order;  // of `tried`
  const auto simulate = [&](std::span<const Promising* const> cuts, Schedule schedule,
                            Keeping keeping) {
    for (std::size_t i = 0; i < cuts.size(); i += kAtATime) {
      if (!tried.empty() && evaluator.spent()) return;
      const auto left =
          static_cast<std::size_t>(std::max<std::int64_t>(1, evaluator.evaluations_left()));
      std::vector<Strategy> strategies;
      for (const Promising* cut : cuts.subspan(i, std::min({kAtATime, left, cuts.size() - i}))) {
        strategies.push_back(
            pool.strategy(problem, *cut, {.schedule = schedule, .keeping = keeping}));
      }
      const std::vector<Measured> measured = evaluator.evaluate(strategies);
      for (std::size_t j = 0; j < strategies.size(); ++j) {
        spdlog::debug(
            "pipeline of {} stages, {} micro-batches{}{}{}: estimate {:.4f} s, step "
            "{:.4f} s{}",
            cuts[i + j]->stages.size(), pool.micro_batches[cuts[i + j]->costs],
            schedule == Schedule::kListed ? ", listed" : "",
            keeping == Keeping::kStrictly ? ", strictly" : "",
            cuts[i + j]->recompute ? ", forward passes again" : "", cuts[i + j]->seconds,
            to_seconds(measured[j].evaluation.step),
            measured[j].evaluation.feasible ? "" : ", does not fit in memory");
        tried.push_back({std::move(strategies[j]), measured[j].evaluation});
      }
    }
  };
  std::vector<const Promising*> cuts = pool.choose(problem, limits);
  const std::vector<Keeping> ways = keepings(pool);
  simulate(cuts, Schedule::kOneForwardOneBackward, ways.front());
  cuts.resize(tried.size());
  // The best lines and numbers of stages in other numbers of micro-batches.
  const std::vector<const Promising*> more = pool.alike(fastest(cuts, tried, lines), cuts);
  simulate(more, Schedule::kOneForwardOneBackward, ways.front());
  cuts.insert(cuts.end(), more.begin(), more.end());
  cuts.resize(tried.size());
  for (std::size_t i = 0; i < tried.size(); ++i) order.push_back(i);
  std::ranges::stable_sort(order, better, [&](std::size_t i) { return tried[i].evaluation; });
  std::vector<const Promising*> best;
  for (std::size_t i : order) {
    if (best.size() < listed) best.push_back(cuts[i]);
  }
  if (ways.size() > 1) simulate(best, Schedule::kOneForwardOneBackward, ways.back());
  for (Keeping keeping : ways) simulate(best, Schedule::kListed, keeping);
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
  };
}

}  // namespace heterog::planner
