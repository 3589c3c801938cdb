// A trace says of each task, link and byte what the simulation says.
#include "sim/trace_io.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cluster/builders.h"
#include "compiler/compile.h"
#include "cost/cost_model.h"
#include "decide/problems.h"

namespace heterog::sim {
namespace {

using Json = nlohmann::json;

// µs of a trace, which holds three decimals.
Nanoseconds nanoseconds(const Json& microseconds) {
  return std::llround(microseconds.get<double>() * 1e3);
}

class TraceTest : public testing::Test {
 protected:
  TraceTest() {
    const decide::Strategy strategy = decide::uniform_strategy(
        *problem_, decide::even_decision(*problem_, decide::SyncMethod::kParameterServer));
    plan_ = compiler::compile(*problem_, strategy);
    result_ = simulate(plan_, strategy.order);
  }

  std::unique_ptr<const cost::Problem> problem_ = decide::model_problem("lenet5-tiny", 2, 8);
  compiler::Plan plan_;
  SimResult result_;
};

TEST_F(TraceTest, SlicesOfATrackAddUpToItsBusyTime) {
  const Json trace = Json::parse(chrome_trace(*problem_, plan_, result_));
  std::map<std::pair<int, int>, Nanoseconds> busy;
  std::map<int, Bytes> peak;
  int begun = 0, ended = 0;
  for (const Json& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "X") {
      busy[{event["pid"], event["tid"]}] += nanoseconds(event["dur"]);
      const TaskId task(event["args"]["task"].get<std::uint32_t>());
      EXPECT_EQ(nanoseconds(event["ts"]), result_.start[task]);
      EXPECT_EQ(event["args"].contains("op"), plan_.kind[task] == compiler::TaskKind::kCompute);
      EXPECT_EQ(event["args"].contains("reduction"), compiler::has_payload(plan_.kind[task]));
    }
    if (phase == "C") {
      Bytes& bytes = peak[event["pid"]];
      bytes = std::max(bytes, event["args"]["bytes"].get<Bytes>());
    }
    begun += phase == "s";
    ended += phase == "f";
  }
  for (DeviceId device : problem_->cluster->device_ids()) {
    const int pid = static_cast<int>(device.value());
    EXPECT_EQ((busy[{pid, 0}]), result_.device_busy[device]);
    EXPECT_EQ(peak[pid], result_.peak_bytes[device]);
  }
  const int links = static_cast<int>(problem_->cluster->device_count());
  for (LinkId link : id_range<LinkId>(problem_->cluster->link_count())) {
    EXPECT_EQ((busy[{links, static_cast<int>(link.value())}]), result_.link_busy[link]);
  }
  EXPECT_GT(begun, 0);
  EXPECT_EQ(begun, ended);
  EXPECT_EQ(trace["otherData"]["source"], "simulated");
}

// The trace of a rank tells of its own device, and has neither counters nor arrows.
TEST_F(TraceTest, OfARankIsWhatItsDeviceDid) {
  const DeviceId rank(1);
  const Json trace = Json::parse(chrome_trace(*problem_, plan_, result_, {.rank = rank}));
  EXPECT_EQ(trace["distributedInfo"]["rank"], 1);
  EXPECT_EQ(trace["otherData"]["source"], "measured");
  int slices = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") continue;
    ASSERT_EQ(event["ph"], "X");
    const TaskId task(event["args"]["task"].get<std::uint32_t>());
    EXPECT_NE(event["pid"], 0);
    EXPECT_EQ(nanoseconds(event["dur"]), result_.end[task] - result_.start[task]);
    ++slices;
  }
  EXPECT_GT(slices, 0);
}

// Whatever a name holds, a reader of JSON gets it back; what is no UTF-8 becomes U+FFFD.
TEST(Trace, HoldsEveryName) {
  const std::string name = "a \"b\" \\ \n \x01 ö";
  cluster::ClusterBuilder builder(name + "\xff");
  builder.add_machine(cluster::test_machine("m", 1));
  const auto problem = cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/lenet5-tiny.json.gz")),
      std::make_shared<const cluster::Cluster>(std::move(builder).build("test")),
      cost::ConstantModel(1e-6), 8);
  const compiler::Plan plan = compiler::compile(
      *problem, decide::uniform_strategy(*problem, decide::single_decision(DeviceId(0))));
  const Json trace = Json::parse(chrome_trace(*problem, plan, simulate(plan)));
  EXPECT_EQ(trace["otherData"]["cluster"], name + "\xef\xbf\xbd");
}

}  // namespace
}  // namespace heterog::sim
