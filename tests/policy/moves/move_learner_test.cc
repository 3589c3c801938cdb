// The fit to logs of moves, the network beside LibTorch's, and files that are damaged or stale.
#include "policy/moves/move_learner.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/rng.h"
#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "graph/graph_io.h"
#include "oracle/simulated_oracle.h"
#include "planner/scorer/move_features.h"
#include "policy/moves/move_files_io.h"
#include "tensors/tensor_file_io.h"

namespace heterog::policy {
namespace {

// Moves help if the sum of two features is large, one in eight, and now and then for no reason.
MoveLog made_up_log(std::uint64_t seed, std::int32_t rows, std::size_t width) {
  MoveLog log{.names = {"a 1 b"}};
  Rng rng(seed);
  for (std::int32_t row = 0; row < rows; ++row) {
    std::vector<double> features;
    for (std::size_t f = 0; f < width; ++f) {
      features.push_back(5 + 3 * rng.uniform());
      log.features.push_back(static_cast<float>(features.back()));
    }
    const bool helps = features[3] + features[7] > 14.5 || rng.below(200) == 0;
    log.gains.push_back(helps ? 0.01F : -0.01F);
    log.rounds.push_back(row / 16);
    log.problems.push_back(0);
  }
  return log;
}

TEST(MoveLearner, LearnsWhichMovesHelp) {
  const planner::MoveNetwork network = fit_moves(made_up_log(1, 4000, 10), {.epochs = 60});
  const MoveSkill skill = skill_of(network, made_up_log(2, 4000, 10));
  EXPECT_GT(skill.auc, 0.9);
  EXPECT_GT(skill.kept, 0.9);
  EXPECT_GT(skill.rounds, 100);
}

TEST(MoveLearner, SkillOfChanceIsHalf) {
  planner::MoveNetwork constant;
  constant.layers = {{10, 1, std::vector<float>(10), {0}}};
  EXPECT_NEAR(skill_of(constant, made_up_log(1, 400, 10)).auc, 0.5, 1e-9);
}

TEST(MoveLearner, SameLogGivesTheSameBits) {
  const MoveLog log = made_up_log(1, 600, 10);
  const planner::MoveNetwork one = fit_moves(log), two = fit_moves(log);
  ASSERT_EQ(one.layers.size(), 3u);
  for (std::size_t l = 0; l < 3; ++l) {
    EXPECT_EQ(one.layers[l].weights, two.layers[l].weights);
    EXPECT_EQ(one.layers[l].biases, two.layers[l].biases);
  }
}

TEST(MoveLearner, NetworkIsWhatLibTorchComputes) {
  const MoveLog log = made_up_log(3, 400, planner::move_feature_count());
  const planner::MoveNetwork network = fit_moves(log, {.epochs = 1});
  const auto width = static_cast<std::int64_t>(planner::move_feature_count());
  torch::Tensor values = torch::tensor(log.features).reshape({-1, width});
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const planner::DenseLayer& layer = network.layers[l];
    const torch::Tensor weights = torch::tensor(layer.weights)
                                      .reshape({static_cast<std::int64_t>(layer.inputs),
                                                static_cast<std::int64_t>(layer.outputs)});
    values = torch::addmm(torch::tensor(layer.biases), values, weights);
    if (l + 1 < network.layers.size()) values = values.relu();
  }
  for (std::size_t row = 0; row < 200; ++row) {
    const std::span<const float> features(&log.features[row * static_cast<std::size_t>(width)],
                                          static_cast<std::size_t>(width));
    EXPECT_NEAR(network(features), values[static_cast<std::int64_t>(row)].item<float>(), 1e-4);
  }
}

TEST(MoveLog, HoldsWhatTheSimulatorSays) {
  const auto problem = cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/alexnet.json.gz")),
      std::make_shared<const cluster::Cluster>(
          cluster::load_cluster("configs/clusters/heterog-8gpu.json")),
      cost::CalibratedModel(), 128);
  MoveLog logs[2];
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    oracle::SimulatedOracle oracle(*problem, pool);
    log_moves(oracle, 400, Rng(3), "alexnet", logs[threads - 1]);
  }
  const MoveLog& log = logs[0];
  EXPECT_EQ(log.features, logs[1].features);
  EXPECT_EQ(log.gains, logs[1].gains);
  EXPECT_EQ(log.features.size(), log.size() * planner::move_feature_count());
  EXPECT_GT(log.size(), 300u);
  EXPECT_GT(std::ranges::count_if(log.gains, [](float gain) { return gain > 0; }), 5);
  EXPECT_GT(std::ranges::count_if(log.gains, [](float gain) { return gain < 0; }), 50);
}

