// What outlives a step lies in memory as the graph says, before the first step and after later
// ones.
#include <gtest/gtest.h>

#include "runtime/exec/random_data.h"
#include "runtime/jobs.h"
#include "runtime/kernels/memory_order.h"
#include "runtime/ranks/team.h"

namespace heterog::runtime {
namespace {

bool is_last(const at::Tensor& value) {
  return value.is_contiguous(at::MemoryFormat::ChannelsLast) && !value.is_contiguous();
}

TEST(MemoryOrder, OfWhatIsGiven) {
  graph::Tensor last, first;
  last.channels_last = true;
  const at::Tensor image = at::rand({2, 3, 4, 5}), volume = at::rand({2, 3, 4, 5, 6});
  EXPECT_TRUE(laid_as(first, image).is_same(image));
  EXPECT_TRUE(is_last(laid_as(last, image)));
  EXPECT_TRUE(at::equal(laid_as(last, image), image));
  EXPECT_TRUE(laid_as(first, laid_as(last, image)).is_contiguous());
  EXPECT_TRUE(laid_as(last, volume).is_contiguous(at::MemoryFormat::ChannelsLast3d));
}

TEST(MemoryOrder, OfParametersOverSteps) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph("tests/data/channels_last.json.gz"), 2, 8);
  const TestJob test =
      make_test_job(problem, weighted(*problem, {2, 1}, decide::SyncMethod::kAllReduce));
  Team team(test.job, IdVector<DeviceId, WorkerOptions>(test.job.programs.size(), {}));
  const graph::ModelGraph& graph = *problem->graph;
  const auto values = random_residents(graph, 1, Floats::kOwn);
  for (TensorId id : graph.tensor_ids()) {
    if (values[id].defined()) team.set_resident(id, values[id].contiguous());
  }
  for (std::int64_t step = 0; step <= 2; ++step) {
    if (step > 0) team.step(step, random_inputs(graph, problem->batch, 1, step, Floats::kOwn));
    int last = 0;
    for (const DeviceId device : {DeviceId(0), DeviceId(1)}) {
      for (TensorId id : team.worker(device).residents()) {
        const at::Tensor value = team.worker(device).resident(id);
        const bool ones = value.dim() == 4 && (value.size(1) == 1 || value.size(3) == 1);
        if (!graph.tensor(id).channels_last || ones) continue;
        EXPECT_TRUE(is_last(value)) << graph.tensor(id).name << " after step " << step;
        ++last;
      }
    }
    // The weights of three convolutions and their momentum, on both.
    EXPECT_EQ(last, 12);
  }
}

}  // namespace
}  // namespace heterog::runtime
