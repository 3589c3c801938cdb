// Every verb once, on a tiny graph: exit codes, JSON keys, files.
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "cli/process.h"
#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::HasSubstr;

TEST_F(ProgramTest, PlanThenSimulateAgree) {
  const Finished planned = run("plan " + kTiny + " --evaluations 60 --json --out " +
                               path("plan.json") + " --trace " + path("trace.json"));
  ASSERT_EQ(planned.code, 0) << planned.err;
  const auto plan = json(planned);
  EXPECT_TRUE(plan["feasible"].get<bool>());
  EXPECT_EQ(plan["devices"].size(), 4u);
  EXPECT_GE(plan["evaluations"].get<int>(), 1);
  for (const char* key :
       {"planner", "plan_seconds", "links", "computation_seconds", "communication_seconds",
        "lower_bound_seconds", "any_plan_bound_seconds", "order", "order_seconds", "tasks"}) {
    EXPECT_TRUE(plan.contains(key)) << key;
  }
  EXPECT_LE(plan["lower_bound_seconds"].get<double>(), plan["step_seconds"].get<double>());
  EXPECT_LE(plan["any_plan_bound_seconds"].get<double>(), plan["step_seconds"].get<double>());
  for (const auto& [order, seconds] : plan["order_seconds"].items()) {
    EXPECT_LE(plan["step_seconds"].get<double>(), seconds.get<double>()) << order;
  }

  const Finished simulated =
      run("simulate --graph models/vgg19-tiny.json.gz --cluster "
          "configs/clusters/heterog-4gpu.json --json --check --plan " +
          path("plan.json") + " --trace " + path("again.json"));
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  EXPECT_TRUE(json(simulated)["checked"].get<bool>());
  EXPECT_EQ(json(simulated)["step_seconds"], plan["step_seconds"]);
  EXPECT_EQ(read_file(path("trace.json")), read_file(path("again.json")));
  const auto trace = nlohmann::json::parse(read_file(path("trace.json")));
  EXPECT_GT(trace["traceEvents"].size(), plan["tasks"].get<std::size_t>() / 2);
}

TEST_F(ProgramTest, AccumulatingTakesLessMemory) {
  const std::string files =
      " --graph models/bert_large24-tiny.json.gz --cluster configs/clusters/heterog-4gpu.json";
  const auto plan = [&](const std::string& more, const std::string& out) {
    const Finished planned =
        run("plan --planner cp-ar --batch 64 --json" + files + more + " --out " + path(out));
    EXPECT_EQ(planned.code, 0) << planned.err;
    return json(planned);
  };
  const auto activations = [](const nlohmann::json& made) {
    return made["devices"][0]["memory"]["activations_bytes"].get<double>();
  };
  const nlohmann::json whole = plan("", "whole.json");
  const nlohmann::json parts = plan(" --accumulate 4", "parts.json");
  EXPECT_EQ(parts["planner"], "cp-ar, 4 micro-batches");
  EXPECT_LT(activations(parts), activations(whole) / 2);
  // The plan file says it, and `simulate` does the same to a plan that does not.
  const auto simulate = [&](const std::string& file, const std::string& more) {
    const Finished simulated = run("simulate --json --check --plan " + path(file) + files + more);
    EXPECT_EQ(simulated.code, 0) << simulated.err;
    return json(simulated)["step_seconds"];
  };
  EXPECT_EQ(simulate("parts.json", ""), parts["step_seconds"]);
  EXPECT_EQ(simulate("whole.json", " --accumulate 4"), parts["step_seconds"]);
  EXPECT_EQ(run("simulate --accumulate 65 --plan " + path("whole.json") + files).code, 2);
}

TEST_F(ProgramTest, TheSameSeedGivesTheSamePlanOnAnyNumberOfThreads) {
  for (const char* threads : {"1", "2"}) {
    ASSERT_EQ(run("plan " + kTiny + " --seed 5 --evaluations 80 --threads " + threads + " --out " +
                  path(threads))
                  .code,
              0);
  }
  EXPECT_EQ(read_file(path("1")), read_file(path("2")));
}

