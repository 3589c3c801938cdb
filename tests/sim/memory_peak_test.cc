// What is held at the peak: by hand, and equal to the simulator's peak on random and real plans.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "compiler/order.h"
#include "compiler/plan_builder.h"
#include "decide/problems.h"
#include "sim/memory.h"
#include "sim/random_plan.h"
#include "support/graphs.h"

namespace heterog::sim {
namespace {

using compiler::Plan;
using decide::OrderPolicy;

// Every peak is the simulator's, and the purposes add up to it.
void expect_peaks(const cost::Problem& problem, const Plan& plan, OrderPolicy order) {
  SCOPED_TRACE(decide::order_policy_name(order));
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
  const auto problem = decide::toy_problem(support::tiny_mlp_graph(), 2, 8);
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
    const auto problem = decide::model_problem(model, 3, 12);
    using decide::SyncMethod;
    for (SyncMethod sync : {SyncMethod::kParameterServer, SyncMethod::kAllReduce}) {
      decide::Strategy strategy =
          decide::uniform_strategy(*problem, decide::even_decision(*problem, sync));
      for (Bytes bucket : {Bytes{0}, Bytes{1} << 20}) {
        strategy.bucket_bytes = bucket;
        const Plan plan = compiler::compile(*problem, strategy);
        for (OrderPolicy order : kOrders) expect_peaks(*problem, plan, order);
      }
    }
  }
}

std::vector<std::string> held_texts(const cost::Problem& problem, const Plan& plan,
                                    const MemoryPeak& peak) {
  std::vector<std::string> texts;
  for (const HeldMemory& held : peak.held) {
    texts.push_back(fmt::format("{} {} {} until {}", problem.graph->tensor(held.tensor).name,
                                held.bytes, memory_purpose_name(held.purpose),
                                problem.graph->op(plan.op[held.until]).name));
  }
  return texts;
}

// x → relu(x·w1ᵀ + b1)·w2ᵀ + b2 on one device, batch 16, floats. Parameters: 8·16 + 16 + 16·4 + 4 =
// 212. Inputs: x 16·8, target 16·4, the learning rate: 193. The most is held when the gradient of
// relu's input is made (16·16 = 256) from that of its output (mm, 256); relu's output (256) waits
// for the gradient of w2, and the gradient of the second layer's output (16·4 = 64) for that of b2.
TEST(MemoryPeak, NamesWhatIsKeptInBackward) {
  const auto problem = decide::toy_problem(support::tiny_mlp_graph(), 1, 16);
  const Plan plan = compiler::compile(
      *problem, decide::uniform_strategy(*problem, decide::single_decision(DeviceId(0))));
  const MemoryPeak peak = memory_peaks(*problem, plan, simulate(plan))[DeviceId(0)];
  EXPECT_EQ(problem->graph->op(plan.op[peak.task]).name, "threshold_backward");
  EXPECT_EQ(peak.of(MemoryPurpose::kParameters), 212 * 4);
  EXPECT_EQ(peak.of(MemoryPurpose::kBuffers), 193 * 4);
  EXPECT_EQ(peak.of(MemoryPurpose::kActivations), 256 * 4);
  EXPECT_EQ(peak.of(MemoryPurpose::kTemporaries), (256 + 256 + 64) * 4);
  EXPECT_EQ(peak.total(), (212 + 193 + 256 + 576) * 4);
  EXPECT_THAT(held_texts(*problem, plan, peak),
              testing::ElementsAre("relu 1024 activations until mm_1",
                                   "mm 1024 temporaries until threshold_backward",
                                   "threshold_backward 1024 temporaries until sum_2",
                                   "mul_2 256 temporaries until sum_1"));
}

// The same on two devices with one bucket: all gradients (212) lie beside the bucket (212) while it
// is reduced; of the inputs each device has 4 samples (x 32, target 16, the learning rate).
TEST(MemoryPeak, PartsGradientsAndBuckets) {
  const auto problem = decide::toy_problem(support::tiny_mlp_graph(), 2, 8);
  decide::Strategy strategy = decide::uniform_strategy(
      *problem, decide::even_decision(*problem, decide::SyncMethod::kAllReduce));
  strategy.bucket_bytes = 1 << 20;
  const Plan plan = compiler::compile(*problem, strategy);
  for (const MemoryPeak& peak : memory_peaks(*problem, plan, simulate(plan))) {
    EXPECT_EQ(plan.kind[peak.task], compiler::TaskKind::kAllReduce);
    EXPECT_EQ(peak.of(MemoryPurpose::kParameters), 212 * 4);
    EXPECT_EQ(peak.of(MemoryPurpose::kBuffers), 49 * 4);
    EXPECT_EQ(peak.of(MemoryPurpose::kGradients), 212 * 4);
    EXPECT_EQ(peak.of(MemoryPurpose::kBuckets), 212 * 4);
    EXPECT_EQ(peak.total(), (3 * 212 + 49) * 4);
  }
}

}  // namespace
}  // namespace heterog::sim
