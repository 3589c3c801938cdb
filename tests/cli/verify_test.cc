// Plans proved by real processes: the same verdict as in threads, and every break found.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/rng.h"
#include "cli/program.h"
#include "support/graphs.h"

namespace heterog::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kTwo = " --cluster configs/clusters/local-2cpu.json";
const std::string kFour = " --cluster configs/clusters/heterog-4gpu.json";  // run on CPUs
const std::string kMlp = " --graph tests/data/mlp_sgd.json.gz";
const std::string kLeNet = " --graph models/lenet5-tiny.json.gz";

class VerifyInProcesses : public ProgramTest {
 protected:
  // Every unit on both devices of kTwo, one and seven samples of eight.
  std::string unequal_plan(const std::string& graph, const std::string& planner) const {
    const std::string file = path("plan.json");
    const Finished planned =
        run("plan --batch 8 --planner " + planner + " --out " + file + graph + kTwo);
    EXPECT_EQ(planned.code, 0) << planned.err;
    nlohmann::json plan = nlohmann::json::parse(read_file(file));
    for (nlohmann::json& decision : plan["decisions"]) {
      EXPECT_EQ(decision["weights"].size(), 2u);
      decision["weights"] = {1.0, 7.0};
    }
    return write("unequal.json", plan.dump());
  }

  // In processes and in threads, what they agree in.
  void expect_proved(const std::string& arguments) const {
    SCOPED_TRACE(arguments);
    const Finished processes = run("verify --processes --steps 2 --json" + arguments);
    ASSERT_EQ(processes.code, 0) << processes.err;
    EXPECT_EQ(processes.err, "");
    const nlohmann::json found = json(processes);
    EXPECT_EQ(found["ranks_are"], "processes");
    EXPECT_TRUE(found["passed"]);
    ASSERT_GE(found["worst"].size(), 3u);
    for (const nlohmann::json& worst : found["worst"]) EXPECT_LE(worst["relative"], 1e-10);
    // As many values are compared, so every rank's were.
    const nlohmann::json threads = json(run("verify --steps 2 --json" + arguments));
    EXPECT_EQ(threads["ranks_are"], "threads of one process");
    EXPECT_EQ(found["compared"], threads["compared"]);
    EXPECT_EQ(found["batch_norms_per_slice"], threads["batch_norms_per_slice"]);
    EXPECT_EQ(found["random_by_counter"], threads["random_by_counter"]);
  }

  void expect_found(const std::string& broken, const std::string& arguments) const {
    SCOPED_TRACE(broken + arguments);
    const Finished finished =
        run("verify --processes --steps 2 --json --break " + broken + arguments);
    EXPECT_EQ(finished.code, 4);
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    EXPECT_THAT(finished.err,
                AllOf(StartsWith("heterog: error: rank "),
                      HasSubstr("the plan does not train as one device"), HasSubstr("is off by")));
    const nlohmann::json found = json(finished);
    EXPECT_FALSE(found["passed"]);
    // The same tensor as in threads, on the same device, by as much.
    const Finished in_threads = run("verify --steps 2 --json --break " + broken + arguments);
    EXPECT_EQ(in_threads.code, 4);
    EXPECT_EQ(in_threads.err, finished.err);
  }
};

// Tables whose gradients travel as rows or whole, in either precision, whatever the batch: also one
// of fewer samples than devices.
TEST_F(VerifyInProcesses, ProvesEmbeddings) {
  Rng rng(11);
  for (int i = 0; i < 6; ++i) {
    const support::LookupTable table{
        .rows = 30,
        .width = 8,
        .words = 1 + static_cast<std::int64_t>(rng.below(4)),
        .twice = rng.below(3) == 0,
        .gradient = i % 2 == 0 ? graph::DType::kBFloat16 : graph::DType::kFloat32};
    const std::string graph =
        write("lookups.json", support::graph_text(support::lookup_graph(table)));
    const char* planner = std::array{"ev-ar", "cp-ar", "ev-ps"}[i % 3];
    expect_proved(fmt::format(" --batch {} --planner {} --graph {}{}", 1 + rng.below(33), planner,
                              graph, i % 2 == 0 ? kFour : kTwo));
  }
}