TEST(MoveLog, GainIsThePartThatTheStepGetsShorterBy) {
  const oracle::Evaluation fits{.step = 100, .feasible = true};
  EXPECT_DOUBLE_EQ(gain(fits, {.step = 90, .feasible = true}), 0.1);
  EXPECT_DOUBLE_EQ(gain(fits, {.step = 300, .feasible = true}), -1);
  EXPECT_EQ(gain(fits, {.step = 50, .missing_bytes = 1}), -1);
  EXPECT_EQ(gain({.step = 50, .missing_bytes = 1}, fits), 1);
  EXPECT_DOUBLE_EQ(gain({.step = 50, .missing_bytes = 4}, {.step = 90, .missing_bytes = 3}), 0.25);
}

class MoveFiles : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() /
             fmt::format("heterog-moves-test-{}.ckpt", getpid()))
                .string();
    network_ =
        fit_moves(made_up_log(1, 200, planner::move_feature_count()), {.hidden = {3}, .epochs = 1});
    save_moves(network_, path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  // The message of the refusal; empty if there is none.
  std::string refusal() const {
    try {
      load_moves(path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      return error.what();
    }
    return "";
  }
  // With a checksum that holds.
  std::string refusal_of(tensors::TensorFile file) {
    tensors::write_tensors(path_, file);
    return refusal();
  }

  std::string path_;
  planner::MoveNetwork network_;
};

TEST_F(MoveFiles, KeepTheWeights) {
  const planner::MoveNetwork read = load_moves(path_);
  ASSERT_EQ(read.layers.size(), 2u);
  for (std::size_t l = 0; l < 2; ++l) {
    EXPECT_EQ(read.layers[l].weights, network_.layers[l].weights);
    EXPECT_EQ(read.layers[l].biases, network_.layers[l].biases);
  }
}

TEST_F(MoveFiles, OfOtherFeaturesAreRefused) {
  tensors::TensorFile file = tensors::read_tensors(path_);
  file.metadata["feature_version"] = "0";
  EXPECT_NE(refusal_of(file).find("feature_version: is 0, this program's is"), std::string::npos);
}

TEST_F(MoveFiles, ThatAreDamagedAreRefused) {
  const std::string whole = read_file(path_);
  for (std::size_t at : {std::size_t{20}, whole.size() / 2, whole.size() - 3}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    write_file(path_, damaged);
    EXPECT_NE(refusal(), "") << at;
  }
  write_file(path_, whole.substr(0, whole.size() - 10));
  EXPECT_NE(refusal(), "");
  write_file(path_, whole);
  EXPECT_EQ(refusal(), "");
}

TEST_F(MoveFiles, OfOtherShapesOrWithoutNumbersAreRefused) {
  const tensors::TensorFile file = tensors::read_tensors(path_);
  tensors::TensorFile other = file;
  other.tensors["layer1.weights"] = torch::zeros({4, 1});
  EXPECT_NE(refusal_of(other).find("layer1.weights does not fit"), std::string::npos);
  other = file;
  other.tensors["layer0.biases"] = torch::full({3}, std::nanf(""));
  EXPECT_NE(refusal_of(other).find("no finite number"), std::string::npos);
  other = file;
  other.tensors.erase("layer1.weights");
  EXPECT_NE(refusal_of(other).find("the last layer has 3 outputs"), std::string::npos);
  other = file;
  other.metadata["format"] = "heterog-policy";
  EXPECT_NE(refusal_of(other).find("format: is heterog-policy"), std::string::npos);
}

TEST_F(MoveFiles, KeepLogs) {
  const MoveLog log = made_up_log(1, 200, planner::move_feature_count());
  save_move_log(log, path_);
  const MoveLog read = load_move_log(path_);
  EXPECT_EQ(read.names, log.names);
  EXPECT_EQ(read.features, log.features);
  EXPECT_EQ(read.gains, log.gains);
  EXPECT_EQ(read.rounds, log.rounds);
  EXPECT_EQ(read.problems, log.problems);
}

}  // namespace
}  // namespace heterog::policy