TEST_F(ProgramTest, CompareNeverRanksThePortfolioBelowABaseline) {
  const Finished compared = run("compare " + kTiny + " --planner portfolio --json");
  ASSERT_EQ(compared.code, 0) << compared.err;
  const auto table = json(compared);
  double portfolio = 0, best = 1e9;
  for (const auto& row : table["planners"]) {
    const double step = row["step_seconds"].get<double>();
    if (row["name"] == "portfolio") portfolio = step;
    if (row["feasible"].get<bool>()) best = std::min(best, step);
  }
  EXPECT_GT(portfolio, 0);
  EXPECT_EQ(portfolio, best);
}

TEST_F(ProgramTest, EveryOrderGivesAProvenStep) {
  ASSERT_EQ(run("plan " + kTiny + " --planner ev-ps --out " + path("plan.json")).code, 0);
  for (const char* order : {"rank", "rank-queued", "fifo"}) {
    const Finished simulated =
        run("simulate --graph models/vgg19-tiny.json.gz --cluster "
            "configs/clusters/heterog-4gpu.json --json --check --order " +
            std::string(order) + " --plan " + path("plan.json"));
    ASSERT_EQ(simulated.code, 0) << simulated.err;
    const auto step = json(simulated);
    EXPECT_TRUE(step["checked"].get<bool>());
    EXPECT_GE(step["step_seconds"].get<double>(), step["lower_bound_seconds"].get<double>());
  }
}

// The plan in a better order says so, is a plan file like any other, and takes what was predicted.
TEST_F(ProgramTest, PlanImprovesTheOrderOfWhatAPlannerFound) {
  const std::string on =
      "--graph models/vgg19.json.gz --cluster configs/clusters/heterog-8gpu.json ";
  const std::string as_asked = "plan " + on + "--batch 192 --planner ev-ar:rank --json --out ";
  const auto before = json(run(as_asked + path("before.json")));
  EXPECT_EQ(before["order"], "rank");
  EXPECT_EQ(before["order_seconds"]["rank"], before["step_seconds"]);
  const auto after = json(run(as_asked + path("after.json") + " --order-rounds 3"));
  EXPECT_LT(after["step_seconds"].get<double>(), before["step_seconds"].get<double>());
  EXPECT_EQ(after["planner"], "ev-ar:rank + order");
  EXPECT_EQ(after["order_seconds"], before["order_seconds"]);
  const Finished simulated = run("simulate " + on + "--check --json --plan " + path("after.json"));
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  EXPECT_EQ(json(simulated)["step_seconds"], after["step_seconds"]);
  const Finished both =
      run("plan " + kTiny + " --accumulate 2 --order-rounds 2 --out " + path("both.json"));
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("--order-rounds: 2 given beside --accumulate"));
}

