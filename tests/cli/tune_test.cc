// heterog tune, as a user calls it: real runs, hidden costs, Ctrl-C, and what cannot be.
#include <gmock/gmock.h>
#include <signal.h>

#include "cli/process.h"
#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

const std::string kLenet = " --graph models/lenet5-tiny.json.gz --cluster local-2cpu";
const std::string kHidden =
    "tune --graph models/vgg19-tiny.json.gz --cluster heterog-4gpu --batch 32 --threads 1 "
    "--evaluations 40 ";

class Tune : public ProgramTest {
 protected:
  // Exit code 2, one line.
  std::string refusal(const std::string& arguments) const {
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.code, 2) << finished.err;
    EXPECT_EQ(std::ranges::count(finished.err, '\n'), 1) << finished.err;
    EXPECT_THAT(finished.err, StartsWith("heterog: error: "));
    return finished.err.substr(std::string("heterog: error: ").size());
  }
};

// How fast the rounds are is the machine's; what is written and said of them is not.
TEST_F(Tune, RunsPlansAndKeepsTheFastest) {
  const std::string files = " --out " + path("plan.json") + " --profile-out " + path("costs");
  const Finished finished =
      run("tune" + kLenet + " --batch 16 --evaluations 20 --rounds 3 --steps 2 --json" +
          " --slow local/gpu1=3 --threads 1" + files);
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(finished.err, "");
  const nlohmann::json tuned = json(finished);
  const auto& rounds = tuned["rounds"];
  ASSERT_GE(rounds.size(), 1u);
  ASSERT_LE(rounds.size(), 3u);
  EXPECT_TRUE(tuned["settled"] == true || rounds.size() == 3);
  double shortest = rounds[0]["measured_step_seconds"];
  for (const auto& round : rounds) {
    const double measured = round["measured_step_seconds"];
    EXPECT_GT(measured, 0);
    EXPECT_GT(round["predicted_step_seconds"], 0);
    EXPECT_FALSE(round["off"]["what"].get<std::string>().empty());
    shortest = std::min(shortest, measured);
  }
  EXPECT_EQ(tuned["kept_step_seconds"], shortest);
  const std::size_t kept = tuned["kept"];
  EXPECT_EQ(rounds[kept - 1]["measured_step_seconds"], shortest);
  // The analytic model knows nothing of what a CPU needs around an operator of microseconds.
  EXPECT_GT(rounds[0]["measured_step_seconds"], rounds[0]["predicted_step_seconds"]);

  // The files serve every other verb, with the predictions that the plan file has.
  const std::string costs = " --profile " + path("costs/CPU.profile.json") + " --profile " +
                            path("costs/links.profile.json");
  const Finished simulated =
      run("simulate --json" + kLenet + " --plan " + path("plan.json") + costs);
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  const auto plan = nlohmann::json::parse(read_file(path("plan.json")));
  EXPECT_NEAR(json(simulated)["step_seconds"], plan["predicted"]["step_seconds"], 1e-8);
  EXPECT_EQ(plan["planner"], rounds[kept - 1]["planner"]);
  EXPECT_EQ(run("run" + kLenet + " --steps 1 --plan " + path("plan.json") + costs).code, 0);
}

TEST_F(Tune, RunsJudgeEveryPlan) {
  const std::string asked = "tune" + kLenet +
                            " --batch 16 --every-plan --planner autosync:trials=6,round=3 --steps "
                            "2 --in-threads --threads 1 --json --out " +
                            path("plan.json");
  const Finished finished = run(asked);
  ASSERT_EQ(finished.code, 0) << finished.err;
  const nlohmann::json tuned = json(finished);
  EXPECT_GE(tuned["runs"], 3);
  EXPECT_LE(tuned["runs"], 6);  // nothing runs twice
  EXPECT_GE(tuned["kept"], 1);
  EXPECT_GT(tuned["kept_step_seconds"], tuned["predicted_step_seconds"]);
  const auto plan = nlohmann::json::parse(read_file(path("plan.json")));
  EXPECT_NEAR(plan["predicted"]["step_seconds"], tuned["predicted_step_seconds"], 1e-8);
  EXPECT_EQ(run("run" + kLenet + " --steps 1 --plan " + path("plan.json")).code, 0);
  EXPECT_THAT(refusal("tune" + kLenet + " --batch 16 --every-plan --rounds 2"),
              HasSubstr("--rounds"));
  EXPECT_THAT(refusal("tune" + kLenet + " --batch 16 --every-plan --profile-out " + path("costs")),
              HasSubstr("--every-plan, which fits no costs"));
  EXPECT_THAT(refusal("tune" + kLenet + " --batch 16 --every-plan"),
              HasSubstr("--every-plan: planner portfolio asks about thousands of plans"));
}

// By hidden costs the best of what was tried is what the world says, and no believed step.
TEST_F(Tune, HiddenCostsJudgeEveryPlan) {
  const Finished finished =
      run(kHidden + "--planner autosync:trials=40 --every-plan --hidden 3:0.4 --json");
  ASSERT_EQ(finished.code, 0) << finished.err;
  const nlohmann::json tuned = json(finished);
  EXPECT_EQ(tuned["hidden"], "3:0.4");
  EXPECT_GE(tuned["runs"], 30);
  EXPECT_LE(tuned["runs"], 40);
  EXPECT_NE(tuned["kept_step_seconds"], tuned["predicted_step_seconds"]);
  EXPECT_EQ(run(kHidden + "--planner autosync:trials=40 --every-plan --hidden 3:0.4 --json").out,
            finished.out);
}

