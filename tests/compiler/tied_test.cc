// Gradients of a table that is the embedding and the output's weight too: where they are added up.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/rng.h"
#include "compiler/check/check_bytes.h"
#include "compiler/compile.h"
#include "decide/layout.h"
#include "decide/problems.h"
#include "decide/random_instances.h"
#include "graph/folded.h"

namespace heterog::compiler {
namespace {

using decide::SyncMethod;

constexpr const char* kTied = "tests/data/transformer_tied.json.gz";

// The first half of the forward pass on device 0, the rest on device 1.
decide::Strategy two_stages(const cost::Problem& problem, SyncMethod sync) {
  decide::Strategy strategy = decide::random_pieces(problem, 1, 1);
  const std::size_t pieces = strategy.units.size();
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    strategy.units[UnitId(piece)] = {.replicas = {{DeviceId(2 * piece / pieces), 1}}, .sync = sync};
  }
  return strategy;
}

std::vector<TaskId> tasks_of(const Plan& plan, OpId op) {
  std::vector<TaskId> tasks;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] == TaskKind::kCompute && plan.op[task] == op) tasks.push_back(task);
  }
  return tasks;
}

std::vector<TaskId> transfers_of(const Plan& plan, TensorId tensor) {
  std::vector<TaskId> tasks;
  for (TaskId task : plan.task_ids()) {
    if (is_communication(plan.kind[task]) && plan.tensor[task] == tensor) tasks.push_back(task);
  }
  return tasks;
}

// Each of both stages has a replica of the table and updates it: each needs the other's gradient,
// and neither of these waits for the other.
TEST(TiedSums, OfTwoStagesCrossOnce) {
  const auto problem = decide::toy_problem(graph::read_graph(kTied), 2, 8);
  ASSERT_EQ(problem->folded->tied_sums.size(), 1u);
  const graph::TiedSum sum = problem->folded->tied_sums.front();
  const decide::Strategy strategy = two_stages(*problem, SyncMethod::kAllReduce);
  const Plan plan = compile(*problem, strategy);
  EXPECT_EQ(tasks_of(plan, sum.op).size(), 2u);
  const TensorId total = problem->graph->outputs(sum.op)[0];
  EXPECT_TRUE(transfers_of(plan, total).empty());
  std::vector<DeviceId> to;
  for (const graph::Read& read : problem->folded->reads[sum.op]) {
    for (TaskId task : transfers_of(plan, read.tensor)) {
      to.push_back(plan.device[task]);
      EXPECT_EQ(plan.predecessors[task], 1u);  // what makes it
    }
  }
  std::ranges::sort(to);
  EXPECT_EQ(to, (std::vector<DeviceId>{DeviceId(0), DeviceId(1)}));
  EXPECT_TRUE(check_bytes(*problem, strategy, plan).empty());
}

// By a server one gradient crosses, and the new table comes back.
TEST(TiedSums, AtAServer) {
  const auto problem = decide::toy_problem(graph::read_graph(kTied), 2, 8);
  const graph::TiedSum sum = problem->folded->tied_sums.front();
  const decide::Strategy strategy = two_stages(*problem, SyncMethod::kParameterServer);
  const Plan plan = compile(*problem, strategy);
  ASSERT_EQ(tasks_of(plan, sum.op).size(), 1u);
  std::size_t gradients = 0;
  for (const graph::Read& read : problem->folded->reads[sum.op]) {
    gradients += transfers_of(plan, read.tensor).size();
  }
  EXPECT_EQ(gradients, 1u);
  EXPECT_EQ(transfers_of(plan, sum.parameter).size(), 1u);
  EXPECT_EQ(plan.kind[transfers_of(plan, sum.parameter).front()], TaskKind::kPull);
}