TEST_F(ProgramTest, TrainFinetuneAndPlanWithTheResult) {
  const std::string config =
      write("config.json",
            R"({"graphs": [{"graph": "models/lenet5-tiny.json.gz", "batches": [16]}],
                "clusters": ["configs/clusters/heterog-4gpu.json"],
                "steps": 3, "samples": 4, "max_groups": 8})");
  const Finished trained = run("train --config " + config + " --json --out " + path("run"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(json(trained)["steps"], 3);
  EXPECT_TRUE(trained.err.empty()) << trained.err;
  const std::string policy = path("run") + "/policy.ckpt";
  const Finished again = run("train --config " + config + " --resume --json --out " + path("run"));
  EXPECT_EQ(again.code, 0) << again.err;
  const Finished tuned =
      run("finetune " + kTiny + " --policy " + policy + " --evaluations 40 --json" + " --out " +
          path("tuned.ckpt") + " --plan " + path("plan.json") + " --log " + path("tuned.log"));
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_TRUE(json(tuned)["plan"]["feasible"].get<bool>());
  // A line a step; its last is what the run ended with.
  std::istringstream log(read_file(path("tuned.log")));
  nlohmann::json last;
  std::int64_t steps = 0;
  for (std::string line; std::getline(log, line);) {
    last = nlohmann::json::parse(line);
    EXPECT_EQ(last["step"], ++steps);
  }
  EXPECT_GT(steps, 1);
  EXPECT_EQ(last["evaluations"], json(tuned)["evaluations"]);
  EXPECT_EQ(last["cases"][0]["best_step_seconds"], json(tuned)["best_step_seconds"]);
  const Finished planned = run("plan " + kTiny + " --planner policy --policy " +
                               path("tuned.ckpt") + " --out " + path("again.json"));
  EXPECT_EQ(planned.code, 0) << planned.err;
}

TEST_F(ProgramTest, EveryVerbExplainsItself) {
  for (const char* verb : {"plan", "compare", "simulate", "explain", "diff", "report", "train",
                           "finetune", "planners", "shares"}) {
    const Finished help = run(std::string(verb) + " --help");
    EXPECT_EQ(help.code, 0);
    EXPECT_THAT(help.out, HasSubstr("Example:")) << verb;
    EXPECT_THAT(help.out, HasSubstr("--json")) << verb;
  }
}

TEST_F(ProgramTest, PlannersAreListed) {
  const Finished listed = run("planners --json");
  ASSERT_EQ(listed.code, 0) << listed.err;
  std::vector<std::string> names;
  const auto table = json(listed);
  for (const auto& planner : table["planners"]) {
    names.push_back(planner["name"]);
    for (const auto& option : planner["options"]) {
      EXPECT_TRUE(option.contains("takes") && option.contains("default")) << option.dump();
    }
  }
  EXPECT_THAT(names,
              testing::IsSupersetOf({"ev-ps", "ev-ar", "cp-ps", "cp-ar", "single", "horovod",
                                     "random", "local-search", "exact", "policy", "portfolio"}));
}

TEST_F(ProgramTest, PlannersSayTheirOptionsAndTakeThem) {
  const Finished one = run("planners random");
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_THAT(one.out, testing::AllOf(HasSubstr("evaluations"), HasSubstr("default: 200")));
  const Finished policy = run("planners policy");
  EXPECT_THAT(policy.out, testing::AllOf(HasSubstr("checkpoint"), HasSubstr("finetune_share")));

  const Finished planned =
      run("plan " + kTiny + " --planner random:evaluations=7 --json --out " + path("plan.json"));
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_EQ(json(planned)["evaluations"], 7);
  EXPECT_EQ(json(planned)["planner"], "random:evaluations=7");
  // Beside the baselines, not in place of one.
  const Finished compared = run("compare " + kTiny + " --planner horovod:bucket_bytes=1000 --json");
  ASSERT_EQ(compared.code, 0) << compared.err;
  std::vector<std::string> names;
  const auto table = json(compared);
  for (const auto& row : table["planners"]) names.push_back(row["name"]);
  EXPECT_THAT(names, testing::ElementsAre("ev-ps", "ev-ar", "cp-ps", "cp-ar", "single", "horovod",
                                          "horovod:bucket_bytes=1000"));
}

// Killed as soon as its log has so many steps, and begun anew if that is before its first
// checkpoint: wherever the kills fall, the end is the same.
TEST_F(ProgramTest, TrainingKilledByTheSystemResumesToTheSameBits) {
  const std::string config =
      write("config.json",
            R"({"graphs": [{"graph": "models/bert_large24-tiny.json.gz", "batches": [16]}],
                "clusters": ["configs/clusters/heterog-4gpu.json"],
                "steps": 60, "samples": 16, "checkpoint_every": 1, "max_groups": 40})");
  const std::string train = "train --config " + config + " --json --out ";
  ASSERT_EQ(run(train + path("whole")).code, 0);
  const auto saved = [&] {
    const std::string log = path("killed") + "/train.log";
    const std::string text = std::filesystem::exists(log) ? read_file(log) : "";
    return std::count(text.begin(), text.end(), '\n');
  };
  for (const int steps : {0, 1, 2, 5, 9}) {
    Process process(train + path("killed") + " --resume", {}, path("process"));
    ASSERT_TRUE(await([&] { return saved() >= steps; })) << process.err();
    process.kill(SIGKILL);
    EXPECT_THAT(process.wait(), testing::AnyOf(-SIGKILL, 0)) << process.err();
  }
  const Finished last = run(train + path("killed") + " --resume");
  ASSERT_EQ(last.code, 0) << last.err;
  for (const char* file : {"/train.ckpt", "/policy.ckpt", "/train.log"}) {
    EXPECT_TRUE(read_file(path("whole") + file) == read_file(path("killed") + file)) << file;
  }
}

}  // namespace
}  // namespace heterog::cli
