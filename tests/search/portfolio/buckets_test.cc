// Sizes of buckets that are tried where moves would get there by chance only.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/rng.h"
#include "decide/decisions.h"
#include "oracle/simulated_oracle.h"
#include "search/portfolio/stages.h"
#include "search/problems.h"
#include "search/starts/baselines.h"
#include "search/starts/recomputed.h"

namespace heterog::search::portfolio {
namespace {

class Buckets : public testing::Test {
 protected:
  Search search(std::int64_t evaluations) {
    return {.context = context_,
            .options = options_,
            .evaluator = BatchEvaluator(oracle_, {.evaluations = evaluations}),
            .costly = true,
            .few = false,
            .limited = false,
            .groups = space::summarize_groups(*problem_)};
  }
  Start start(const decide::Strategy& strategy, const char* name) {
    return {{strategy, oracle_.measure({&strategy, 1}).front().evaluation}, name};
  }
  // No step in buckets of this size instead is shorter.
  void expect_no_longer(Nanoseconds step, decide::Strategy other, Bytes bucket) {
    other.bucket_bytes = bucket;
    EXPECT_LE(step, oracle_.measure({&other, 1}).front().evaluation.step) << bucket;
  }

  std::unique_ptr<const cost::Problem> problem_ =
      load_test_problem("bert_large24", "mixed-64gpu", 384);
  ThreadPool pool_{2};
  oracle::SimulatedOracle oracle_{*problem_, pool_};
  PlannerContext context_{.oracle = oracle_, .rng = Rng(1)};
  PortfolioOptions options_{.pipelines = 1};
};

TEST_F(Buckets, OfTheBestStartAreEnlargedWherePlansAreCostly) {
  decide::Strategy even = even_all_reduce(*problem_);
  even.order = decide::OrderPolicy::kRankQueued;
  even.bucket_bytes = decide::kLargeBucketBytes;
  options_.without = Part::kSettling;
  Search search = this->search(8);
  search.starts = {start(even, "even")};
  climb_starts(search);
  for (const int mib : {64, 96, 128, 192, 256}) {
    expect_no_longer(search.result.evaluation.step, even, Bytes{mib} << 20);
  }
}

TEST_F(Buckets, OfPipelinesAndOfWhatRunsAgainAreEnlarged) {
  decide::Strategy even = even_all_reduce(*problem_);
  even.order = decide::OrderPolicy::kRankQueued;
  even.bucket_bytes = decide::kHorovodBucketBytes;
  const decide::Strategy again = recomputed(*problem_, even).front();
  options_.without = Part::kMovedPipelines;
  Search search = this->search(32);
  search.pipelines = {start(again, kRecomputed)};
  consider(search, again, search.pipelines.front().tried.evaluation, kRecomputed);
  try_pipelines(search);
  ASSERT_FALSE(search.pipelines.empty());
  for (const Start& one : search.pipelines) {
    for (const Bytes bucket : {decide::kLargeBucketBytes, decide::kLargestBucketBytes}) {
      expect_no_longer(one.tried.evaluation.step, one.tried.strategy, bucket);
    }
  }
}

}  // namespace
}  // namespace heterog::search::portfolio
