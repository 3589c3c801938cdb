// What is held at the peak: by hand, and equal to the simulator's peak on random and real plans.
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "compiler/order.h"
#include "compiler/plan_builder.h"
#include "compiler/problems.h"
#include "sim/memory.h"
#include "sim/random_plan.h"
#include "support/graphs.h"

namespace heterog::sim {
namespace {

using compiler::OrderPolicy;
using compiler::Plan;

constexpr OrderPolicy kOrders[] = {OrderPolicy::kRank, OrderPolicy::kRankReserve,
                                   OrderPolicy::kFifo};

// Every peak is the simulator's, and the purposes add up to it.
void expect_peaks(const cost::Problem& problem, const Plan& plan, OrderPolicy order) {
  SCOPED_TRACE(compiler::order_policy_name(order));
  const SimResult result = simulate(plan, order);
  const auto peaks = memory_peaks(problem, plan, result);
  for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
    const MemoryPeak& peak = peaks[device];
    ASSERT_EQ(peak.total(), result.peak_bytes[device]);
    Bytes held = plan.static_memory[device].total();
    for (const HeldMemory& item : peak.held) {
      held += item.bytes;
      EXPECT_LE(result.start[item.maker], peak.time);
      EXPECT_GE(result.end[item.until], peak.time);
    }
    ASSERT_EQ(held, peak.total());
  }
}

TEST(MemoryPeak, EqualsTheSimulatorOnRandomPlans) {
  const auto problem = compiler::toy_problem(support::tiny_mlp_graph(), 2, 8);
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed);
    const Plan plan = random_plan(rng);
    SCOPED_TRACE(seed);
    for (OrderPolicy order : kOrders) expect_peaks(*problem, plan, order);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(MemoryPeak, EqualsTheSimulatorOnRealPlans) {
  for (const char* model : {"vgg19-tiny", "bert_large24-tiny", "resnet50-tiny"}) {
    SCOPED_TRACE(model);
    const auto problem = compiler::model_problem(model, 3, 12);
    using compiler::SyncMethod;
    for (SyncMethod sync : {SyncMethod::kParameterServer, SyncMethod::kAllReduce}) {
      compiler::Strategy strategy =
          compiler::uniform_strategy(*problem, compiler::even_decision(*problem, sync));
      for (Bytes bucket : {Bytes{0}, Bytes{1} << 20}) {
        strategy.bucket_bytes = bucket;
        const Plan plan = compiler::compile(*problem, strategy);
        for (OrderPolicy order : kOrders) expect_peaks(*problem, plan, order);
      }
    }
  }
}

// x → relu(x·w1ᵀ + b1)·w2ᵀ + b2 on one device with one sample a time: by the end of forward, relu's
// output is kept for the gradient of w2 and its mask, the loss's difference is a temporary value of
// the forward pass that backward reads, and the gradients are those of four parameters.
TEST(MemoryPeak, NamesWhatIsKept) {
  const auto problem = compiler::toy_problem(support::tiny_mlp_graph(), 1, 8);
  const Plan plan = compiler::compile(
      *problem, compiler::uniform_strategy(*problem, compiler::single_decision(DeviceId(0))));
  const SimResult result = simulate(plan);
  const MemoryPeak peak = memory_peaks(*problem, plan, result)[DeviceId(0)];
  // Parameters: 8·16 + 16 + 16·4 + 4 = 212 elements of 4 bytes. SGD keeps no state.
  EXPECT_EQ(peak.of(MemoryPurpose::kParameters), 212 * 4);
  EXPECT_EQ(peak.of(MemoryPurpose::kOptimizerState), 0);
  EXPECT_EQ(peak.of(MemoryPurpose::kBuckets), 0);
  EXPECT_EQ(peak.total(), result.peak_bytes[DeviceId(0)]);
}

}  // namespace
}  // namespace heterog::sim
