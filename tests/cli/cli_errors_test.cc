// Bad input: one clear line on stderr, the documented exit code, nothing lost.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::HasSubstr;

constexpr const char* kCluster = "configs/clusters/heterog-4gpu.json";
constexpr const char* kGraph = "models/vgg19-tiny.json.gz";

class Errors : public ProgramTest {
 protected:
  // One line that holds every one of `parts`, exit code 2 and nothing on stdout.
  void expect_refused(const std::string& arguments, const std::vector<std::string>& parts) {
    SCOPED_TRACE(arguments);
    const Finished refused = run(arguments);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_EQ(refused.out, "");
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
    for (const std::string& part : parts) EXPECT_THAT(refused.err, HasSubstr(part));
  }
  std::string plan(const std::string& graph, const std::string& cluster,
                   const std::string& batch = "32") {
    return "plan --graph '" + graph + "' --cluster '" + cluster + "' --batch " + batch + " --out " +
           path("plan.json");
  }
  // A graph file with one piece of its text replaced.
  std::string graph_with(std::string_view from, std::string_view to) {
    std::string text = read_file(kGraph);
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return write("graph.json", text.replace(at, from.size(), to));
  }
};

TEST_F(Errors, AFileThatIsNotThere) {
  expect_refused(plan("models/no-such.json.gz", kCluster),
                 {"models/no-such.json.gz", "No such file"});
  expect_refused(plan(kGraph, "configs/clusters/no-such.json"), {"no-such.json"});
}

TEST_F(Errors, ATruncatedGzip) {
  const std::string whole = gzip(read_file(kGraph));
  const std::string graph = write("cut.json.gz", whole.substr(0, whole.size() / 2));
  expect_refused(plan(graph, kCluster), {"cut.json.gz", "gzip"});
}

TEST_F(Errors, AnUnknownKey) {
  const std::string cluster = write("cluster.json", R"({"format": "heterog-cluster", "version": 1,
    "name": "c", "machines": [{"name": "a", "devices": [{"model": "V100-PCIE-16GB", "colour": 1}]}]})");
  expect_refused(plan(kGraph, cluster), {"cluster.json", "machines[0].devices[0]", "colour"});
}

TEST_F(Errors, ANegativeSize) {
  const std::string cluster = write("cluster.json", R"({"format": "heterog-cluster", "version": 1,
    "name": "c", "machines": [{"name": "a",
    "devices": [{"model": "V100-PCIE-16GB", "memory_bytes": -5}]}]})");
  expect_refused(plan(kGraph, cluster), {"cluster.json", "memory_bytes", "-5"});
}

TEST_F(Errors, AnUnknownOperator) {
  expect_refused(plan(graph_with("aten.relu", "aten.rleu"), kCluster), {"graph.json", "aten.rleu"});
}

// from_file maps a file shared, and fill_ writes it over: a graph that a stranger wrote must not.
TEST_F(Errors, AGraphThatWouldOverwriteAFile) {
  const std::string precious = write("precious", std::string(64, 'x'));
  const std::string graph = write("graph.json", R"({"format": "heterog-graph", "version": 1,
    "name": "g", "dtype": "float32", "loss": 3, "tensors": [
      {"name": "x", "role": "input", "dtype": "float32", "shape": ["B"]},
      {"name": "m", "role": "activation", "dtype": "float32", "shape": [16]},
      {"name": "f", "role": "activation", "dtype": "float32", "shape": [16]},
      {"name": "loss", "role": "output", "dtype": "float32", "shape": []}], "ops": [
      {"name": "map", "op": "aten.from_file.default", "phase": "forward", "outputs": [1],
       "args": ["')" + precious + R"(", true, 16], "kwargs": {"dtype": ":float32"}},
      {"name": "fill", "op": "aten.fill_.Scalar", "phase": "forward", "outputs": [2],
       "args": ["%1", 0]},
      {"name": "sum", "op": "aten.sum.default", "phase": "forward", "outputs": [3],
       "args": ["%0"]}]})");
  const std::string given = "--graph " + graph + " --cluster " + kCluster + " --batch 8";
  for (const std::string& verb :
       {"plan --out " + path("plan.json"), std::string("verify --planner cp-ar")}) {
    expect_refused(verb + " " + given, {"graph.json: ops[0].op: \"aten.from_file.default\""});
  }
  expect_refused("profile --graph " + graph + " --out " + path("profile.json"), {"from_file"});
  EXPECT_EQ(read_file(precious), std::string(64, 'x'));
}

