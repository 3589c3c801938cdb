// The whole network on real problems: masks, clusters of several sizes, gradients, the fixed head.
#include "learn/network/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "comm/fake_device.h"
#include "learn/network/finite_difference.h"
#include "learn/network/network_copy.h"
#include "learn/network/problems.h"
#include "learn/network/small_networks.h"
#include "learn/reinforce/shared_work.h"

namespace heterog::learn {
namespace {

TrainConfig tiny_config() {
  TrainConfig config = tiny_network();
  config.txl_segment = 64;
  return config;
}

learn::FeatureTensors features_of(const char* cluster, int groups = 8) {
  return learn::to_tensors(learn::make_features(*test_problem("vgg19-tiny", cluster, 32, groups)));
}

TEST(PolicyNetwork, OneSetOfWeightsServesClustersOfAnySize) {
  PolicyNetwork network = make_network(tiny_config(), 1);
  for (const auto& [cluster, devices] : {std::pair{"heterog-4gpu", 4}, std::pair{"heterog-8gpu", 8},
                                         std::pair{"heterog-12gpu", 12}}) {
    const auto log_p = network->forward(features_of(cluster)).log_probabilities;
    EXPECT_EQ(log_p.size(1), devices + 4);
    EXPECT_LT((log_p.exp().sum(1) - 1).abs().max().item<double>(), 1e-5);
  }
}

TEST(PolicyNetwork, ParametersAreCountedWithoutMakingIt) {
  TrainConfig deep = tiny_config();
  deep.gat_layers = 3;
  deep.txl_layers = 5;
  TrainConfig flat = tiny_config();
  flat.gat_layers = flat.txl_layers = 0;
  TrainConfig fixed = deep;
  fixed.fixed_devices = 300;
  TrainConfig formula = deep;
  formula.actions = "formula";
  for (const TrainConfig& config : {tiny_config(), deep, flat, fixed, formula, TrainConfig{}}) {
    std::int64_t made = 0;
    for (const auto& parameter : make_network(config, 1)->parameters()) made += parameter.numel();
    EXPECT_EQ(parameter_count(config), made);
  }
}

// Module::to() moves to the devices alone that PyTorch has by itself.
void move_to_fake_device(const PolicyNetwork& network) {
  for (const torch::Tensor& weights : network->parameters()) {
    const auto moved = weights.detach().to(comm::fake::device(0));
    weights.unsafeGetTensorImpl()->shallow_copy_from(moved.getIntrusivePtr());
  }
}

// The fake device runs operators on the CPU and refuses operands on two devices, as CUDA does.
TEST(PolicyNetwork, PassesOnADeviceAreThoseOfTheCpu) {
  comm::fake::install();
  for (const int fixed_devices : {0, 8}) {
    TrainConfig config = tiny_config();
    config.fixed_devices = fixed_devices;
    const PolicyNetwork network = make_network(config, 1);
    NetworkCopy copy(config, torch::kCPU);
    move_to_fake_device(copy.with_weights_of(network));
    const PolicyNetwork there = copy.with_weights_of(network);
    const auto features = features_of("heterog-8gpu");
    EXPECT_ANY_THROW(PolicyNetwork(there)->forward(features));
    const torch::Tensor here = say(network, features).log_probabilities,
                        said = say(there, features).log_probabilities;
    EXPECT_TRUE(said.is_cpu());
    EXPECT_TRUE(said.equal(here));
    const Gradient expected = gradient_of(here.pow(2).sum(), network->parameters());
    const Gradient gradient = gradient_of(said.pow(2).sum(), there->parameters());
    EXPECT_EQ(gradient.present, expected.present);
    EXPECT_TRUE(gradient.values.is_cpu());
    EXPECT_TRUE(gradient.values.equal(expected.values));
  }
}

TEST(PolicyNetwork, ACopySaysTheSame) {
  const PolicyNetwork network = make_network(tiny_config(), 1);
  NetworkCopy copy(tiny_config(), torch::kCPU);
  const auto features = features_of("heterog-8gpu");
  const auto said = PolicyNetwork(network)->forward(features).log_probabilities;
  const PolicyNetwork other = copy.with_weights_of(network);
  EXPECT_TRUE(PolicyNetwork(other)->forward(features).log_probabilities.equal(said));
  {
    const torch::NoGradGuard no_grad;
    for (auto& weights : network->parameters()) weights.mul_(1.1);
  }
  EXPECT_TRUE(PolicyNetwork(other)->forward(features).log_probabilities.equal(
      said));  // until it is told of them
  EXPECT_TRUE(copy.with_weights_of(network)->forward(features).log_probabilities.equal(
      PolicyNetwork(network)->forward(features).log_probabilities));
}

TEST(PolicyNetwork, MaskedActionsAreNeverLikely) {
  auto features = features_of("heterog-8gpu");
  features.allowed[2][3] = false;
  const auto log_p = make_network(tiny_config(), 1)->forward(features).log_probabilities;
  EXPECT_EQ(log_p[2][3].exp().item<double>(), 0.0);
  EXPECT_GT(log_p[2][4].exp().item<double>(), 0.0);
}

TEST(PolicyNetwork, BeginsAtTheDataParallelPrior) {
  TrainConfig config = tiny_config();
  config.data_parallel_prior = 3;
  const auto p =
      make_network(config, 1)->forward(features_of("heterog-8gpu")).log_probabilities.exp();
  // e³ / (4e³ + 8) each if the head says nothing; it says little.
  EXPECT_NEAR(p.slice(1, 8).mean().item<double>(), 0.2274, 0.03);
}

TEST(PolicyNetwork, SeedAloneDecidesTheWeights) {
  const auto a = make_network(tiny_config(), 5)->parameters();
  torch::rand({17});
  const auto b = make_network(tiny_config(), 5)->parameters();
  const auto c = make_network(tiny_config(), 6)->parameters();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i]));
  EXPECT_FALSE(torch::equal(a[1], c[1]));
}

TEST(PolicyNetwork, FixedHeadRefusesAnotherNumberOfDevices) {
  TrainConfig config = tiny_config();
  config.fixed_devices = 8;
  PolicyNetwork network = make_network(config, 1);
  EXPECT_EQ(network->forward(features_of("heterog-8gpu")).log_probabilities.size(1), 12);
  try {
    network->forward(features_of("heterog-4gpu"));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), testing::HasSubstr("for 8 devices, the cluster has 4"));
  }
}

TEST(PolicyNetwork, GradientsAgreeWithFiniteDifferences) {
  learn::FeatureTensors features = features_of("heterog-4gpu", 4);
  for (auto* t :
       {&features.ops, &features.groups, &features.devices, &features.actions, &features.members}) {
    *t = t->to(torch::kFloat64);
  }
  PolicyNetwork network = make_network(tiny_config(), 2);
  network->to(torch::kFloat64);
  const auto weights = torch::randn({features.groups.size(0), 8}, torch::kFloat64);
  expect_gradients_match(
      [&] { return (network->forward(features).log_probabilities * weights).sum(); },
      network->parameters(), /*stride=*/9);
}

}  // namespace
}  // namespace heterog::learn
