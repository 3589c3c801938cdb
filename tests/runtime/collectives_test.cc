// Plans with collectives that leave parts of a value on their members.
#include <gtest/gtest.h>

#include "comm/local_transport.h"
#include "comm/ranks.h"
#include "compiler/scattered_plan.h"
#include "runtime/check/verify.h"
#include "runtime/jobs.h"

namespace heterog::runtime {
namespace {

// Plans whose all-reduces are scattered and gathered train as one device.
TEST(ScatteredPlans, TrainAsOneDevice) {
  std::size_t scatters = 0;
  // Batch normalisation over a few samples per slice magnifies what sums round.
  for (const auto& [model, tolerance] :
       {std::pair{"lenet5-tiny", 1e-10}, {"ncf-tiny", 1e-10}, {"resnet50-tiny", 1e-6}}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", model, seed));
      const std::shared_ptr<const cost::Problem> problem =
          decide::model_problem(model, 2 + seed % 3, 16);
      decide::Strategy strategy = random_mix(*problem, seed);
      strategy.bucket_bytes = 0;
      TestJob test;
      test.plan = compiler::scattered(*problem, compiler::compile(*problem, strategy), seed);
      scatters += compiler::count_kind(test.plan, compiler::TaskKind::kReduceScatter);
      const sim::SimResult result = sim::simulate(test.plan, strategy.order);
      test.job = make_job(problem, test.plan, result.dispatch, {.capture_gradients = true}, "test");
      EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), tolerance);
    }
  }
  EXPECT_GT(scatters, 30u);
}

}  // namespace
}  // namespace heterog::runtime
