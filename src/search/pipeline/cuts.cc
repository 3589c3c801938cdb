// Chains of layers with their costs, and the dynamic program along every line.
#include "search/pipeline/cuts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "decide/decisions.h"
#include "decide/micro_batches.h"
#include "search/pipeline/device_order.h"

namespace heterog::search {
namespace {

CutPool::Costed costed(const cost::Problem& problem, Chain chain,
                       const std::vector<std::int64_t>& micro_batches, PipelineOptions::Form form) {
  CutPool::Costed made{std::move(chain), {}};
  LayerTimes times(problem, made.chain);
  for (std::int64_t count : micro_batches) {
    made.costs.emplace_back(times, count, form == PipelineOptions::Form::kPaper);
  }
  return made;
}

}  // namespace

decide::Pattern pattern_of(const PipelineOptions& options) {
  return options.gradients == PipelineOptions::Gradients::kPutOff
             ? decide::Pattern::kZeroBubble
             : decide::Pattern::kOneForwardOneBackward;
}

std::vector<std::int64_t> micro_batch_counts(const cost::Problem& problem, std::int64_t given) {
  VALIDATE(given <= problem.batch, "micro_batches: {} of a batch of {}; expected at most {}", given,
           problem.batch, problem.batch);
  decide::check_instances(problem, given, fmt::format("micro_batches: {}", given));
  if (given > 0) return {given};
  std::vector<std::int64_t> counts;
  for (std::int64_t count : decide::kPipelineParts) {
    if (count <= problem.batch) counts.push_back(count);
  }
  if (counts.empty()) counts.push_back(1);
  return counts;
}

StageCounts stage_counts(const cost::Problem& problem, std::int64_t given, std::size_t most) {
  VALIDATE(given <= static_cast<std::int64_t>(most),
           "stages: {} on {} devices; expected at most {}", given, problem.cluster->device_count(),
           most);
  if (given > 0) return {static_cast<std::size_t>(given), static_cast<std::size_t>(given)};
  return {1, most};
}
StageCounts stage_counts(const cost::Problem& problem, std::int64_t given) {
  return stage_counts(problem, given, most_stages(*problem.cluster));
}

CutPool::CutPool(const cost::Problem& problem, const PipelineOptions& given)
    : CutPool(problem, given, make_chain_of_blocks(problem, kMostLayers),
              micro_batch_counts(problem, given.micro_batches)) {}

CutPool::CutPool(const cost::Problem& problem, const PipelineOptions& given, Chain chain,
                 std::vector<std::int64_t> counts)
    : options(given),
      micro_batches(std::move(counts)),
      once(costed(problem, std::move(chain), micro_batches, given.form)),
      ops_(problem.folded->ops.size()),
      batch_(problem.batch),
      most_instances_(decide::most_instances_of_each(problem)) {
  using Recompute = PipelineOptions::Recompute;
  using Turns = PipelineOptions::Turns;
  if (given.recompute != Recompute::kAll) recomputation.push_back(false);
  if (given.recompute != Recompute::kNone) {
    recomputation.push_back(true);
    again = costed(problem, recomputed(once.chain), micro_batches, given.form);
  }
  const bool strict = given.turns != Turns::kPriorities && in_line(problem, once.chain);
  VALIDATE(
      given.turns != Turns::kStrict || strict,
      "turns: strict, but layers of this model wait for later layers, or for all micro-batches "
      "(batch normalisation); expected priorities");
  if (given.turns != Turns::kStrict) strictness.push_back(false);
  if (strict) strictness.push_back(true);
}

std::vector<std::optional<Cut>> CutPool::cut_line(const std::vector<DeviceId>& devices,
                                                  std::size_t number, StageCounts stages,
                                                  std::size_t micro_batches_at) const {
  const std::size_t m = micro_batches_at;
  const Line line(once.costs.front(), devices);
  std::vector<std::optional<Cut>> cuts(stages.last - stages.first + 1);
  for (bool recompute : recomputation) {
    const StageCosts& costs = of(recompute).costs[m];
    // To run again costs time, and is for what would not fit.
    if (std::ranges::all_of(cuts, [](const auto& cut) { return cut.has_value(); })) break;
    const Partitioner partitioner(costs, line, micro_batches[m], stages.last);
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      if (cuts[i]) continue;
      const auto made = partitioner.partition(stages.first + i);
      if (!made) continue;
      cuts[i] = {.seconds = estimate_step(costs, *made, micro_batches[m]),
                 .busiest = busiest_stage(costs, *made, micro_batches[m]),
                 .stages = *made,
                 .costs = m,
                 .line = number,
                 .recompute = recompute};
    }
  }
  return cuts;
}