TEST_F(VerifyInProcesses, ProvesEvenSlicesReducedByAll) {
  expect_proved(" --batch 8 --planner ev-ar" + kMlp + kTwo);
}

TEST_F(VerifyInProcesses, ProvesProportionalSlicesOnServers) {
  const std::string normalised =
      " --batch 12 --planner cp-ps --graph tests/data/batch_norm_sgd.json.gz" + kFour;
  expect_proved(normalised);
  EXPECT_THAT(run("verify --steps 1" + normalised).out, HasSubstr("per slice: 4 batch norms\n"));
}

// A rank for each device and for each host that serves, of one machine and of two.
TEST_F(VerifyInProcesses, ProvesServersOnHosts) {
  for (const int machines : {1, 2}) {
    const std::string cluster = " --cluster " + write("served.json", served_cluster(machines));
    expect_proved(" --batch 16 --planner ev-ps" + kLeNet + cluster);
    expect_proved(" --batch 16 --planner cp-ps --graph models/gnmt4-tiny.json.gz" + cluster);
    expect_found("skip-pull", " --batch 8 --planner ev-ps" + kMlp + cluster);
    expect_found("drop-contribution", " --batch 8 --planner ev-ps" + kMlp + cluster);
  }
}

TEST_F(VerifyInProcesses, ProvesShards) {
  expect_proved(" --batch 8 --planner ev-ar:state=sharded" + kMlp + kTwo);
  expect_proved(" --batch 13 --planner horovod:state=sharded --graph models/gnmt4-tiny.json.gz" +
                kFour);
  for (const char* fault : {"skip-gather", "old-shard", "wrong-rows"}) {
    expect_found(fault, " --batch 8 --planner ev-ar:state=sharded" + kMlp + kTwo);
  }
}

// The base under adapters lies in rows: on two ranks, and on three of unequal samples and rows, in
// micro-batches.
TEST_F(VerifyInProcesses, ProvesFrozenRows) {
  const std::string lora = " --graph models/llama7b_lora-tiny.json.gz";
  expect_proved(" --batch 8 --planner ev-ar:state=gathered" + lora + kTwo);
  expect_proved(" --batch 12 --planner accumulate:micro_batches=2,state=gathered" + lora +
                " --cluster three-cards");
  expect_found("zero-rows",
               " --batch 8 --planner ev-ar:state=gathered" + lora + " --cluster three-cards");
}

TEST_F(VerifyInProcesses, ProvesUnequalSlices) {
  expect_proved(" --plan " + unequal_plan(kLeNet, "ev-ar") + kLeNet + kTwo);
  expect_proved(" --plan " + unequal_plan(kLeNet, "ev-ps") + kLeNet + kTwo);
}

TEST_F(VerifyInProcesses, ProvesARandomMix) {
  const std::string dropout = " --graph tests/data/transformer_dropout.json.gz";
  expect_proved(" --batch 12 --planner random --seed 5" + dropout + kFour);
}

TEST_F(VerifyInProcesses, ProvesOtherBatchesAndMicroBatches) {
  const std::string plan = " --plan " + unequal_plan(kLeNet, "ev-ar") + kLeNet + kTwo;
  expect_proved(" --at-batch 13" + plan);
  expect_proved(" --at-batch 3 --accumulate 4" + plan);
  EXPECT_THAT(run("verify --steps 1 --at-batch 3" + plan).out, HasSubstr("batch 3, plan of ev-ar"));
  expect_found("equal-weights", " --at-batch 5" + plan);
  const Finished small = run("verify --at-batch 1" + plan);
  EXPECT_EQ(small.code, 2);
  EXPECT_THAT(small.err,
              HasSubstr("batch 1: models/lenet5-tiny.json.gz is known to hold for batches of"));
}

TEST_F(VerifyInProcesses, FindsWhatIsBroken) {
  const std::string reduced = " --plan " + unequal_plan(kLeNet, "ev-ar") + kLeNet + kTwo;
  expect_found("drop-contribution", reduced);
  expect_found("equal-weights", reduced);
  expect_found("skip-pull", " --batch 8 --planner ev-ps" + kMlp + kTwo);
}

