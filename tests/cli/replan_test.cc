// heterog plan --from, as a user calls it: another cluster, another batch, what cannot be.
#include <gmock/gmock.h>

#include <regex>

#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string kModel = "--graph models/vgg19-tiny.json.gz";

// A machine of V100 and one of GTX 1080 Ti.
std::string cluster_of(int v100, const std::string& second) {
  return R"({"format": "heterog-cluster", "version": 1, "name": "now", "machines": [
      {"name": "v100", "devices": [{"model": "V100-PCIE-16GB", "count": )" +
         std::to_string(v100) + R"(}], "fabric": {"kind": "switch", "link": "pcie3"},
       "nic": {"link": "10gbe-tcp"}},
      {"name": "1080ti", "devices": [{"model": ")" +
         second + R"(", "count": 2}], "fabric": {"kind": "switch", "link": "pcie3"},
       "nic": {"link": "10gbe-tcp"}}]})";
}

class Replan : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    const std::string cluster = write("old.json", cluster_of(2, "GTX-1080-Ti"));
    const Finished planned = run("plan " + kModel + " --batch 32 --evaluations 200 --cluster " +
                                 cluster + " --out " + path("plan.json"));
    ASSERT_EQ(planned.code, 0) << planned.err;
  }
  // `more` of the verb's options, the batch among them.
  Finished replan(const std::string& cluster, const std::string& more) const {
    return run("plan " + kModel + " --from " + path("plan.json") + " --cluster " +
               write("now.json", cluster) + " --out " + path("new.json") + " " + more);
  }
};

TEST_F(Replan, GoesOnFromWhatIsLeft) {
  const Finished text = replan(cluster_of(1, "GTX-1080-Ti"), "--batch 32");
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("v100/gpu1 is gone, v100/gpu0 is the nearest left\n"));
  EXPECT_THAT(text.out, HasSubstr(path("plan.json") + " as it is takes "));
  const Finished as_json = replan(cluster_of(1, "GTX-1080-Ti"), "--batch 32 --json --threads 1");
  ASSERT_EQ(as_json.code, 0) << as_json.err;
  const auto planned = json(as_json);
  EXPECT_LE(planned["step_seconds"], planned["from"]["step_seconds"]);
  EXPECT_EQ(planned["from"]["gone"], "v100/gpu1 is gone, v100/gpu0 is the nearest left");
  // The plan is one of the new cluster, and the same on one thread.
  const std::string written = read_file(path("new.json"));
  ASSERT_EQ(replan(cluster_of(1, "GTX-1080-Ti"), "--batch 32 --threads 2").code, 0);
  EXPECT_EQ(read_file(path("new.json")), written);
  const Finished simulated = run("simulate " + kModel + " --json --cluster " + path("now.json") +
                                 " --plan " + path("new.json"));
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  EXPECT_EQ(json(simulated)["step_seconds"], planned["step_seconds"]);
}

// No worse than what is carried over, whatever changes; within the plans that it is given.
TEST_F(Replan, TakesAnyChange) {
  for (const auto& [cluster, batch] :
       std::vector<std::pair<std::string, std::string>>{{cluster_of(3, "GTX-1080-Ti"), "32"},
                                                        {cluster_of(2, "P100-PCIE-12GB"), "32"},
                                                        {cluster_of(2, "GTX-1080-Ti"), "64"},
                                                        {cluster_of(2, "GTX-1080-Ti"), "3"}}) {
    const Finished replanned =
        replan(cluster, "--batch " + batch + " --evaluations 25 --json --order-rounds 1");
    ASSERT_EQ(replanned.code, 0) << replanned.err;
    const auto planned = json(replanned);
    EXPECT_LE(planned["step_seconds"], planned["from"]["step_seconds"]);
    EXPECT_LE(planned["evaluations"], 25);
    EXPECT_EQ(planned["refused"], 0);
  }
  const Finished more = replan(cluster_of(3, "GTX-1080-Ti"), "--batch 32 --json");
  EXPECT_THAT(json(more)["from"]["added"], testing::ElementsAre("v100/gpu2"));
}

