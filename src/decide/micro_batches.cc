// Deals every micro-batch out: to pipelines side by side first, then to the devices of each.
#include "decide/micro_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "decide/decisions.h"

namespace heterog::decide {
namespace {

using Samples = std::vector<std::int64_t>;

// Of what is `left` of each entry, its part of the next `samples`: in proportion, by largest
// remainder (ties: the earlier), and never more than is left.
Samples next_part(const Samples& left, std::int64_t samples) {
  const std::int64_t all = std::accumulate(left.begin(), left.end(), std::int64_t{0});
  Samples part, remainder;
  std::vector<std::size_t> by_remainder;
  std::int64_t given = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    part.push_back(left[i] * samples / all);
    remainder.push_back(left[i] * samples % all);
    by_remainder.push_back(i);
    given += part.back();
  }
  std::stable_sort(by_remainder.begin(), by_remainder.end(),
                   [&](std::size_t a, std::size_t b) { return remainder[a] > remainder[b]; });
  for (std::size_t i = 0; given < samples; ++i, ++given) ++part[by_remainder[i]];
  return part;
}

// All samples to the entry of which most is left, which may have less left than that.
Samples all_to_one(const Samples& left, std::int64_t samples) {
  Samples part(left.size(), 0);
  part[static_cast<std::size_t>(std::ranges::max_element(left) - left.begin())] = samples;
  return part;
}

// The slices of a decision that belong to one pipeline, and what is left of each.
struct OfPipeline {
  std::uint32_t pipeline = 0;
  std::vector<DeviceId> devices;
  Samples left;
};

// In the order of their first slices.
std::vector<OfPipeline> by_pipeline(const Strategy& strategy, const std::vector<Slice>& slices) {
  std::vector<OfPipeline> all;
  for (const Slice& slice : slices) {
    const std::uint32_t pipeline = pipeline_of(strategy, slice.device);
    auto at = std::ranges::find(all, pipeline, &OfPipeline::pipeline);
    if (at == all.end()) at = all.insert(at, OfPipeline{pipeline, {}, {}});
    at->devices.push_back(slice.device);
    at->left.push_back(slice.size());
  }
  return all;
}

}  // namespace

std::int64_t most_instances_of_each(const cost::Problem& problem) {
  const auto ops = static_cast<std::int64_t>(problem.folded->ops.size());
  return std::max<std::int64_t>(1, kMostInstances / std::max<std::int64_t>(1, ops));
}

void check_instances(const cost::Problem& problem, std::int64_t of_each, std::string_view source) {
  VALIDATE(of_each <= most_instances_of_each(problem),
           "{}: {} instances of each of {} ops; expected at most {} of each, {} in all", source,
           of_each, problem.folded->ops.size(), most_instances_of_each(problem), kMostInstances);
}

std::int64_t most_instances(const Strategy& strategy, std::int64_t batch) {
  if (strategy.micro_batches == 1) return 1;
  std::size_t devices = 1;  // that take part in a micro-batch
  for (const UnitDecision& unit : strategy.units) {
    const bool one_at_a_time = unit.in_turn && strategy.pipeline_of.empty();
    if (!one_at_a_time) devices = std::max(devices, unit.replicas.size());
  }
  // Each has a sample of a micro-batch at the least, or is not in it.
  return std::min(batch, strategy.micro_batches * static_cast<std::int64_t>(devices));
}

Strategy accumulate(const cost::Problem& problem, Strategy strategy, std::int64_t micro_batches) {
  const std::int64_t most = problem.batch / strategy.micro_batches;
  const std::string of_each =
      strategy.micro_batches == 1
          ? ""
          : fmt::format("each of {} micro-batches of ", strategy.micro_batches);
  VALIDATE(micro_batches >= 1 && micro_batches <= most,
           "{} micro-batches of {}a batch of {}; expected 1 to {}", micro_batches, of_each,
           problem.batch, most);
  if (micro_batches == 1) return strategy;
  // Priorities of instances that are no more say nothing of those that are.
  const bool had_its_own = !strategy.priorities.empty();
  strategy.order_rounds = 0;
  if (had_its_own) set_plain_order(strategy, OrderPolicy::kRankQueued);
  strategy.micro_batches *= micro_batches;
  if (strategy.pattern == Pattern::kNone) {
    strategy.pattern = Pattern::kDepthFirst;
    strategy.order = OrderPolicy::kPriority;
  }
  check_instances(problem, most_instances(strategy, problem.batch),
                  fmt::format("{} micro-batches", strategy.micro_batches));
  return strategy;
}