void CutPool::add(const std::vector<std::vector<DeviceId>>& lines, StageCounts stages,
                  oracle::Oracle* oracle) {
  const std::size_t ways = micro_batches.size();
  std::vector<std::vector<std::optional<Cut>>> cuts(lines.size() * ways);
  const auto cut = [&](std::size_t i) {
    cuts[i] = cut_line(lines[i / ways], i / ways, stages, i % ways);
  };
  if (oracle != nullptr) {
    oracle->for_each(cuts.size(), cut);
  } else {
    for (std::size_t i = 0; i < cuts.size(); ++i) cut(i);
  }
  keep(std::move(cuts), lines.size(), stages);
}

bool CutPool::allows(const Cut& cut) const {
  return std::ranges::all_of(cut.stages, [&](const Stage& stage) {
    const std::int64_t instances = micro_batches[cut.costs] * std::ssize(stage.devices);
    return std::min(batch_, instances) <= most_instances_;
  });
}

void CutPool::keep(std::vector<std::vector<std::optional<Cut>>> cuts, std::size_t lines,
                   StageCounts stages) {
  const std::size_t ways = micro_batches.size();
  for (std::size_t line = 0; line < lines; ++line) {
    for (std::size_t count = 0; count <= stages.last - stages.first; ++count) {
      for (std::size_t m = 0; m < ways; ++m) {
        std::optional<Cut>& cut = cuts[line * ways + m][count];
        if (cut && allows(*cut)) found.push_back(std::move(*cut));
      }
    }
  }
  std::ranges::stable_sort(found, {}, &Cut::seconds);
}

decide::Strategy CutPool::strategy(const cost::Problem& problem, const Pipelines& pipelines,
                                   std::size_t micro_batches_at, bool recompute,
                                   Staging how) const {
  how.micro_batches = micro_batches[micro_batches_at];
  how.recompute = recompute;
  return staged(problem, pipelines, micro_batches_at, how);
}

decide::Strategy CutPool::staged(const cost::Problem& problem, const Pipelines& pipelines,
                                 std::size_t micro_batches_at, Staging how) const {
  how.sharing = options.replicas;
  const Costed& kind = of(how.recompute);
  return stage_strategy(problem, kind.chain, kind.costs[micro_batches_at], pipelines, how);
}

std::size_t CutPool::tasks(const Cut& one) const {
  std::size_t replicas = 0;
  for (const Stage& stage : one.stages) {
    replicas += (stage.end - stage.begin) * stage.devices.size();
  }
  const auto parts = static_cast<std::size_t>(parts_of(one));
  return ops_ * parts * replicas / once.chain.layers.size();
}

std::vector<const Cut*> CutPool::choose(const PipelineLimits& limits) const {
  std::map<std::pair<std::size_t, std::size_t>, int> alike;
  std::vector<const Cut*> chosen;
  std::size_t all = 0;
  for (const Cut& one : found) {
    if (chosen.size() >= limits.count || one.seconds > limits.seconds) break;
    if (one.busiest > limits.busiest) continue;
    if (micro_batches[one.costs] < limits.least_parts) continue;
    const std::size_t own = tasks(one);
    if (own > limits.tasks_each) continue;
    const auto kind = limits.by_parts ? std::pair(one.costs, std::size_t{0})
                                      : std::pair(one.line, one.stages.size());
    if (++alike[kind] > limits.alike) continue;
    all += own;
    if (!chosen.empty() && all > limits.tasks) break;
    chosen.push_back(&one);
  }
  return chosen;
}

