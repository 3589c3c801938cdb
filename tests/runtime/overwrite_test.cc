// Operators write over operands that nobody reads again: that they do (that the results stay exact
// is what the verification shows).
#include <gtest/gtest.h>

#include <map>

#include "runtime/exec/random_data.h"
#include "runtime/jobs.h"
#include "runtime/ranks/team.h"

namespace heterog::runtime {
namespace {

std::int64_t overwrites_of(const std::string& path, int devices) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph(path), static_cast<std::size_t>(devices), 8);
  const TestJob test = make_test_job(
      problem, weighted(*problem, std::vector<double>(static_cast<std::size_t>(devices), 1),
                        decide::SyncMethod::kAllReduce));
  Team team(test.job, IdVector<DeviceId, WorkerOptions>(test.job.programs.size(), {}));
  const graph::ModelGraph& graph = *problem->graph;
  const auto values = random_residents(graph, 1, Floats::kOwn);
  for (TensorId id : graph.tensor_ids()) {
    if (values[id].defined()) team.set_resident(id, values[id]);
  }
  std::int64_t overwrites = 0;
  for (std::int64_t step = 1; step <= 2; ++step) {  // counted anew in each
    overwrites = 0;
    for (const StepResult& result :
         team.step(step, random_inputs(graph, problem->batch, 1, step, Floats::kOwn))) {
      overwrites += result.overwrites;
    }
  }
  return overwrites;
}

// Each of four parameters and its momentum, and the division of the loss: 9 tensors, three times on
// three devices.
TEST(Overwrite, UpdatesReplaceWhatTheyRead) {
  EXPECT_EQ(overwrites_of("tests/data/mlp_sgd.json.gz", 1), 9);
  EXPECT_EQ(overwrites_of("tests/data/mlp_sgd.json.gz", 3), 27);
}

// A batch normalisation writes the next running statistics where the old ones were.
TEST(Overwrite, RunningStatisticsStayWhereTheyAre) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph("models/resnet50-tiny.json.gz"), 1, 8);
  const TestJob test =
      make_test_job(problem, weighted(*problem, {1}, decide::SyncMethod::kAllReduce));
  Team team(test.job, IdVector<DeviceId, WorkerOptions>(std::vector<WorkerOptions>{{}}));
  const graph::ModelGraph& graph = *problem->graph;
  const auto values = random_residents(graph, 1, Floats::kOwn);
  Worker& worker = team.worker(DeviceId(0));
  std::map<TensorId, const void*> places;
  for (TensorId id : worker.residents()) {
    worker.set_resident(id, values[id]);
    const bool is_statistic =
        graph.tensor(id).role == graph::TensorRole::kBuffer && values[id].is_floating_point();
    if (is_statistic) places[id] = worker.resident(id).const_data_ptr();
  }
  EXPECT_GE(places.size(), 30u);
  team.step(1, random_inputs(graph, problem->batch, 1, 1, Floats::kOwn));
  for (const auto& [id, place] : places) {
    EXPECT_EQ(worker.resident(id).const_data_ptr(), place) << graph.tensor(id).name;
    EXPECT_FALSE(worker.resident(id).equal(values[id])) << graph.tensor(id).name;
  }
}

// Adam's updates, residual sums, rectifiers whose input nobody wants.
TEST(Overwrite, OfRealModels) {
  for (const char* path : {"tests/data/transformer_tied.json.gz", "models/resnet50-tiny.json.gz"}) {
    EXPECT_GT(overwrites_of(path, 1), 80) << path;
  }
}

}  // namespace
}  // namespace heterog::runtime
