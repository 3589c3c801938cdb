// Plans of random strategies on real graphs move what the strategies' formulas say.
#include "compiler/check/check_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "cluster/cluster_io.h"
#include "compiler/compile.h"
#include "cost/cost_model.h"
#include "decide/problems.h"
#include "decide/random_sync.h"
#include "graph/graph_io.h"
#include "sim/known_problems.h"

namespace heterog::compiler {
namespace {

using sim::Backward;
using sim::backward_graph;
using sim::Known;
using sim::known_cluster;
using sim::NamedOps;
using sim::on;

std::unique_ptr<const cost::Problem> problem_of(const std::string& model,
                                                const std::string& cluster, std::int64_t batch) {
  if (cluster == "served") {
    return decide::served_problem(graph::read_graph("models/" + model + ".json.gz"), 3,
                                  {true, false, true}, batch);
  }
  return cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/" + model + ".json.gz")),
      std::make_shared<const cluster::Cluster>(
          cluster::load_cluster("configs/clusters/" + cluster + ".json")),
      cost::ConstantModel(1e-5), batch);
}

// Neighbouring groups often decide alike, as planners do.
decide::Strategy random_strategy(const cost::Problem& problem, Rng& rng) {
  const std::size_t devices = problem.cluster->device_count();
  decide::Strategy strategy;
  decide::UnitDecision decision;
  for (std::size_t unit = 0; unit < problem.grouping.count(); ++unit) {
    if (unit == 0 || rng.below(3) == 0) {
      decision = {};
      decision.sync = decide::kSyncMethods[rng.below(4)];
      for (std::size_t device = 0; device < devices; ++device) {
        if (rng.below(2)) decision.replicas.push_back({DeviceId(device), 1.0 + rng.below(3)});
      }
      if (decision.replicas.empty()) decision.replicas.push_back({DeviceId(rng.below(devices)), 1});
      if (rng.below(3) == 0) decision.replicas.resize(1);
      if (rng.below(4) == 0) std::reverse(decision.replicas.begin(), decision.replicas.end());
    }
    strategy.units.push_back(decision);
  }
  if (rng.below(2)) strategy.bucket_bytes = static_cast<Bytes>(rng.below(1 << 16));
  if (rng.below(2)) {
    for (std::size_t device = 0; device < devices; ++device) {
      strategy.row_weights.push_back(1.0 + rng.below(4));
    }
  }
  if (rng.below(2)) decide::deal_to_random_servers(problem, rng, strategy);
  if (rng.below(2)) decide::draw_random_groups(problem, rng, strategy);
  return strategy;
}

TEST(CheckBytes, RandomStrategiesMoveWhatTheirFormulasSay) {
  Rng rng(31);
  int plans = 0, moving = 0, parts = 0, compressed = 0, frozen = 0;
  for (const char* model :
       {"lenet5-tiny", "vgg19-tiny", "resnet50-tiny", "bert_large24-tiny", "gnmt4-tiny",
        "xlnet_large24-tiny", "mobilenet_v2-tiny", "lstm_lm-tiny", "llama7b_lora-tiny"}) {
    for (const char* cluster : {"heterog-8gpu", "celeritas-4gpu", "autosync-b9", "served"}) {
      // Adapters want devices that know bfloat16.
      const bool any = std::string_view(model) != "llama7b_lora-tiny" || cluster[0] == 's';
      const auto plain = problem_of(model, any ? cluster : "three-cards", 13);
      for (int i = 0; i < 6; ++i) {
        const auto problem = decide::with_compression(*plain, decide::random_compression(rng));
        const decide::Strategy strategy = random_strategy(*problem, rng);
        const Plan plan = compile(*problem, strategy);
        const auto wrong = check_bytes(*problem, strategy, plan);
        ASSERT_TRUE(wrong.empty()) << model << " on " << cluster << ": " << wrong[0];
        ++plans;
        for (double bytes : expected_link_bytes(*problem, strategy)) moving += bytes > 0;
        for (TaskId task : plan.task_ids()) {
          const bool pushes = plan.kind[task] == TaskKind::kPush;
          const bool gathers = plan.kind[task] == TaskKind::kAllGather;
          frozen += gathers && plan.encoding_of(task) == Encoding::kPart ? 1 : 0;
          parts += pushes && plan.encoding_of(task) == Encoding::kPart ? 1 : 0;
          compressed += plan.is_compressed(task) ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(moving, plans);  // not for want of anything to move
  EXPECT_GT(parts, plans);
  EXPECT_GT(frozen, 20);
  EXPECT_GT(compressed, plans);
}

TEST(CheckBytes, LargeGraphsUnderTheBaselines) {
  for (const char* model : {"vgg19", "bert_large24"}) {
    const auto problem = problem_of(model, "heterog-8gpu", 48);
    for (decide::SyncMethod sync :
         {decide::SyncMethod::kAllReduce, decide::SyncMethod::kParameterServer}) {
      for (const decide::UnitDecision& decision :
           {decide::even_decision(*problem, sync), decide::proportional_decision(*problem, sync),
            on({1, 5, 5}, sync), on({3})}) {
        const decide::Strategy strategy = decide::uniform_strategy(*problem, decision);
        const auto wrong = check_bytes(*problem, strategy, compile(*problem, strategy));
        EXPECT_TRUE(wrong.empty()) << model << ": " << wrong[0];
      }
    }
  }
}

// The closed formula at its simplest: w has 400 B. All-reduce of two crosses each card with
// 2·1/2·400, a server's card takes one push in and sends one pull.
TEST(CheckBytes, OneLayerByHand) {
  for (decide::SyncMethod sync :
       {decide::SyncMethod::kAllReduce, decide::SyncMethod::kParameterServer}) {
    Backward model = backward_graph(1, 10);
    Known known(std::move(model.graph), known_cluster({{}, {}}),
                NamedOps("aten.sigmoid_backward.default", 100), 8);
    for (double bytes : expected_link_bytes(
             known.problem(), decide::uniform_strategy(known.problem(), on({0, 1}, sync)))) {
      EXPECT_EQ(bytes, 400);
    }
  }
}

// What crosses each card of two machines under each method: w has 10 × 10 float32. fp16 halves all
// but pulls and gathers; PowerSGD of rank 2 all-reduces factors of 20 and 20 numbers.
TEST(CheckBytes, OneCompressedLayerByHand) {
  using decide::SyncMethod;
  const auto crossing = [](const char* text, SyncMethod sync) {
    Backward model = backward_graph(1, 10);
    Known known(std::move(model.graph), known_cluster({{}, {}}),
                NamedOps("aten.sigmoid_backward.default", 100), 8);
    const auto problem = decide::with_compression(known.problem(), text);
    const auto strategy = decide::uniform_strategy(*problem, on({0, 1}, sync));
    const Plan plan = compile(*problem, strategy);
    EXPECT_TRUE(check_bytes(*problem, strategy, plan).empty());
    std::vector<double> bytes;
    for (double one : expected_link_bytes(*problem, strategy)) bytes.push_back(one);
    return bytes;
  };
  EXPECT_THAT(crossing("fp16", SyncMethod::kAllReduce), testing::Each(200));
  EXPECT_THAT(crossing("bf16,feedback", SyncMethod::kAllReduce), testing::Each(200));
  EXPECT_THAT(crossing("powersgd:rank=2", SyncMethod::kAllReduce), testing::Each(160));
  // Pushed to the server, and the new value pulled from there.
  EXPECT_THAT(crossing("fp16", SyncMethod::kParameterServer),
              testing::UnorderedElementsAre(200, 200, 400, 400));
  EXPECT_THAT(crossing("powersgd:rank=2", SyncMethod::kParameterServer), testing::Each(400));
}

// A push that is counted twice, a transfer too many or one sample too few is found.
TEST(CheckBytes, FindsWhatIsChanged) {
  Rng rng(32);
  const auto problem = problem_of("gnmt4-tiny", "heterog-8gpu", 16);
  for (int i = 0; i < 40; ++i) {
    const decide::Strategy strategy = random_strategy(*problem, rng);
    Plan plan = compile(*problem, strategy);
    std::vector<std::pair<TaskId, std::size_t>> links;
    for (TaskId task : plan.task_ids()) {
      const auto holds = plan.holds[task];
      for (std::size_t h = 0; h < holds.size(); ++h) {
        if (holds[h].bytes > 0 && plan.kind[task] != TaskKind::kAllReduce) {
          links.emplace_back(task, h);
        }
      }
    }
    ASSERT_FALSE(links.empty());
    const auto [task, h] = links[rng.below(links.size())];
    Hold& hold = plan.holds.mutable_row(task)[h];
    // More than all collectives together may be rounded by.
    hold.bytes += (rng.below(2) ? 1 : -1) * (1 << 20);
    EXPECT_FALSE(check_bytes(*problem, strategy, plan).empty()) << i;
  }
}

}  // namespace
}  // namespace heterog::compiler
