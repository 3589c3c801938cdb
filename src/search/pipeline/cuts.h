// Pipelines that may be fast: the best partition of each line of devices, number of stages and of
// micro-batches, by estimate.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "oracle/oracle.h"
#include "search/pipeline/stage_strategy.h"
#include "search/starts/baselines.h"

namespace heterog::search {

struct PipelineOptions {
  std::int64_t stages = 0;         // 0: whatever is best
  std::int64_t micro_batches = 0;  // 0: whatever is best
  enum class Turns : std::uint8_t { kBest, kPriorities, kStrict } turns = Turns::kBest;
  // Where nothing else fits, nowhere, everywhere.
  enum class Recompute : std::uint8_t { kIfNeeded, kNone, kAll } recompute = Recompute::kIfNeeded;
  Sharing replicas = Sharing::kTogether;
  // When gradients of parameters are made: in the turn of their backward pass, or once a device
  // would wait (decide::Pattern::kZeroBubble).
  enum class Gradients : std::uint8_t { kAtOnce, kPutOff } gradients = Gradients::kAtOnce;
  enum class Form : std::uint8_t { kOurs, kPaper } form = Form::kOurs;
  StateOption state = StateOption::kWhole;  // of data parallelism in micro-batches
};

// The turns of backward passes, as the options have it.
decide::Pattern pattern_of(const PipelineOptions& options);

// So many cuts are simulated, unless limits say otherwise.
inline constexpr std::size_t kSimulatedCuts = 24;

// Seconds of a step where there is none.
inline constexpr double kNoStep = 1e30;

// How far to go among the cuts, the best by estimate first.
struct PipelineLimits {
  std::size_t count = kSimulatedCuts;
  std::size_t tasks = std::size_t{1} << 40;  // that their plans come to, about
  std::size_t tasks_each = tasks;            // and that of one of them
  double seconds = 1e30;                     // no estimate above this
  double busiest = 1e30;                     // no stage that computes for longer
  int alike = 3;                             // cuts of one line and number of stages
  bool by_parts = false;                     // or of one number of micro-batches
  std::int64_t least_parts = 1;              // micro-batches
  std::size_t folded = 2;                    // the best of different lines and numbers of stages
  bool every_order = false;   // of those, more of each order of the devices, not of the best alone
  std::size_t others = 1000;  // of those alike the best, but in other numbers of them
  // Judged by what they come to with gradients of parameters put off, in an improved order.
  bool improved = false;
  bool all_patterns = true;  // the best in all others too, whether or not anything fits
  // In passes of layers: what is longer is not simulated as it is; and where the number of plans is
  // limited, so many for one that is left.
  double seconds_in_passes = 1e30;
  std::int64_t for_one = 4;
};

struct StageCounts {
  std::size_t first = 1, last = 1;
};
// Those to try: the one that is given, or 1 to `most` where it is 0. Throws an input error if it is
// greater.
StageCounts stage_counts(const cost::Problem& problem, std::int64_t given, std::size_t most);
// Of planners whose stages the dynamic program finds.
StageCounts stage_counts(const cost::Problem& problem, std::int64_t given);
// The numbers of micro-batches to try: the one that is given, or some up to the batch.
std::vector<std::int64_t> micro_batch_counts(const cost::Problem& problem, std::int64_t given);

std::vector<DeviceId> file_order(const cost::Problem& problem);
// The lines of all devices that are tried, the best first, backwards too.
std::vector<std::vector<DeviceId>> promising_lines(const cost::Problem& problem);
// At most so many layers in a chain that planners cut, but for those cut between blocks.
inline constexpr std::size_t kMostLayers = 64;

// Stages, and what they are of.
struct Cut {
  double seconds = 0;  // a step, by estimate
  double busiest = 0;  // what the stage that computes longest computes in it
  std::vector<Stage> stages;
  std::vector<std::int64_t> samples = {};  // Staging::samples
  std::size_t costs = 0;                   // which micro-batches
  std::size_t line = 0;
  bool recompute = false;
  std::int64_t fewer = 0;  // micro-batches that it runs in instead, if any
};

// What all cuts of a problem share, and the cuts, the best by estimate first.
struct CutPool {
  // A model's layers, and what stages of them cost.
  struct Costed {
    Chain chain;
    std::vector<StageCosts> costs;  // of each number of micro-batches
  };
  PipelineOptions options;
  std::vector<std::int64_t> micro_batches;
  Costed once;                      // forward passes run once
  Costed again;                     // they run again for the backward pass
  std::vector<bool> recomputation;  // which of both the options allow, the faster first
  std::vector<bool> strictness;     // whether they let devices take turns as priorities, strictly
  std::vector<Cut> found;