std::vector<const Cut*> CutPool::alike(const std::vector<const Cut*>& cuts,
                                       const std::vector<const Cut*>& known, double seconds,
                                       const PipelineLimits& limits) const {
  // In so much more than the best of `cuts` takes by estimate, no number of micro-batches has won.
  constexpr double kHopeless = 1.5;
  // So many times the tasks of those that were chosen.
  constexpr std::size_t kMoreOfALine = 4;
  double least = std::numeric_limits<double>::infinity();
  for (const Cut* cut : cuts) least = std::min(least, cut->seconds);
  std::vector<const Cut*> chosen;
  std::size_t all = 0;
  for (const Cut& one : found) {
    if (chosen.size() >= limits.others) break;
    if (one.busiest > seconds || one.seconds > kHopeless * least) continue;
    const std::size_t own = tasks(one);
    if (own > limits.tasks_each) continue;
    const bool is_alike = std::ranges::any_of(cuts, [&](const Cut* cut) {
      return cut->line == one.line && cut->stages.size() == one.stages.size();
    });
    if (!is_alike || std::ranges::find(known, &one) != known.end()) continue;
    all += own;
    if (!chosen.empty() && all > kMoreOfALine * limits.tasks) break;
    chosen.push_back(&one);
  }
  return chosen;
}

std::vector<Cut> CutPool::in_fewer(const PipelineLimits& limits) const {
  const auto large = std::ranges::find_if(found, [&](const Cut& one) {
    return one.busiest <= limits.busiest && tasks(one) > limits.tasks_each;
  });
  std::vector<Cut> fewer;
  if (large == found.end() || large->seconds > limits.seconds) return fewer;
  for (auto parts = micro_batches.rbegin(); parts != micro_batches.rend(); ++parts) {
    Cut one = *large;
    one.fewer = *parts;
    if (*parts >= parts_of(*large) || *parts < limits.least_parts) continue;
    if (tasks(one) <= limits.tasks_each) fewer.push_back(std::move(one));
  }
  return fewer;
}

std::vector<DeviceId> file_order(const cost::Problem& problem) {
  std::vector<DeviceId> line;
  for (DeviceId device : problem.cluster->device_ids()) line.push_back(device);
  return line;
}

std::vector<std::vector<DeviceId>> promising_lines(const cost::Problem& problem) {
  // Minimum cuts take the fourth power of the devices.
  constexpr std::size_t kMostCut = 64;
  std::vector<std::vector<DeviceId>> lines = {problem.cluster->device_count() > kMostCut
                                                  ? file_order(problem)
                                                  : recursive_device_order(*problem.cluster)};
  // People list their machines in an order of their own, the fastest first say. And stages on
  // unequal devices are not the same backwards.
  lines.push_back(file_order(problem));
  for (std::size_t i = 0; i < 2; ++i) lines.emplace_back(lines[i].rbegin(), lines[i].rend());
  std::vector<std::vector<DeviceId>> different;
  for (std::vector<DeviceId>& line : lines) {
    if (std::ranges::find(different, line) == different.end()) different.push_back(std::move(line));
  }
  return different;
}

CutPool promising_pool(oracle::Oracle& oracle, const PipelineOptions& options) {
  const cost::Problem& problem = oracle.problem();
  CutPool pool(problem, options);
  std::vector<std::vector<DeviceId>> lines = promising_lines(problem);
  if (options.form == PipelineOptions::Form::kPaper) lines.resize(1);
  pool.add(lines, stage_counts(problem, options.stages), &oracle);
  return pool;
}

}  // namespace heterog::search