// A device that has become slower takes less, before anything is settled.
TEST_F(Replan, SharesFollowANewSpeed) {
  const std::string batch = "--batch 4096 ";
  ASSERT_EQ(run("plan " + kModel + " --evaluations 200 --cluster " + path("old.json") + " --out " +
                path("plan.json") + " " + batch)
                .code,
            0);
  std::string slower = cluster_of(1, "GTX-1080-Ti");
  const std::string v100 = R"({"model": "V100-PCIE-16GB", "count": 1})";
  slower.replace(slower.find(v100), v100.size(), v100 + R"(, {"model": "GTX-1080-Ti"})");
  const auto planned = json(replan(slower, batch + "--json --evaluations 2"));
  EXPECT_LT(planned["step_seconds"], 0.9 * planned["from"]["step_seconds"].get<double>());
}

// A longer budget is the portfolio's, and what was carried over is among its starts.
TEST_F(Replan, ALongBudgetFindsNoLessThanAShortOne) {
  const Finished shortly = replan(cluster_of(1, "GTX-1080-Ti"), "--batch 32 --json");
  const Finished longer =
      replan(cluster_of(1, "GTX-1080-Ti"), "--batch 32 --json --evaluations 5000");
  ASSERT_EQ(longer.code, 0) << longer.err;
  EXPECT_LE(json(longer)["step_seconds"], json(shortly)["step_seconds"]);
  EXPECT_GT(json(longer)["evaluations"], json(shortly)["evaluations"]);
  EXPECT_FALSE(json(longer)["baselines"].empty());
}

// A time that ends before the portfolio gets to what is given.
TEST_F(Replan, ShortTimeLosesNothing) {
  for (const char* seconds : {"0.001", "0.02"}) {
    const Finished replanned =
        replan(cluster_of(1, "GTX-1080-Ti"), std::string("--batch 32 --json --budget ") + seconds);
    ASSERT_EQ(replanned.code, 0) << replanned.err;
    const auto planned = json(replanned);
    EXPECT_LE(planned["step_seconds"], planned["from"]["step_seconds"]);
  }
}

TEST_F(Replan, RefusesWhatCannotBe) {
  const auto refused = [&](const Finished& finished, const std::string& message) {
    EXPECT_EQ(finished.code, 2);
    EXPECT_THAT(finished.err, StartsWith("heterog: error: "));
    EXPECT_THAT(finished.err, HasSubstr(message));
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1);
  };
  const std::string same = cluster_of(2, "GTX-1080-Ti");
  // Other names and other types.
  const std::string others =
      std::regex_replace(std::regex_replace(cluster_of(2, "P100-PCIE-12GB"),
                                            std::regex("\"(v100|1080ti)\""), "\"new-$1\""),
                         std::regex("V100-PCIE-16GB"), "T4");
  refused(replan(others, "--batch 32"),
          "plan.json: none of its 4 devices (1080ti/gpu0, 1080ti/gpu1, v100/gpu0, …) is in cluster "
          "now, by name or by type; plan without --from");
  refused(replan(same, "--batch 32 --planner ev-ar"), "--from: given beside --planner ev-ar");
  refused(replan(same, "--batch 32 --for ddp"), "--from: given beside --for");
  refused(replan(same, "--batch 32 --hidden 3"), "--from: given beside --hidden");
  refused(run("plan --graph models/lenet5-tiny.json.gz --batch 32 --from " + path("plan.json") +
              " --cluster " + path("old.json") + " --out " + path("new.json")),
          "graph.hash: made for graph");
  refused(run("plan " + kModel + " --batch 32 --from " + path("none.json") + " --cluster " +
              path("old.json") + " --out " + path("new.json")),
          "none.json");
}

}  // namespace
}  // namespace heterog::cli