// Named before anything runs, by every verb that reads a graph.
TEST_F(Errors, AnOperatorWithTooFewArguments) {
  std::string text = read_file(kGraph);
  const std::size_t op = text.find(R"("op": "aten.mm.default")");
  const std::size_t begin = text.find(", \"%", text.find(R"("args": [)", op));
  const std::size_t end = text.find(']', begin);
  ASSERT_LT(end, text.find('\n', op));
  const std::string graph = write("graph.json", text.erase(begin, end - begin));
  const std::vector<std::string> parts = {"graph.json: op 'mm", "aten.mm.default",
                                          "'mat2' is missing"};
  expect_refused(plan(graph, kCluster), parts);
  expect_refused(
      "verify --graph " + graph + " --cluster " + kCluster + " --batch 8 --planner ev-ar", parts);
  expect_refused("profile --graph " + graph + " --slices 1,2 --out " + path("p.json"), parts);
}

// The first op reads what the second one makes of its result.
TEST_F(Errors, ACycle) {
  expect_refused(plan(graph_with(R"("args": ["%0", "%3")", R"("args": ["%24", "%3")"), kCluster),
                 {"graph.json", "ops[0]", "tensors[24]", "topological order"});
}

// What makes a time zero or endless.
TEST_F(Errors, SpeedsOfZeroAndInfinity) {
  for (const char* bandwidth : {"0", "-1e9", "1e999"}) {
    const std::string cluster =
        write("cluster.json", R"({"format": "heterog-cluster", "version": 1, "name": "c",
        "machines": [{"name": "a", "fabric": {"kind": "switch", "latency_seconds": 0,
        "bandwidth_bytes_per_second": )" +
                                  std::string(bandwidth) + R"(},
        "devices": [{"model": "V100-PCIE-16GB"}, {"model": "V100-PCIE-16GB"}]}]})");
    expect_refused(plan(kGraph, cluster), {"cluster.json"});
  }
}

TEST_F(Errors, MachinesWithoutALink) {
  const std::string cluster = write("cluster.json", R"({"format": "heterog-cluster", "version": 1,
    "name": "c", "machines": [{"name": "a", "devices": [{"model": "V100-PCIE-16GB"}]},
                              {"name": "b", "devices": [{"model": "V100-PCIE-16GB"}]}]})");
  expect_refused(plan(kGraph, cluster), {"cluster.json", "nic"});
}

TEST_F(Errors, BatchZero) { expect_refused(plan(kGraph, kCluster, "0"), {"--batch", "0"}); }

TEST_F(Errors, BatchBelowThoseThatTheGraphWasTracedAt) {
  const std::string graph = "tests/data/mlp_sgd.json.gz";
  expect_refused(
      plan(graph, kCluster, "1"),
      {"batch 1: tests/data/mlp_sgd.json.gz is known to hold for batches of 2 and more"});
}