  // Nothing is found yet. Throws an input error if the options contradict the model.
  CutPool(const cost::Problem& problem, const PipelineOptions& given);
  // The same of a chain, in so many micro-batches.
  CutPool(const cost::Problem& problem, const PipelineOptions& given, Chain chain,
          std::vector<std::int64_t> micro_batches);
  const Costed& of(bool recompute) const { return recompute ? again : once; }

  // The best partition of each line for each number of stages and micro-batches, but for those of
  // more instances of an op than a plan may have; on the threads of `oracle`, or on this one.
  void add(const std::vector<std::vector<DeviceId>>& lines, StageCounts stages,
           oracle::Oracle* oracle = nullptr);

  // `how` but for its micro-batches, what runs again, and how replicas share; of a cut, also its
  // samples.
  decide::Strategy strategy(const cost::Problem& problem, const Pipelines& pipelines,
                            std::size_t micro_batches_at, bool recompute, Staging how) const;
  decide::Strategy strategy(const cost::Problem& problem, const Cut& one, Staging how) const {
    how.samples = one.samples;
    how.micro_batches = parts_of(one);
    how.recompute = one.recompute;
    return staged(problem, {one.stages}, one.costs, how);
  }
  std::int64_t parts_of(const Cut& one) const {
    return one.fewer > 0 ? one.fewer : micro_batches[one.costs];
  }

  // The best by estimate, but few of one line and number of stages: neighbours are alike, and what
  // the estimate is wrong about in one it is wrong about in all.
  std::vector<const Cut*> choose(const PipelineLimits& limits) const;
  // Of the line and number of stages of one of `cuts`, but none of `known`, none that computes for
  // longer than `seconds` or has more tasks than `limits` say of one, and none whose estimate is
  // far above that of all `cuts`; the best by estimate, as many as `limits` allow.
  std::vector<const Cut*> alike(const std::vector<const Cut*>& cuts,
                                const std::vector<const Cut*>& known, double seconds,
                                const PipelineLimits& limits) const;
  // The best by estimate of those with too many tasks, in fewer micro-batches: as many as `limits`
  // allow of one plan, and the next smaller numbers of them.
  std::vector<Cut> in_fewer(const PipelineLimits& limits) const;
  // Of a cut's plan, about: an op once a micro-batch on each device of its stage.
  std::size_t tasks(const Cut& one) const;

 private:
  // Of one number of micro-batches: a cut a number of stages, of the fewest first.
  std::vector<std::optional<Cut>> cut_line(const std::vector<DeviceId>& devices, std::size_t number,
                                           StageCounts stages, std::size_t micro_batches_at) const;
  bool allows(const Cut& cut) const;
  decide::Strategy staged(const cost::Problem& problem, const Pipelines& pipelines,
                          std::size_t micro_batches_at, Staging how) const;
  // [line × micro-batches][number of stages], in the order of lines, stages, micro-batches: of
  // equals the first is preferred.
  void keep(std::vector<std::vector<std::optional<Cut>>> cuts, std::size_t lines,
            StageCounts stages);

  std::size_t ops_;  // that become tasks
  std::int64_t batch_;
  std::int64_t most_instances_;  // of each op
};

// Along the best lines of devices, backwards too. Of the paper's form along one.
CutPool promising_pool(oracle::Oracle& oracle, const PipelineOptions& options);

}  // namespace heterog::search
