// Placements of single operators train as one device.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cluster/cluster_io.h"
#include "learn/placers/placers.h"
#include "oracle/simulated_oracle.h"
#include "runtime/check/verify.h"
#include "runtime/jobs.h"
#include "search/registry.h"

namespace heterog::runtime {
namespace {

class Placements : public testing::TestWithParam<const char*> {
 protected:
  // What the planners make of so many evaluations is verified. Returns the last of it.
  static search::PlannerResult expect_equal_training(const search::Registry& registry,
                                                     std::initializer_list<const char*> requests,
                                                     std::int64_t evaluations);
};

search::PlannerResult Placements::expect_equal_training(const search::Registry& registry,
                                                        std::initializer_list<const char*> requests,
                                                        std::int64_t evaluations) {
  const auto cluster = std::make_shared<const cluster::Cluster>(
      cluster::load_cluster("configs/clusters/heterog-4gpu.json"));
  const std::shared_ptr<const cost::Problem> problem =
      cost::make_problem(std::make_shared<const graph::ModelGraph>(
                             graph::read_graph("models/" + std::string(GetParam()) + ".json.gz")),
                         cluster, cost::CalibratedModel(), 17);
  ThreadPool pool(1);
  search::PlannerResult found;
  for (const char* request : requests) {
    SCOPED_TRACE(request);
    oracle::SimulatedOracle oracle(*problem, pool);
    search::PlannerContext context{.oracle = oracle};
    context.budget.evaluations = evaluations;
    found = registry.make(request, *cluster)->plan(context);
    const TestJob test = make_test_job(problem, found.strategy);
    EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), 1e-10);
  }
  return found;
}

TEST_P(Placements, TrainAsOneDevice) {
  expect_equal_training(search::Registry(search::builtin_planners()),
                        {"fastt", "fastt:backward=anywhere", "fastt-dpos:backward=anywhere",
                         "m-topo", "m-etf:backward=anywhere", "m-sct", "metis:backward=anywhere",
                         "dfs-topo", "order-place", "celeritas:backward=anywhere"},
                        60);
}

// `plan` finds nothing faster, and improves the order of some.
TEST_P(Placements, OfPlanToo) {
  const auto found =
      expect_equal_training(search::Registry(search::builtin_planners()), {"portfolio"}, 160);
  const bool named =
      found.found_by.starts_with("fastt-dpos") || found.found_by.starts_with("m-etf");
  EXPECT_TRUE(named && !found.strategy.unit_of_op.empty()) << found.found_by;
}

TEST_P(Placements, OfLearnedOnesToo) {
  expect_equal_training(search::Registry(learn::placer_entries()),
                        {"reinforce:groups=12", "hrl:groups=12", "post", "gdp:groups=30"}, 12);
}

INSTANTIATE_TEST_SUITE_P(Models, Placements,
                         testing::Values("bert_large24-tiny", "gnmt4-tiny", "resnet50-tiny",
                                         "transformer6-tiny", "ncf-tiny", "lstm_lm-tiny",
                                         "xlnet_large24-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace heterog::runtime