TEST_F(Tune, ThreadsRunAsProcessesDo) {
  const Finished finished =
      run("tune" + kLenet + " --batch 16 --evaluations 20 --rounds 1 --in-threads --threads 1");
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("lenet5-tiny on local-2cpu, batch 16: 3 steps of each plan, "
                                      "threads\nround "));
  EXPECT_THAT(finished.out, HasSubstr("\n    1 "));
  EXPECT_THAT(finished.out, HasSubstr("\nended: after --rounds 1\nkept: round 1, "));
  EXPECT_THAT(finished.out, HasSubstr(" measured +0.0 % faster than the first ("));
}

TEST_F(Tune, HiddenCostsGiveTheSameEveryTime) {
  const std::string arguments =
      kHidden + "--hidden 3:0.6 --known 50 --json --out " + path("p.json");
  const Finished first = run(arguments);
  ASSERT_EQ(first.code, 0) << first.err;
  const nlohmann::json tuned = json(first);
  EXPECT_LE(tuned["known_step_seconds"], tuned["kept_step_seconds"]);
  EXPECT_GT(tuned["gain"], 0);
  EXPECT_EQ(tuned["hidden"], "3:0.6");
  EXPECT_EQ(run(arguments).out, first.out);
}

// While the ranks of the first round run; and once a round is over.
TEST_F(Tune, CtrlCLeavesTheRoundsBefore) {
  Process running("tune" + kLenet + " --batch 16 --evaluations 20 --steps 1000000000 --out " +
                      path("none.json"),
                  {}, path("running"));
  ASSERT_TRUE(await([&] { return children_of(running.pid()).size() == 2; }));
  running.kill(SIGINT);
  EXPECT_EQ(running.wait(), 4);
  EXPECT_EQ(running.err(), "heterog: error: ended by signal 2 (SIGINT), and all ranks with it\n");
  EXPECT_FALSE(std::filesystem::exists(path("none.json")));

  Process searching(kHidden + "--hidden 1:0 --known 1000000000 --out " + path("one.json"), {},
                    path("searching"));
  ASSERT_TRUE(await([&] { return std::filesystem::exists(path("one.json")); }));
  searching.kill(SIGTERM);
  EXPECT_EQ(searching.wait(), 4);
  EXPECT_THAT(searching.err(),
              MatchesRegex("heterog: error: stopped by signal 15 \\(SIGTERM\\) after [0-9]+ s; .*"
                           "one.json has the plan of round 1\n"));
  EXPECT_EQ(run("simulate --graph models/vgg19-tiny.json.gz --cluster heterog-4gpu --plan " +
                path("one.json"))
                .code,
            0);
}

TEST_F(Tune, SaysWhatCannotBe) {
  ASSERT_EQ(run("tune" + kLenet +
                " --batch 16 --evaluations 20 --rounds 1 --steps 1 --in-threads --profile-out " +
                path("costs"))
                .code,
            0);
  const std::string profile = " --profile " + path("costs/CPU.profile.json");
  EXPECT_THAT(refusal("tune --graph vgg19-tiny --cluster local-2cpu --batch 16" + profile),
              HasSubstr("CPU.profile.json: graph.hash: measured on 'lenet5-tiny'"));
  const std::string links =
      write("links.json",
            R"({"format": "heterog-links-measured", "version": 1, "cluster": "other", "flows": 1,
                "error_before": 0, "error_after": 0, "links": [
                {"name": "nowhere", "bandwidth_bytes_per_second": 1e9, "times_the_cluster_file": 1}]})");
  EXPECT_EQ(
      refusal("tune" + kLenet + " --batch 16 --profile " + links),
      links + ": links[0]: no link 'nowhere' in cluster local-2cpu; measured on cluster other\n");
  // What a run says, with the code that it says it with.
  EXPECT_THAT(refusal("tune" + kLenet + " --batch 16 --evaluations 20 --slow nobody=2"),
              MatchesRegex("rank [01] \\(local/gpu[01]\\): --slow: no device \"nobody\" in cluster "
                           "local-2cpu; its first is local/gpu0\n"));
  EXPECT_EQ(refusal("tune" + kLenet + " --batch 16 --evaluations 20 --slow nobody=2 --in-threads"),
            "--slow: no device \"nobody\" in cluster local-2cpu; its first is local/gpu0\n");
  EXPECT_EQ(refusal("tune" + kLenet + " --batch 16 --hidden 1 --in-threads"),
            "--hidden: given beside an option of runs; nothing is run where costs are hidden\n");
  EXPECT_THAT(refusal("tune" + kLenet + " --batch 16 --known 5"), HasSubstr("--hidden"));
  const Finished full =
      run("tune --graph vgg19 --cluster fastt-1gpu --batch 1000000 --evaluations 20 --hidden 1");
  EXPECT_EQ(full.code, 3) << full.err;
  EXPECT_THAT(full.err, HasSubstr("no plan fits in memory"));
}

}  // namespace
}  // namespace heterog::cli