// Of a file without a checksum, which would answer first.
TEST_F(Errors, ACheckpointOfAnotherFeatureVersion) {
  std::string text = read_file("models/policies/zoo-small.ckpt");
  // As an earlier version wrote it, which knew no checksum.
  const auto replace = [&](const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  replace("\"checksum\":", "\"no-check\":");
  replace(",\"version\":\"8\"", ",\"version\":\"1\"");
  replace("\"feature_version\":\"3\"", "\"feature_version\":\"9\"");
  const std::string old = write("old.ckpt", text);
  expect_refused(plan(kGraph, kCluster) + " --planner policy --policy " + old,
                 {"old.ckpt", "feature"});
}

TEST_F(Errors, APlanOfAnotherGraphOrCluster) {
  ASSERT_EQ(run("plan " + kTiny + " --planner ev-ar --out " + path("plan.json")).code, 0);
  const std::string with = " --plan " + path("plan.json");
  expect_refused(
      "simulate --graph models/lenet5-tiny.json.gz --cluster " + std::string(kCluster) + with,
      {"plan.json", "graph"});
  expect_refused("simulate --graph " + std::string(kGraph) +
                     " --cluster configs/clusters/heterog-8gpu.json" + with,
                 {"plan.json", "cluster"});
  for (const std::string verb : {"explain", "report"}) {
    const std::string out = verb == "report" ? " --out " + path("page.html") : "";
    expect_refused(verb + " --graph models/lenet5-tiny.json.gz --cluster " + kCluster + with + out,
                   {"plan.json", "graph"});
  }
  expect_refused("diff --graph models/lenet5-tiny.json.gz --cluster " + std::string(kCluster) +
                     " " + path("plan.json") + " " + path("plan.json"),
                 {"plan.json", "graph"});
}

TEST_F(Errors, PlansOfAnotherBatch) {
  const std::string on = " --graph " + std::string(kGraph) + " --cluster " + kCluster + " ";
  for (const std::string batch : {"16", "32"}) {
    ASSERT_EQ(run("plan" + on + "--batch " + batch + " --planner ev-ar --out " + path(batch)).code,
              0);
  }
  const std::string both = path("16") + " " + path("32");
  expect_refused("diff" + on + both, {"batch 16", "batch 32"});
  expect_refused("report" + on + "--plan " + both + " --out " + path("page.html"),
                 {"batch 16", "batch 32"});
  expect_refused("explain" + on + "--batch 32 --plan " + path("16"), {"--batch", "32", "16"});
  EXPECT_FALSE(std::filesystem::exists(path("page.html")));
}

TEST_F(Errors, APlanThatIsBroken) {
  ASSERT_EQ(run("plan " + kTiny + " --planner ev-ar --out " + path("plan.json")).code, 0);
  const std::string text = read_file(path("plan.json"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return write("broken.json", changed.replace(at, from.size(), to));
  };
  const std::string explain =
      "explain --graph " + std::string(kGraph) + " --cluster " + kCluster + " --plan ";
  const std::string order = text.substr(text.find("\"order\": "), 12);
  expect_refused(explain + with(order, "\"order\": \"x" + order.substr(11)),
                 {"broken.json", "order"});
  expect_refused(explain + with("\"weights\":[1.0", "\"weights\":[0.0"),
                 {"broken.json", "weights"});
  expect_refused(explain + with("\"units\": [0", "\"units\": [7"), {"broken.json", "units"});
}

TEST_F(Errors, UnknownOptionsVerbsAndPlanners) {
  expect_refused("plan --colour 3", {"--help"});
  expect_refused("paln", {"\"paln\"", "did you mean plan?", "--help"});
  expect_refused("plan --bacth 8", {"--bacth", "did you mean --batch?"});
  expect_refused("plan " + kTiny + " --planner ev-pss --out " + path("p"),
                 {"ev-pss", "did you mean ev-ps?"});
  expect_refused("plan " + kTiny + " --planner single:v100/gpu7 --out " + path("p"),
                 {"did you mean v100/gpu0?"});
  expect_refused("plan " + kTiny + " --planner random:evaluations=x --out " + path("p"),
                 {"planner random: option evaluations", "\"x\"", "an integer from 1 to"});
  expect_refused("plan " + kTiny + " --planner random:evaluation=3 --out " + path("p"),
                 {"planner random", "did you mean evaluations?"});
  expect_refused("plan " + kTiny + " --planner policy:finetune_share=2 --out " + path("p"),
                 {"planner policy: option finetune_share", "a number from 0 to 1"});
  expect_refused("plan " + kTiny + " --planner portfolio: --out " + path("p"), {"option=value"});
  expect_refused(
      "compare " + kTiny + " --planner ev-ar:order=fife",
      {"planner ev-ar: option order", "did you mean fifo?", "better, rank, rank-queued or fifo"});
  expect_refused("plan " + kTiny + " --policy tuned.ckpt --out " + path("p"),
                 {"--policy: given beside --planner portfolio", "expected --planner policy"});
  expect_refused("planners policyy", {"did you mean policy?"});
  expect_refused("train --config configs/train/small.json --set stpes=3 --out " + path("t"),
                 {"stpes", "did you mean steps?"});
  if (!std::filesystem::exists("/proc/driver/nvidia/version")) {
    expect_refused("train --config configs/train/small.json --gpu --out " + path("t"),
                   {"--gpu: ", "on the CPU"});
    expect_refused("finetune " + kTiny + " --evaluations 10 --gpu --out " + path("p"),
                   {"--gpu: ", "on the CPU"});
  }
  expect_refused("diff --graph g --cluster c only-one.json", {"--help"});
  expect_refused("report --graph g --cluster c --plan p", {"--out", "--help"});
  expect_refused("plan " + kTiny + " --budget -3 --out " + path("p"), {"--budget", "-3"});
}

// That every option of every verb does is the business of command_line_test.
TEST_F(Errors, NumbersOutOfRange) {
  const std::string plan = "plan " + kTiny + " --out " + path("p") + " ";
  expect_refused(plan + "--threads 0", {"--threads", "\"0\"", "from 1 to 1024"});
  expect_refused(plan + "--threads 100000", {"--threads", "100000"});
  expect_refused(plan + "--seed -1", {"--seed", "-1", "from 0 to 9223372036854775807"});
  expect_refused(plan + "--seed 18446744073709551616", {"--seed"});
  expect_refused(plan + "--evaluations 9999999999999999999", {"--evaluations"});
  expect_refused(this->plan(kGraph, kCluster, "' 8'"), {"--batch", "\" 8\""});
  expect_refused(plan + "--budget nan", {"--budget", "nan", "number from"});
  expect_refused(plan + "--budget 1e300", {"--budget", "1e300"});
  expect_refused(plan + "--log-level loud", {"--log-level", "loud", "debug"});
  EXPECT_FALSE(std::filesystem::exists(path("p")));
}

// Nothing has been done if nobody can read it.
TEST_F(Errors, AFullDisk) {
  ASSERT_EQ(run("plan " + kTiny + " --planner ev-ar --out " + path("plan.json")).code, 0);
  const std::string on = " --graph " + std::string(kGraph) + " --cluster " + kCluster + " ",
                    plan = path("plan.json");
  for (const std::string& arguments :
       {std::string("--help"), std::string("--version"), std::string("plan --help"),
        std::string("planners"), std::string("planners --json"), "simulate" + on + "--plan " + plan,
        "simulate" + on + "--json --plan " + plan, "explain" + on + "--plan " + plan,
        "diff" + on + plan + " " + plan,
        "report" + on + "--plan " + plan + " --out " + path("page.html"),
        "plan " + kTiny + " --planner ev-ar --out " + path("again.json")}) {
    SCOPED_TRACE(arguments);
    const Finished full = run_into("/dev/full", arguments);
    EXPECT_EQ(full.code, 4);
    EXPECT_EQ(std::count(full.err.begin(), full.err.end(), '\n'), 1) << full.err;
    EXPECT_THAT(full.err, testing::AllOf(HasSubstr("stdout"), HasSubstr("No space left")));
  }
}

TEST_F(Errors, LogLevelsAreHeard) {
  const std::string plan = "plan " + kTiny + " --planner portfolio --evaluations 20 --out " +
                           path("plan.json") + " --log-level ";
  const std::string quiet = run(plan + "error").err;
  const std::string files = run(plan + "info").err;
  const std::string finds = run(plan + "debug").err;
  EXPECT_EQ(quiet, "");
  EXPECT_THAT(files, testing::AllOf(HasSubstr("info: "), HasSubstr("plan.json")));
  EXPECT_THAT(files, testing::Not(HasSubstr("debug: ")));
  EXPECT_THAT(finds, testing::AllOf(HasSubstr("info: "), HasSubstr("debug: ")));
}

TEST_F(Errors, AnOutputThatCannotBeWrittenKeepsTheOldOne) {
  // Said before the search that would have nowhere to go: a budget of an hour ends at once.
  for (const std::string& verb :
       {"plan " + kTiny + " --budget 3600 --out ", "shares " + kTiny + " --budget 3600 --out ",
        "finetune " + kTiny + " --budget 3600 --out ",
        "finetune " + kTiny + " --budget 3600 --out " + path("x.ckpt") + " --plan ",
        std::string("train --config small --out /dev/null/")}) {
    const Finished refused = run(verb + "/nonexistent/out");
    EXPECT_EQ(refused.code, 4) << verb << refused.err;
    EXPECT_EQ(refused.out, "");
    EXPECT_THAT(refused.err, HasSubstr("/nonexistent/out: cannot "));
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
  EXPECT_FALSE(std::filesystem::exists(path("x.ckpt")));
}

TEST_F(Errors, AModelInPlaceOfItsGraphIsToBeExported) {
  write("gpt2.py", "import torch\n");
  for (const std::string& name : {std::string("gpt2.py"), std::string("gpt2.py:training")}) {
    const Finished refused = run("plan --graph " + path(name) +
                                 " --cluster heterog-4gpu --batch 8 --out " + path("plan.json"));
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr(path(name) + ": is a Python script"));
    EXPECT_THAT(refused.err, HasSubstr("heterog export " + path("gpt2.py") + ":FUNCTION --out "));
  }
  const Finished saved = run("simulate --graph x.onnx --cluster heterog-4gpu --plan p.json");
  EXPECT_EQ(saved.code, 2);
}

TEST_F(Errors, NothingFits) {
  const std::string cluster = write("cluster.json", R"({"format": "heterog-cluster", "version": 1,
    "name": "c", "machines": [{"name": "a",
    "devices": [{"model": "V100-PCIE-16GB", "memory_bytes": 700100000}]}]})");
  const Finished refused = run(plan(kGraph, cluster, "4096"));
  EXPECT_EQ(refused.code, 3) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("a/gpu0"));
  EXPECT_FALSE(std::filesystem::exists(path("plan.json")));
}

}  // namespace
}  // namespace heterog::cli
