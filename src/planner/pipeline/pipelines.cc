// Candidates by the dynamic program, then whatever the oracle says is fastest.
#include "planner/pipeline/pipelines.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/check.h"
#include "compiler/accumulate.h"
#include "planner/baselines.h"
#include "planner/pipeline/device_order.h"
#include "planner/planner.h"

namespace heterog::planner {
namespace {

using compiler::Strategy;

constexpr std::size_t kLayers = 64;
constexpr std::size_t kMostStages = 12;
constexpr std::array<std::int64_t, 11> kMicroBatches = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

// Which stages a device has and where its layers are, for pipelines side by side: one each.
using Pipelines = std::vector<std::vector<Stage>>;

// Every layer on the device or devices of each pipeline; a pipeline's part of a micro-batch is by
// the speed of its slowest stage.
Strategy strategy_of(const cost::Problem& problem, const Chain& chain, const StageCosts& costs,
                     const Pipelines& pipelines, std::int64_t micro_batches, Schedule schedule) {
  std::vector<std::vector<StageTurns>> turns;
  std::vector<std::pair<std::size_t, std::size_t>> place(problem.cluster->device_count());
  std::vector<double> speeds;
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    turns.push_back(stage_turns(schedule, pipelines[p].size(), micro_batches));
    double slowest = 0;
    for (std::size_t s = 0; s < pipelines[p].size(); ++s) {
      const Stage& stage = pipelines[p][s];
      for (DeviceId device : stage.devices) place[device.value()] = {p, s};
      slowest = std::max(slowest, costs.compute(stage.begin, stage.end, stage.devices));
    }
    speeds.push_back(1 / slowest);
  }
  Strategy strategy;
  for (OpId op : problem.graph->op_ids()) {
    strategy.unit_of_op.push_back(UnitId(chain.layer_of[op]));
  }
  for (std::size_t layer = 0; layer < chain.layers.size(); ++layer) {
    compiler::UnitDecision unit{.replicas = {}};
    for (std::size_t p = 0; p < pipelines.size(); ++p) {
      for (const Stage& stage : pipelines[p]) {
        if (layer < stage.begin || layer >= stage.end) continue;
        double together = 0;
        std::vector<double> each;
        for (DeviceId device : stage.devices) {
          each.push_back(costs.speed(stage.begin, stage.end, device, stage.devices.size()));
          together += each.back();
        }
        for (std::size_t i = 0; i < each.size(); ++i) {
          const double weight = pipelines.size() == 1 ? 1 : speeds[p] / speeds[0];
          unit.replicas.push_back({stage.devices[i], weight * each[i] / together});
        }
      }
    }
    strategy.units.push_back(std::move(unit));
  }
  strategy.bucket_bytes = kHorovodBucketBytes;
  strategy.order = compiler::OrderPolicy::kRankQueued;
  return compiler::in_turns(
      problem, strategy, micro_batches, [&](OpId op, DeviceId device, std::int64_t micro_batch) {
        const auto [p, s] = place[device.value()];
        const auto m = static_cast<std::size_t>(micro_batch);
        const bool forward = problem.graph->op(op).phase == graph::Phase::kForward;
        return forward ? turns[p][s].forward[m] : turns[p][s].backward[m];
      });
}

std::vector<std::int64_t> micro_batch_counts(const cost::Problem& problem, std::int64_t given) {
  VALIDATE(given <= problem.batch, "{} micro-batches of a batch of {}; expected 1 to {}", given,
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
StageCounts stage_counts(const cost::Problem& problem, std::int64_t given) {
  const std::size_t devices = problem.cluster->device_count();
  VALIDATE(given <= static_cast<std::int64_t>(devices),
           "{} stages on {} devices; expected 1 to {}: each device is in one stage", given, devices,
           devices);
  if (given > 0) return {static_cast<std::size_t>(given), static_cast<std::size_t>(given)};
  return {1, std::min(devices, kMostStages)};
}

struct Promising {
  double seconds = 0;
  std::vector<Stage> stages;
  std::size_t costs = 0;  // which micro-batches
};

// What all candidates of a problem share.
struct Pool {
  Chain chain;
  std::vector<std::int64_t> micro_batches;
  std::vector<StageCosts> costs;  // parallel
  std::vector<Promising> found;

  Pool(const cost::Problem& problem, const PipelineOptions& options)
      : chain(make_chain(problem, kLayers)),
        micro_batches(micro_batch_counts(problem, options.micro_batches)) {
    for (std::int64_t count : micro_batches) {
      costs.emplace_back(problem, chain, count, options.form == PipelineOptions::Form::kPaper);
    }
  }

  void add(std::span<const DeviceId> line, std::size_t stages, bool replicate) {
    for (std::size_t m = 0; m < micro_batches.size(); ++m) {
      const auto cut =
          partition(chain, costs[m], line,
                    {.stages = stages, .micro_batches = micro_batches[m], .replicate = replicate});
      if (cut) found.push_back({estimate_step(costs[m], *cut, micro_batches[m]), *cut, m});
    }
  }

  void sort() { std::ranges::stable_sort(found, {}, &Promising::seconds); }

  Strategy strategy(const cost::Problem& problem, const Promising& one, Schedule schedule) const {
    return strategy_of(problem, chain, costs[one.costs], {one.stages}, micro_batches[one.costs],
                       schedule);
  }
};

Pool promising_pool(const cost::Problem& problem, const PipelineOptions& options) {
  Pool pool(problem, options);
  std::vector<std::vector<DeviceId>> lines = {recursive_device_order(*problem.cluster)};
  if (options.form == PipelineOptions::Form::kOurs) {
    lines.emplace_back(lines[0].rbegin(), lines[0].rend());
  }
  const StageCounts stages = stage_counts(problem, options.stages);
  for (const auto& line : lines) {
    for (std::size_t count = stages.first; count <= stages.last; ++count) {
      pool.add(line, count, /*replicate=*/true);
    }
  }
  pool.sort();
  return pool;
}

PlannerResult best_of(std::vector<Strategy> strategies, PlannerContext& context) {
  VALIDATE(!strategies.empty(), "no pipeline of so many stages and micro-batches fits in memory");
  BatchEvaluator evaluator(context.oracle, context.budget);
  // The first is free, so that there is a plan.
  const auto affordable =
      static_cast<std::size_t>(std::max<std::int64_t>(1, evaluator.evaluations_left()));
  if (strategies.size() > affordable) strategies.resize(affordable);
  const std::vector<Measured> measured = evaluator.evaluate(strategies);
  std::size_t best = 0;
  for (std::size_t i = 1; i < measured.size(); ++i) {
    if (better(measured[i].evaluation, measured[best].evaluation)) best = i;
  }
  return {.strategy = std::move(strategies[best]),
          .evaluation = measured[best].evaluation,
          .evaluations = evaluator.evaluations()};
}

constexpr std::size_t kSimulated = 24;

// About: an op once a micro-batch on each device of its stage.
std::size_t tasks_of(const cost::Problem& problem, const Pool& pool, const Promising& one) {
  std::size_t replicas = 0;
  for (const Stage& stage : one.stages) {
    replicas += (stage.end - stage.begin) * stage.devices.size();
  }
  const auto micro_batches = static_cast<std::size_t>(pool.micro_batches[one.costs]);
  return problem.folded->ops.size() * micro_batches * replicas / pool.chain.layers.size();
}

class Spp final : public Planner {
 public:
  explicit Spp(const PipelineOptions& options) : options_(options) {}
  PlannerResult plan(PlannerContext& context) const override {
    if (options_.form == PipelineOptions::Form::kOurs) {
      return best_of(promising_pipelines(context.problem(), {.count = kSimulated}, options_),
                     context);
    }
    // Algorithm 3: for each number of stages the best partition, in the order of PE.
    const Pool pool = promising_pool(context.problem(), options_);
    std::vector<Strategy> strategies;
    for (const Promising& one : pool.found) {
      strategies.push_back(pool.strategy(context.problem(), one, Schedule::kListed));
    }
    return best_of(std::move(strategies), context);
  }

 private:
  PipelineOptions options_;
};

// About as many layers on each device, in the order of the cluster file.
class GPipe final : public Planner {
 public:
  explicit GPipe(const PipelineOptions& options) : options_(options) {}
  PlannerResult plan(PlannerContext& context) const override {
    const cost::Problem& problem = context.problem();
    const Pool pool(problem, options_);
    const StageCounts counts = stage_counts(
        problem, options_.stages > 0 ? options_.stages
                                     : static_cast<std::int64_t>(problem.cluster->device_count()));
    std::vector<Stage> stages;
    const std::size_t layers = pool.chain.layers.size(), count = std::min(counts.last, layers);
    for (std::size_t s = 0; s < count; ++s) {
      stages.push_back({s * layers / count, (s + 1) * layers / count, {DeviceId(s)}});
    }
    std::vector<Strategy> strategies;
    for (std::size_t m = 0; m < pool.micro_batches.size(); ++m) {
      strategies.push_back(
          pool.strategy(problem, {.stages = stages, .costs = m}, Schedule::kForwardFirst));
    }
    return best_of(std::move(strategies), context);
  }

 private:
  PipelineOptions options_;
};

// Stages in the order of the cluster file, with replicas, so that the slowest is fastest.
class PipeDream final : public Planner {
 public:
  explicit PipeDream(const PipelineOptions& options) : options_(options) {}
  PlannerResult plan(PlannerContext& context) const override {
    const cost::Problem& problem = context.problem();
    Pool pool(problem, options_);
    std::vector<DeviceId> line;
    for (DeviceId device : problem.cluster->device_ids()) line.push_back(device);
    const StageCounts counts = stage_counts(problem, options_.stages);
    for (std::size_t s = counts.first; s <= counts.last; ++s) pool.add(line, s, true);
    pool.sort();
    std::vector<Strategy> strategies;
    for (std::size_t i = 0; i < std::min(kSimulated, pool.found.size()); ++i) {
      strategies.push_back(pool.strategy(problem, pool.found[i], Schedule::kOneForwardOneBackward));
    }
    return best_of(std::move(strategies), context);
  }

 private:
  PipelineOptions options_;
};

// A pipeline in each machine, a device a stage, side by side: synchronous, in place of HetPipe's
// waves of stale parameters.
class HetPipe final : public Planner {
 public:
  explicit HetPipe(const PipelineOptions& options) : options_(options) {}
  PlannerResult plan(PlannerContext& context) const override {
    const cost::Problem& problem = context.problem();
    const Pool pool(problem, options_);
    std::vector<Strategy> strategies;
    for (std::size_t m = 0; m < pool.micro_batches.size(); ++m) {
      Pipelines pipelines;
      bool fits = true;
      for (MachineId machine : id_range<MachineId>(problem.cluster->machine_count())) {
        const auto& line = problem.cluster->machine(machine).devices;
        const auto cut = partition(pool.chain, pool.costs[m], line,
                                   {.stages = std::min(line.size(), pool.chain.layers.size()),
                                    .micro_batches = pool.micro_batches[m],
                                    .replicate = line.size() > pool.chain.layers.size()});
        fits = fits && cut.has_value();
        if (cut) pipelines.push_back(*cut);
      }
      if (!fits) continue;
      strategies.push_back(strategy_of(problem, pool.chain, pool.costs[m], pipelines,
                                       pool.micro_batches[m], Schedule::kOneForwardOneBackward));
    }
    return best_of(std::move(strategies), context);
  }

 private:
  PipelineOptions options_;
};

// Data parallelism, or one device, in micro-batches one after the other.
class Accumulate final : public Planner {
 public:
  explicit Accumulate(const PipelineOptions& options) : options_(options) {}
  PlannerResult plan(PlannerContext& context) const override {
    const cost::Problem& problem = context.problem();
    std::vector<Strategy> strategies;
    for (const NamedStrategy& baseline : baseline_strategies(problem)) {
      if (baseline.strategy.order != compiler::OrderPolicy::kRank) continue;
      for (std::int64_t count : micro_batch_counts(problem, options_.micro_batches)) {
        strategies.push_back(compiler::accumulate(problem, baseline.strategy, count));
      }
    }
    return best_of(std::move(strategies), context);
  }

 private:
  PipelineOptions options_;
};

constexpr Field<PipelineOptions> kStages = {
    "stages", "into how many stages the model is cut; 0: whatever is best",
    IntegerField<PipelineOptions>{&PipelineOptions::stages, {0, 4096}}};
constexpr Field<PipelineOptions> kParts = {
    "micro_batches", "into how many parts the batch is cut; 0: whatever is best",
    IntegerField<PipelineOptions>{&PipelineOptions::micro_batches, {0, 65536}}};
constexpr std::array<std::string_view, 2> kFormWords = {"unequal", "paper"};
constexpr std::array<Field<PipelineOptions>, 3> kSppFields = {
    kStages, kParts,
    Field<PipelineOptions>{
        "form",
        "what is believed of stages: unequal devices, shared network cards and memory, or what the "
        "paper has",
        choice<PipelineOptions, &PipelineOptions::form>(kFormWords)}};
constexpr std::array<Field<PipelineOptions>, 2> kFields = {kStages, kParts};
constexpr std::array<Field<PipelineOptions>, 1> kPartsAlone = {kParts};

template <class Kind>
PlannerEntry entry(std::string_view name, std::string_view one_line,
                   std::span<const Field<PipelineOptions>> fields) {
  return planner_entry<PipelineOptions>(name, one_line, fields, [](const PipelineOptions& options) {
    return std::make_unique<Kind>(options);
  });
}

}  // namespace

Strategy pipeline_strategy(const cost::Problem& problem, const Chain& chain,
                           const StageCosts& costs, std::span<const Stage> stages,
                           std::int64_t micro_batches, Schedule schedule) {
  return strategy_of(problem, chain, costs, {{stages.begin(), stages.end()}}, micro_batches,
                     schedule);
}

std::vector<Strategy> promising_pipelines(const cost::Problem& problem,
                                          const PipelineLimits& limits,
                                          const PipelineOptions& options) {
  const Pool pool = promising_pool(problem, options);
  std::vector<Strategy> strategies;
  std::size_t tasks = 0;
  for (const Promising& one : pool.found) {
    if (strategies.size() >= limits.count || one.seconds > limits.seconds) break;
    for (Schedule schedule : {Schedule::kOneForwardOneBackward, Schedule::kListed}) {
      tasks += tasks_of(problem, pool, one);
      if (!strategies.empty() && tasks > limits.tasks) return strategies;
      strategies.push_back(pool.strategy(problem, one, schedule));
    }
  }
  return strategies;
}

std::vector<PlannerEntry> pipeline_entries() {
  std::vector<PlannerEntry> entries;
  entries.push_back(entry<Accumulate>(
      "accumulate", "data parallelism in micro-batches one after the other", kPartsAlone));
  entries.push_back(entry<GPipe>(
      "gpipe", "a stage a device of as many layers; forward passes, then backward passes",
      kFields));
  entries.push_back(entry<PipeDream>(
      "pipedream", "stages with replicas along the devices; forward and backward in turns",
      kFields));
  entries.push_back(
      entry<HetPipe>("hetpipe", "a pipeline in each machine, side by side", kPartsAlone));
  entries.push_back(entry<Spp>(
      "spp", "stages with replicas along the best line of devices, simulated in many forms",
      kSppFields));
  return entries;
}

}  // namespace heterog::planner