// Where all slices make both, they are added up before anything moves, as they were.
TEST(TiedSums, OfTheSameSlicesAreAddedThere) {
  const auto problem = decide::toy_problem(graph::read_graph(kTied), 3, 9);
  const graph::TiedSum sum = problem->folded->tied_sums.front();
  const Plan plan = compile(
      *problem,
      decide::uniform_strategy(*problem, decide::even_decision(*problem, SyncMethod::kAllReduce)));
  for (TaskId task : tasks_of(plan, sum.op)) EXPECT_EQ(plan.end[task] - plan.begin[task], 3);
  EXPECT_EQ(transfers_of(plan, problem->graph->outputs(sum.op)[0]).size(), 1u);
}

// Time steps of a recurrent layer have sums of the same kind; a penalty's gradient, which reads the
// weight, is none, nor what somebody else reads.
TEST(TiedSums, AreOfPartialSumsForUpdatesAlone) {
  const auto sums = [](const char* path) {
    return decide::toy_problem(graph::read_graph(path), 2, 8)->folded->tied_sums;
  };
  EXPECT_EQ(sums("models/bert_large24-tiny.json.gz").size(), 1u);
  EXPECT_EQ(sums("models/transformer6-tiny.json.gz").size(), 2u);  // source, target and output
  EXPECT_GT(sums("tests/data/lstm.json.gz").size(), 2u);
  EXPECT_TRUE(sums("tests/data/mlp_penalised.json.gz").empty());
  EXPECT_TRUE(sums("models/resnet50-tiny.json.gz").empty());
}

// The weights of a recurrent layer have sums of sums, one a time step. Where some of their addends
// are of other slices, all wait for the update, and no rows of them go to several servers.
TEST(TiedSums, OfSumsAreWholeAtOneServerWhereAddendsComeApart) {
  const auto problem = decide::toy_problem(graph::read_graph("tests/data/lstm.json.gz"), 2, 8);
  std::size_t apart = 0, dealt = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Rng rng(seed);
    decide::Strategy strategy = decide::random_pieces(*problem, seed, 1);
    for (decide::UnitDecision& unit : strategy.units) {
      const double weight = rng.below(3) == 0 ? 3 : 1;
      unit = {.replicas = {{DeviceId(0), weight}, {DeviceId(1), 1}},
              .sync = SyncMethod::kParameterServer};
    }
    for (TensorId parameter : problem->graph->parameters()) {
      strategy.sync.push_back({.parameter = parameter,
                               .method = SyncMethod::kParameterServer,
                               .servers = {{DeviceId(0), 1}, {DeviceId(1), 2}}});
    }
    const auto wrong = check_bytes(*problem, strategy, compile(*problem, strategy));
    ASSERT_TRUE(wrong.empty()) << seed << ": " << wrong[0];
    const decide::Layout layout = decide::lay_out(*problem, strategy);
    apart += layout.sums_at_update.empty() ? 0 : 1;
    for (TensorId parameter : problem->graph->parameters()) {
      dealt += layout.home(parameter).partitioned() ? 1 : 0;
    }
  }
  EXPECT_GT(apart, 5u);
  EXPECT_GT(dealt, 5u);
}

TEST(TiedSums, MoveWhatTheirFormulasSay) {
  std::size_t apart = 0;
  for (const char* path :
       {kTied, "tests/data/partly_tied.json.gz", "models/bert_large24-tiny.json.gz",
        "models/transformer6-tiny.json.gz"}) {
    for (const int kind : {0, 1, 2}) {
      graph::ModelGraph graph = graph::read_graph(path);
      const auto problem = kind == 0
                               ? decide::served_problem(std::move(graph), 2, {true, false}, 11)
                               // Of few samples the embedding's gradient travels as rows.
                               : decide::toy_problem(std::move(graph), 3, kind == 1 ? 11 : 2);
      for (std::uint64_t seed = 0; seed < 12; ++seed) {
        const decide::Strategy strategy = decide::random_pieces(*problem, seed);
        const auto wrong = check_bytes(*problem, strategy, compile(*problem, strategy));
        ASSERT_TRUE(wrong.empty()) << path << ", " << seed << ": " << wrong[0];
        apart += decide::lay_out(*problem, strategy).sums_at_update.size();
      }
    }
  }
  EXPECT_GT(apart, 20u);
}

}  // namespace
}  // namespace heterog::compiler