bool can_accumulate(const cost::Problem& problem, const Strategy& strategy,
                    std::int64_t micro_batches) {
  if (micro_batches < 1 || micro_batches > problem.batch / strategy.micro_batches) return false;
  Strategy cut = strategy;
  cut.micro_batches *= micro_batches;
  return most_instances(cut, problem.batch) <= most_instances_of_each(problem);
}

std::vector<std::int64_t> possible_parts(const cost::Problem& problem, const Strategy& strategy) {
  Strategy cut = strategy;
  cut.micro_batches = 1;
  std::vector<std::int64_t> possible;
  for (std::int64_t parts : kPipelineParts) {
    if (can_accumulate(problem, cut, parts)) possible.push_back(parts);
  }
  return possible;
}

Strategy in_pipeline(const cost::Problem& problem, Strategy strategy, std::int64_t micro_batches) {
  if (micro_batches == 1 && strategy.micro_batches == 1) return strategy;
  strategy.micro_batches = 1;
  strategy.pattern = Pattern::kNone;
  strategy.strict = false;
  set_plain_order(strategy, OrderPolicy::kRankQueued);
  if (micro_batches == 1) return strategy;
  strategy.pattern = Pattern::kZeroBubble;
  strategy = accumulate(problem, std::move(strategy), micro_batches);
  strategy.order = OrderPolicy::kPriority;
  strategy.order_rounds = 1;
  return strategy;
}

std::vector<Slice> slices_of(const Strategy& strategy, const UnitDecision& decision,
                             std::int64_t batch) {
  std::vector<Slice> whole = slice_batch(decision.replicas, batch);
  if (strategy.micro_batches == 1) return whole;
  std::vector<OfPipeline> pipelines = by_pipeline(strategy, whole);
  Samples pipeline_left;
  for (const OfPipeline& one : pipelines) {
    pipeline_left.push_back(std::accumulate(one.left.begin(), one.left.end(), std::int64_t{0}));
  }
  const auto begins = micro_batch_boundaries(batch, strategy.micro_batches);
  std::vector<Slice> slices;
  for (std::size_t m = 0; m + 1 < begins.size(); ++m) {
    const Samples of_pipeline = next_part(pipeline_left, begins[m + 1] - begins[m]);
    std::int64_t at = begins[m];
    for (std::size_t p = 0; p < pipelines.size(); ++p) {
      pipeline_left[p] -= of_pipeline[p];
      if (of_pipeline[p] == 0) continue;
      OfPipeline& one = pipelines[p];
      const Samples part = decision.in_turn ? all_to_one(one.left, of_pipeline[p])
                                            : next_part(one.left, of_pipeline[p]);
      for (std::size_t i = 0; i < part.size(); ++i) {
        one.left[i] -= part[i];
        if (part[i] > 0) slices.push_back({one.devices[i], at, at + part[i]});
        at += part[i];
      }
    }
  }
  return slices;
}

std::vector<std::int64_t> micro_batch_boundaries(std::int64_t batch, std::int64_t micro_batches) {
  std::vector<std::int64_t> boundaries;
  for (std::int64_t i = 0; i <= micro_batches; ++i) boundaries.push_back(batch * i / micro_batches);
  return boundaries;
}

std::int64_t micro_batch_of(const std::vector<std::int64_t>& boundaries, std::int64_t sample) {
  return std::ranges::upper_bound(boundaries, sample) - boundaries.begin() - 1;
}

}  // namespace heterog::decide
