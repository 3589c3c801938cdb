// Devices there and back, against all ways to cut a model between two of them; and as what `plan`
// tries.
#include "search/pipeline/folded.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "oracle/evaluator.h"
#include "search/pipeline/pipelines.h"
#include "search/problems.h"

namespace heterog::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The least time in which a first set with `part` before the middle, and a second, hold all layers.
double least_of_two(const StageCosts& costs, const std::vector<std::vector<DeviceId>>& devices,
                    double part) {
  double least = kNever;
  for (std::size_t there = 0; there <= costs.layers(); ++there) {
    for (std::size_t back = there; back <= costs.layers(); ++back) {
      const double first = costs.compute(0, there, devices[0]);
      const double last = costs.compute(back, costs.layers(), devices[0]);
      const double middle = costs.compute(there, back, devices[1]);
      least = std::min(least, std::max({first / part, first + last, middle}));
    }
  }
  return least;
}

TEST(Folded, TwoSetsOfDevicesComputeForAsLittleAsOfAllCuts) {
  const auto problem = load_test_problem("bert_large24", "heterog-4gpu", 32);
  const CutPool pool(*problem, {});
  const StageCosts& costs = pool.once.costs[3];
  const std::vector<std::vector<DeviceId>> devices = {{DeviceId(2), DeviceId(3)}, {DeviceId(0)}};
  for (double part : {0.2, 0.5, 0.8}) {
    const std::vector<Stage> stages = fold(costs, devices, part);
    ASSERT_EQ(stages.size(), 3u);
    EXPECT_EQ(stages[0].devices, devices[0]);
    EXPECT_EQ(stages[1].devices, devices[1]);
    EXPECT_EQ(stages[2].devices, devices[0]);
    EXPECT_LE(costs.compute(0, stages[0].end, devices[0]),
              1.001 * part * busiest_stage(costs, stages, 1));
    EXPECT_LE(busiest_stage(costs, stages, 1), 1.02 * least_of_two(costs, devices, part));
  }
}

TEST(Folded, HoldAllLayersOfAnyNumberOfSets) {
  const auto problem = load_test_problem("bert_large24", "heterog-8gpu", 32);
  const CutPool pool(*problem, {});
  for (std::size_t m = 0; m < pool.micro_batches.size(); ++m) {
    const StageCosts& costs = pool.once.costs[m];
    std::vector<std::vector<DeviceId>> devices;
    for (DeviceId device : problem->cluster->device_ids()) {
      devices.push_back({device});
      for (double part : {0.1, 0.5, 0.9}) {
        const std::vector<Stage> stages = fold(costs, devices, part);
        EXPECT_LE(stages.size(), 2 * devices.size() - 1);
        EXPECT_EQ(stages.back().end, costs.layers());
        for (std::size_t s = 0; s < stages.size(); ++s) {
          EXPECT_LT(stages[s].begin, stages[s].end);
          EXPECT_EQ(stages[s].begin, s == 0 ? 0 : stages[s - 1].end);
        }
      }
    }
  }
}

struct Tries {
  double folded = kNever, others = kNever;  // seconds of the shortest steps
  std::size_t count = 0;                    // of folded ones
};
Tries try_all(const std::string& model, const std::string& cluster, std::int64_t batch) {
  const auto problem = load_test_problem(model, cluster, batch);
  oracle::Evaluator evaluator(*problem);
  BatchEvaluator evaluations(evaluator);
  const TriedPipelines tried =
      try_pipelines(evaluations, {.count = 12, .improved = true, .all_patterns = false});
  Tries tries;
  for (const TriedPipelines::One& one : tried.all) {
    const bool is_folded =
        std::ranges::any_of(tried.folded, [&](const Cut& cut) { return &cut == one.cut; });
    tries.count += is_folded ? 1 : 0;
    double& least = is_folded ? tries.folded : tries.others;
    least = std::min(least, to_seconds(one.evaluation.step));
  }
  return tries;
}

TEST(Folded, MakeStepsShorter) {
  const Tries tries = try_all("bert_large24", "heterog-8gpu", 48);
  EXPECT_LT(tries.folded, 0.95 * tries.others);
}

// What crosses once more costs more than what waits.
TEST(Folded, AreNotTriedWhereActivationsAreLarge) {
  EXPECT_EQ(try_all("vgg19", "workstation-3090-4090", 64).count, 0u);
}

}  // namespace
}  // namespace heterog::search
