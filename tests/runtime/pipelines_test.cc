// Pipelines as planners make them train as one device.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cluster/cluster_io.h"
#include "oracle/simulated_oracle.h"
#include "runtime/check/verify.h"
#include "runtime/jobs.h"
#include "search/moves/move.h"
#include "search/moves/moves.h"
#include "search/pipeline/stage_strategy.h"
#include "search/registry.h"

namespace heterog::runtime {
namespace {

struct PipelineCase {
  const char* model;
  const char* cluster;
  std::int64_t batch;
  int micro_batches;
};

std::shared_ptr<const cost::Problem> problem_on_cluster(const PipelineCase& one) {
  const auto cluster = std::make_shared<const cluster::Cluster>(
      cluster::load_cluster("configs/clusters/" + std::string(one.cluster) + ".json"));
  return cost::make_problem(std::make_shared<const graph::ModelGraph>(
                                graph::read_graph("models/" + std::string(one.model) + ".json.gz")),
                            cluster, cost::CalibratedModel(), one.batch);
}

class Pipelines : public testing::TestWithParam<PipelineCase> {};

TEST_P(Pipelines, TrainAsOneDevice) {
  const auto problem = problem_on_cluster(GetParam());
  const int micro_batches = GetParam().micro_batches;
  const search::Registry registry(search::builtin_planners());
  ThreadPool pool(1);
  for (const char* planner :
       {"spp:turns=strict,", "spp:turns=priorities,recompute=all,",
        "gpipe:turns=strict,recompute=all,", "pipedream:turns=priorities,replicas=in-turn,",
        "spp:turns=strict,gradients=put-off,", "spp:turns=priorities,gradients=put-off,",
        "hetpipe:turns=strict,", "folded:", "folded:recompute=all,", "accumulate:"}) {
    SCOPED_TRACE(planner);
    oracle::SimulatedOracle oracle(*problem, pool);
    search::PlannerContext context{.oracle = oracle};
    const std::string request =
        std::string(planner) + "micro_batches=" + std::to_string(micro_batches);
    const auto found = registry.make(request, *problem->cluster)->plan(context);
    EXPECT_EQ(found.strategy.micro_batches, micro_batches);
    const TestJob test = make_test_job(problem, found.strategy);
    EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), 1e-10);
  }
}

// What a search makes of a pipeline: layers on other devices, other shares, micro-batches and
// turns.
TEST_P(Pipelines, TrainAsOneDeviceWhateverIsMoved) {
  const auto problem = problem_on_cluster(GetParam());
  const int micro_batches = GetParam().micro_batches;
  const search::Registry registry(search::builtin_planners());
  ThreadPool pool(1);
  oracle::SimulatedOracle oracle(*problem, pool);
  search::PlannerContext context{.oracle = oracle};
  const std::string request = "spp:micro_batches=" + std::to_string(micro_batches);
  const auto found = registry.make(request, *problem->cluster)->plan(context);
  const cost::Problem of_units = search::with_units(*problem, found.strategy);
  const search::MoveMaker maker(of_units);
  search::Incumbent at{found.strategy, {}};
  at.measured.peak_bytes.assign(problem->cluster->place_count(), Bytes{1} << 60);
  Rng rng(static_cast<std::uint64_t>(problem->batch));
  for (int i = 0; i < 12; ++i) {
    const auto kind = static_cast<search::MoveKind>(rng.below(search::kMoveKindCount));
    at.strategy = maker.moved_to(at.strategy, maker.propose(at, kind, rng));
    if (i % 3 != 2) continue;
    SCOPED_TRACE(i);
    const TestJob test = make_test_job(problem, search::in_one_spelling(at.strategy));
    EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), 1e-10);
  }
}

// Gradients of parameters put off, a tied table in the last stage alone, dispatched in rounds of a
// better order: as search judges pipelines.
TEST_P(Pipelines, TrainAsOneDeviceInRoundsOfABetterOrder) {
  const auto problem = problem_on_cluster(GetParam());
  const search::Chain chain = search::make_chain(*problem, 8);
  search::LayerTimes times(*problem, chain);
  const search::StageCosts costs(times, GetParam().micro_batches, false);
  const std::size_t layers = chain.layers.size();
  const search::Pipelines pipelines = {
      {{0, layers / 2, {DeviceId(0), DeviceId(2)}}, {layers / 2, layers, {DeviceId(1)}}}};
  const decide::Strategy strategy =
      search::stage_strategy(*problem, chain, costs, pipelines,
                             {.micro_batches = GetParam().micro_batches,
                              .pattern = decide::Pattern::kZeroBubble,
                              .order_rounds = 2,
                              .tied_together = true});
  const TestJob test = make_test_job(problem, strategy);
  EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), 1e-10);
}

// Both ends of a pipeline make the half-precision copy of the table of words: its gradient is that
// of one device.
TEST(PipelinesOfHalfPrecision, BothEndsCopyWhatTheyShare) {
  const auto cluster = std::make_shared<const cluster::Cluster>(
      cluster::load_cluster("configs/clusters/fastt-4gpu.json"));
  const std::shared_ptr<const cost::Problem> problem =
      cost::make_problem(std::make_shared<const graph::ModelGraph>(
                             graph::read_graph("tests/data/masters_bfloat16.json.gz")),
                         cluster, cost::CalibratedModel(), 8);
  const search::Chain chain = search::make_chain(*problem, 6);
  search::LayerTimes times(*problem, chain);
  const search::StageCosts costs(times, 2, false);
  const search::Pipelines pipelines = {
      {{0, 3, {DeviceId(0), DeviceId(2)}}, {3, chain.layers.size(), {DeviceId(1), DeviceId(3)}}}};
  for (const bool strict : {false, true}) {
    const decide::Strategy strategy = search::stage_strategy(
        *problem, chain, costs, pipelines,
        {.micro_batches = 2, .strict = strict, .copies = search::Copies::kWhereRead});
    const TestJob test = make_test_job(problem, strategy);
    EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), 1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Pipelines,
                         testing::Values(PipelineCase{"bert_large24-tiny", "heterog-4gpu", 17, 3},
                                         PipelineCase{"gnmt4-tiny", "heterog-4gpu", 16, 5},
                                         PipelineCase{"transformer6-tiny", "office-mixed", 17, 2},
                                         PipelineCase{"vgg19-tiny", "spp-a", 16, 2}),
                         [](const auto& info) {
                           std::string name = info.param.model;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace heterog::runtime