// A skipped pull leaves an old parameter on one rank, which only that rank has: that of another
// process than the one that prints.
TEST_F(VerifyInProcesses, FindsWhatAnotherProcessHas) {
  const Finished finished = run("verify --processes --steps 1 --json --break skip-pull --batch 8" +
                                std::string(" --planner ev-ps") + kMlp + kTwo);
  EXPECT_EQ(finished.code, 4);
  const nlohmann::json said = json(finished);
  const auto parameter =
      std::find_if(said["worst"].begin(), said["worst"].end(),
                   [](const nlohmann::json& worst) { return worst["kind"] == "parameter"; });
  ASSERT_NE(parameter, said["worst"].end());
  EXPECT_GT((*parameter)["relative"], 1e-6);
  EXPECT_EQ((*parameter)["device"], "local/gpu1");
}

TEST_F(VerifyInProcesses, RefusesInputOnce) {
  const Finished refused =
      run("verify --processes --batch 8 --planner ev-ar --break nothing" + kMlp + kTwo);
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("--break"));
}

TEST_F(VerifyInProcesses, RunOnTheDevicesOfThePlan) {
  const std::string plan = "verify --processes --steps 1 --batch 8 --planner ev-ar --devices plan";
  const Finished proved = run(plan + kMlp + kTwo);
  EXPECT_EQ(proved.code, 0) << proved.err;
  EXPECT_THAT(proved.out, HasSubstr("1 steps, processes"));
  if (std::system("nvidia-smi -L >/dev/null 2>&1") == 0) GTEST_SKIP() << "there is a GPU";
  const Finished refused = run(plan + kMlp + kFour);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--devices plan: "));
}

// Numbers of TensorFloat-32 differ by more than those of float32, and a plan is not to blame for
// it: they are used where they are asked for and the graph lets them, and compared less sharply.
TEST_F(VerifyInProcesses, TolerancesAreThoseOfTheNumbers) {
  nlohmann::json graph = nlohmann::json::parse(read_file("tests/data/mlp_sgd.json.gz"));
  const auto tolerance = [&](const std::string& more) {
    const std::string file = write("graph.json", graph.dump());
    return json(run("verify --json --steps 1 --batch 8 --planner ev-ar --graph " + file + kTwo +
                    more))["tolerance"]
        .get<double>();
  };
  graph["tf32"] = {"products"};
  EXPECT_EQ(tolerance(" --dtype float32 --tf32"), 1e-2);
  EXPECT_EQ(tolerance(" --dtype float32"), 1e-4);
  EXPECT_EQ(tolerance(" --dtype float64 --tf32"), 1e-10);
  EXPECT_EQ(tolerance(" --dtype float32 --tf32 --tolerance 0.5"), 0.5);
  graph["tf32"] = {"convolutions"};
  EXPECT_EQ(tolerance(" --dtype float32 --tf32"), 1e-2);
  graph["tf32"] = nlohmann::json::array();
  EXPECT_EQ(tolerance(" --dtype float32 --tf32"), 1e-4);
}

// As torchrun starts ranks: no flag, and rank 0 alone judges.
TEST_F(VerifyInProcesses, TakesItsPlaceFromTheEnvironment) {
  const std::string port = std::to_string(20'000 + (getpid() * 7 + 8'000) % 10'000);
  const std::string common = "MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + " WORLD_SIZE=2 '" +
                             std::string(HETEROG_PROGRAM) +
                             "' verify --steps 1 --batch 8 --planner ev-ar --timeout 300" + kMlp +
                             kTwo;
  const std::string script = write(
      "script", "RANK=1 LOCAL_RANK=1 " + common + " >" + path("second") + " 2>&1 &\n" +
                    "RANK=0 LOCAL_RANK=0 " + common + " >" + path("first") + " 2>&1\necho $? >" +
                    path("code0") + "\nwait $!\necho $? >" + path("code1") + "\n");
  ASSERT_EQ(std::system(("timeout -s KILL 600 sh " + script).c_str()), 0);
  EXPECT_EQ(read_file(path("code0")), "0\n") << read_file(path("first"));
  EXPECT_EQ(read_file(path("code1")), "0\n") << read_file(path("second"));
  EXPECT_THAT(read_file(path("first")), AllOf(HasSubstr("1 steps, processes"),
                                              HasSubstr("the same as one device, to 1e-10")));
  EXPECT_EQ(read_file(path("second")), "");
}

}  // namespace
}  // namespace heterog::cli
