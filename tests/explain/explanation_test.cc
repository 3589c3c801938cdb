// What a step is spent on adds up to the step, in every form.
#include "explain/explanation.h"

#include <gmock/gmock.h>

#include "explain/explanation_json.h"
#include "explain/explanation_text.h"
#include "explain/path_lines.h"
#include "explain/plans.h"
#include "explain/simulation.h"

namespace heterog::explain {
namespace {

using decide::SyncMethod;
using testing::HasSubstr;

Nanoseconds sum(const std::vector<Spent>& spent) {
  Nanoseconds total = 0;
  for (const Spent& item : spent) total += item.time;
  return total;
}

class ExplanationTest : public testing::TestWithParam<SyncMethod> {
 protected:
  std::unique_ptr<const cost::Problem> problem_ = decide::model_problem("vgg19-tiny", 3, 12);
  decide::Strategy strategy_ = even_strategy(*problem_, GetParam());
  sim::Simulated simulated_ = simulated_plan(*problem_, strategy_);
  Explanation explanation_ = explain_plan(*problem_, strategy_, simulated_, {});
};

TEST_P(ExplanationTest, KindsAndGroupsAddUpToTheStep) {
  const auto kinds = spent_by_kind(*problem_, simulated_, explanation_);
  const auto groups = spent_by_group(*problem_, simulated_, explanation_);
  EXPECT_EQ(sum(kinds), simulated_.result.step);
  EXPECT_EQ(sum(groups), simulated_.result.step);
  for (const auto& list : {kinds, groups, busiest(*problem_, simulated_)}) {
    for (std::size_t i = 1; i < list.size(); ++i) EXPECT_GE(list[i - 1].time, list[i].time);
  }
}

TEST_P(ExplanationTest, LinesFollowTheStepWithoutAGap) {
  for (std::size_t most : {1, 4, 1000}) {
    Nanoseconds at = 0;
    const auto lines = path_lines(*problem_, simulated_, explanation_, most);
    EXPECT_LE(lines.size(), std::max<std::size_t>(most, 1));
    for (const PathLine& line : lines) {
      EXPECT_EQ(line.begin, at);
      EXPECT_NE(line.what, "");
      EXPECT_EQ(line.why.empty(), at == 0);
      at += line.length;
    }
    EXPECT_EQ(at, simulated_.result.step);
  }
}

TEST_P(ExplanationTest, FormsNameWhatWasFound) {
  const std::string text = explanation_text(*problem_, simulated_, explanation_);
  for (const char* part : {"no order of this plan is under", "critical path: ", "on the path",
                           "waits most for", "busiest", "twice as fast"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const OrderedJson json = explanation_json(*problem_, simulated_, explanation_);
  EXPECT_EQ(json["critical_path"].size(), explanation_.path.size());
  EXPECT_EQ(json["devices"].size(), problem_->cluster->device_count());
  EXPECT_EQ(json["twice_as_fast"].size(), explanation_.upgrades.size());
}

INSTANTIATE_TEST_SUITE_P(BothWays, ExplanationTest,
                         testing::Values(SyncMethod::kParameterServer, SyncMethod::kAllReduce));

TEST(Straggler, IsWhomADeviceWaitsForLongest) {
  sim::DeviceTime time;
  time.waiting_for = IdVector<DeviceId, Nanoseconds>(3, 0);
  EXPECT_FALSE(straggler(time).valid());
  time.waiting_for[DeviceId(2)] = 5;
  time.waiting_for[DeviceId(0)] = 4;
  EXPECT_EQ(straggler(time), DeviceId(2));
}

TEST(OutOfMemory, NamesTheFirstDevices) {
  for (const int devices : {3, 12}) {
    const auto problem = decide::model_problem("vgg19-tiny", devices, 24);
    sim::Simulated simulated =
        simulated_plan(*problem, even_strategy(*problem, decide::SyncMethod::kAllReduce));
    for (Bytes& capacity : simulated.plan.capacity) capacity = 1000;
    simulated.result = sim::simulate(simulated.plan, decide::OrderPolicy::kRank);
    const std::string text = out_of_memory_text(*problem, simulated);
    std::size_t named = 0;
    for (std::size_t at = 0; (at = text.find(" lacks ", at)) != std::string::npos; ++at) ++named;
    EXPECT_EQ(named, devices == 3 ? 3u : 9u);
    EXPECT_EQ(text.find(", and 3 more up to ") != std::string::npos, devices == 12) << text;
  }
}

}  // namespace
}  // namespace heterog::explain
