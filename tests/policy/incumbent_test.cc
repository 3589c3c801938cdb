// What the network reads of the best strategy so far: by hand, in passes, in learning and in files.
#include "policy/feedback/incumbent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "base/file.h"
#include "gnn/finite_difference.h"
#include "gnn/problems.h"
#include "oracle/simulated_oracle.h"
#include "policy/actions.h"
#include "policy/api.h"
#include "policy/checkpoint_io.h"
#include "policy/policy_impl.h"
#include "policy/small_networks.h"

namespace heterog::policy {
namespace {

TrainConfig reading_config(bool reads) {
  TrainConfig config = tiny_network();
  config.max_groups = 6;
  config.samples = 8;
  config.cases_per_step = 1;
  config.incumbent_features = reads;
  return config;
}

Case vgg_case(int groups = 6) {
  return make_case("vgg", test_problem("vgg19-tiny", "heterog-4gpu", 32, groups),
                   compiler::OrderPolicy::kRank);
}

// What the simulator says of every group on the first device.
IncumbentFeatures all_on_the_first(const Case& c) {
  const Actions actions(c.problem->grouping.count(), c.space->single(DeviceId(0)));
  return to_incumbent(*simulated_profile()(c, standalone_strategy(c, {actions, c.schedules.usual})),
                      c, actions);
}

// The new weights, away from zero.
void set_incumbent_weights(PolicyNetwork& network, double value) {
  const torch::NoGradGuard no_grad;
  for (auto& item : network->named_parameters()) {
    if (item.key().find("incumbent") != std::string::npos) item.value().fill_(value);
  }
}

std::vector<std::string> incumbent_weights(const PolicyNetwork& network) {
  std::vector<std::string> names;
  for (const auto& item : network->named_parameters()) {
    if (item.key().find("incumbent") != std::string::npos) names.push_back(item.key());
  }
  return names;
}

TEST(Incumbent, HoldsAProfileRowByRow) {
  const Case c = vgg_case(2);
  ASSERT_EQ(c.problem->grouping.count(), 2u);
  oracle::StepProfile profile;
  profile.groups.push_back({.busy = 0.5, .slack = 0.25, .exposed = 0.125});
  profile.groups.push_back({.busy = 0.0625, .slack = 1, .exposed = 0});
  for (const double busy : {0.5, 0.25, 0.125, 1.0}) {
    profile.devices.push_back({.busy = busy, .memory = 2 * busy});
  }
  profile.devices[DeviceId(3)].memory = 30;  // is cut
  // The second device alone; even shares on all four, which are the first action behind these.
  const IncumbentFeatures incumbent = to_incumbent(profile, c, actions({1, 4}));
  EXPECT_TRUE(incumbent.groups.equal(
      torch::tensor({{1.0, 0.5, 0.25, 0.125, 0.25, 0.5}, {1.0, 0.0625, 1.0, 0.0, 0.46875, 1.4375}},
                    torch::kFloat32)));
  EXPECT_TRUE(incumbent.devices.equal(
      torch::tensor({{0.5, 1.0}, {0.25, 0.5}, {0.125, 0.25}, {1.0, 4.0}}, torch::kFloat32)));
  EXPECT_TRUE(incumbent.taken.equal(torch::tensor({1, 4}, torch::kInt64)));
}

TEST(Incumbent, IsAskedForAgainOnlyWhenItIsAnother) {
  const Case c = vgg_case();
  int asked = 0;
  const Profile counting = [&](const Case& of, const compiler::Strategy& strategy) {
    ++asked;
    return simulated_profile()(of, strategy);
  };
  SeenIncumbent kept;
  const std::size_t groups = c.problem->grouping.count();
  const Choice even{Actions(groups, space::ActionId(4)), c.schedules.usual};
  const Choice first{Actions(groups, space::ActionId(0)), c.schedules.usual};
  Choice in_halves = even;
  in_halves.schedule[kMicroBatches] = 1;
  const torch::Tensor of_even = see(kept, c, even, counting).groups;
  EXPECT_TRUE(see(kept, c, even, counting).groups.equal(of_even));
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(see(kept, c, first, counting).groups.equal(of_even));
  EXPECT_TRUE(see(kept, c, even, counting).groups.equal(of_even));
  EXPECT_EQ(asked, 3);
  EXPECT_FALSE(see(kept, c, in_halves, counting).groups.equal(of_even));
  EXPECT_EQ(asked, 4);
  // An oracle that does not know.
  const auto unknown = [&](const Case&, const compiler::Strategy&) { return std::nullopt; };
  EXPECT_FALSE(see(kept, c, first, unknown).known());
}

TEST(Incumbent, WeightsOfZeroSayWhatANetworkWithoutThemSays) {
  const Case c = vgg_case();
  for (const char* head : {"device-features", "fixed"}) {
    TrainConfig without = reading_config(false), with = reading_config(true);
    without.head = with.head = head;
    without.fixed_devices = with.fixed_devices = 4;
    PolicyNetwork blind = make_network(without, 1), reading = make_network(with, 1);
    const IncumbentFeatures incumbent = all_on_the_first(c);
    const auto said = blind->forward(c.features);
    EXPECT_TRUE(blind->forward(c.features, incumbent).equal(said));
    EXPECT_TRUE(reading->forward(c.features, incumbent).equal(said));
    set_incumbent_weights(reading, 0.3);
    EXPECT_TRUE(reading->forward(c.features).equal(said));  // nothing known: nothing added
    EXPECT_FALSE(reading->forward(c.features, incumbent).equal(said));
    std::int64_t made = 0;
    for (const auto& parameter : reading->parameters()) made += parameter.numel();
    EXPECT_EQ(parameter_count(with), made);
    EXPECT_GT(parameter_count(with), parameter_count(without));
  }
}

TEST(Incumbent, GradientsReachItsWeights) {
  const Case c = vgg_case();
  PolicyNetwork network = make_network(reading_config(true), 1);
  const auto names = incumbent_weights(network);
  EXPECT_THAT(names, testing::UnorderedElementsAre("incumbent", "head.incumbent_devices",
                                                   "head.incumbent_taken"));
  EXPECT_TRUE(incumbent_weights(make_network(reading_config(false), 1)).empty());
  network->forward(c.features, all_on_the_first(c)).select(1, 2).sum().backward();
  const auto parameters = network->named_parameters();
  for (const std::string& name : names) {
    ASSERT_TRUE(parameters[name].grad().defined()) << name;
    EXPECT_TRUE((parameters[name].grad() != 0).any().item<bool>()) << name;
  }
}

TEST(Incumbent, GradientsAgreeWithFiniteDifferences) {
  const Case c = vgg_case(4);
  gnn::FeatureTensors features = c.features;
  for (auto* t :
       {&features.ops, &features.groups, &features.devices, &features.actions, &features.members}) {
    *t = t->to(torch::kFloat64);
  }
  IncumbentFeatures incumbent = all_on_the_first(c);
  incumbent.groups = incumbent.groups.to(torch::kFloat64);
  incumbent.devices = incumbent.devices.to(torch::kFloat64);
  PolicyNetwork network = make_network(reading_config(true), 2);
  network->to(torch::kFloat64);
  set_incumbent_weights(network, 0.2);
  const auto weights = torch::randn({features.groups.size(0), 8}, torch::kFloat64);
  std::vector<torch::Tensor> added;
  const auto parameters = network->named_parameters();
  for (const std::string& name : incumbent_weights(network)) added.push_back(parameters[name]);
  expect_gradients_match([&] { return (network->forward(features, incumbent) * weights).sum(); },
                         added, /*stride=*/5);
}

class IncumbentLearning : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / fmt::format("heterog-incumbent-test-{}", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

TEST_F(IncumbentLearning, LooksAtEveryBestOnceAndNeverWhereItIsOff) {
  std::vector<Case> cases;
  cases.push_back(vgg_case());
  ThreadPool threads(1);
  for (const bool reads : {false, true}) {
    Learner learner(reading_config(reads));
    learner.states.resize(1);
    std::set<Actions> bests;
    int asked = 0;
    for (int step = 0; step < 12; ++step) {
      learn_step(learner,
                 {.cases = cases,
                  .measure = simulated(threads),
                  .profile =
                      [&](const Case& c, const compiler::Strategy& strategy) {
                        ++asked;
                        bests.insert(learner.states[0].best[0].choice.actions);
                        return simulated_profile()(c, strategy);
                      }},
                 0.01);
    }
    EXPECT_EQ(asked, static_cast<int>(bests.size()));
    EXPECT_EQ(asked > 1, reads);
  }
}

std::int64_t steps_of(Learner& learner, const std::string& name) {
  const auto parameter = learner.network->named_parameters()[name];
  const auto at = learner.optimizer.state().find(parameter.unsafeGetTensorImpl());
  return static_cast<torch::optim::AdamParamState&>(*at->second).step();
}

// At a rate that moves nothing, a further pass over the same strategies by the same incumbent has
// the gradient of the first: the moments are those of one gradient, met twice.
TEST_F(IncumbentLearning, FurtherPassesReadTheSameIncumbent) {
  std::vector<Case> cases;
  cases.push_back(vgg_case());
  ThreadPool threads(1);
  TrainConfig config = reading_config(true);
  config.learning_rate = 1e-9;
  config.proximal_passes = 2;
  config.elite_weight = 0;
  Learner learner(config);
  learner.states.resize(1);
  set_incumbent_weights(learner.network, 0.5);
  learn_step(learner, {.cases = cases, .measure = simulated(threads)}, 0.01);
  for (const std::string& name : incumbent_weights(learner.network)) {
    ASSERT_EQ(steps_of(learner, name), 2) << name;
    const auto parameter = learner.network->named_parameters()[name];
    const auto& state = static_cast<torch::optim::AdamParamState&>(
        *learner.optimizer.state().find(parameter.unsafeGetTensorImpl())->second);
    const auto once = state.exp_avg() / (1 - 0.9 * 0.9);
    const auto twice = (state.exp_avg_sq() / (1 - 0.999 * 0.999)).sqrt();
    EXPECT_TRUE(once.abs().allclose(twice, 1e-3, 1e-7)) << name;
    EXPECT_GT(twice.max().item<double>(), 0) << name;
  }
}

// Two cases that are alike in all that the network sees of a problem. In each another device is
// worth taking, and busy in the steps of the other: only the profile says so. The strategy to look
// at stays the same, as nothing else is feasible.
TEST_F(IncumbentLearning, TellsApartWhatOnlyTheSimulatorKnows) {
  std::vector<Case> cases;
  for (int i = 0; i < 2; ++i) {
    cases.push_back(make_case("lenet", test_problem("lenet5-tiny", "heterog-4gpu", 32, 1),
                              compiler::OrderPolicy::kRank));
  }
  const auto worth_of = [&](const Case& c) { return DeviceId(&c == cases.data() ? 0u : 1u); };
  const Measure measure = [&](const Case& c, std::span<const compiler::Strategy> strategies) {
    std::vector<oracle::Measured> measured;
    for (const compiler::Strategy& strategy : strategies) {
      const auto& replicas = strategy.units[UnitId(0)].replicas;
      const bool plain = replicas.size() > 1;
      const bool good = !plain && replicas[0].device == worth_of(c);
      measured.push_back({.evaluation = {.step = 1'000'000'000,
                                         .feasible = plain,
                                         .missing_bytes = plain ? 0 : 1,
                                         .reward = good ? -1.0 : -2.0}});
    }
    return measured;
  };
  const Profile profile = [&](const Case& c, const compiler::Strategy&) {
    oracle::StepProfile seen;
    seen.groups.push_back({});
    seen.devices.resize(4);
    for (std::size_t d = 0; d < 4; ++d) {
      seen.devices[DeviceId(d)].busy = DeviceId(d) == worth_of(c) ? 0.1 : 0.9;
    }
    return std::optional(seen);
  };
  for (const bool reads : {true, false}) {
    TrainConfig config = reading_config(reads);
    config.gat_layers = 0;
    config.cases_per_step = 2;
    config.samples = 16;
    config.learning_rate = 1e-2;
    config.elite_weight = 0;
    Learner learner(config);
    learner.states.resize(2);
    double reward = -2;
    for (int step = 0; step < 120 && reward < -1.1; ++step) {
      reward = learn_step(learner, {.cases = cases, .measure = measure, .profile = profile}, 0.001)
                   .mean_reward;
    }
    // Without it, half of the draws at best are worth taking: −1.5.
    if (reads) {
      EXPECT_GT(reward, -1.1);
    } else {
      EXPECT_LT(reward, -1.3);
    }
  }
}

// What the shipped policy is: made without the weights.
TEST_F(IncumbentLearning, APolicyWithoutThemIsFineTunedWithThem) {
  const TrainConfig without = reading_config(false);
  save_policy(make_network(without, 3), without, path("without.ckpt"));
  const Policy policy = Policy::load(path("without.ckpt"));
  EXPECT_FALSE(policy.config().incumbent_features);
  const auto problem = test_problem("vgg19-tiny", "heterog-4gpu", 64, 2000);
  ThreadPool one(1), two(2);
  oracle::SimulatedOracle on_one(*problem, one), on_two(*problem, two);
  const auto tuned = [&](const Policy& from, oracle::Oracle& oracle, const char* reads) {
    FinetuneOptions options{.budget = {.evaluations = 80}};
    if (reads[0] != '\0') options.learning = {{"incumbent_features", reads}};
    return finetune(from, oracle, options);
  };
  const FinetuneResult off = tuned(policy, on_one, "");
  const FinetuneResult on = tuned(policy, on_one, "true");
  EXPECT_NE(on.entropy, off.entropy);
  EXPECT_EQ(on.evaluations, off.evaluations);
  EXPECT_EQ(tuned(policy, on_two, "true").entropy, on.entropy);
  EXPECT_EQ(tuned(policy, on_two, "false").entropy, off.entropy);
  EXPECT_TRUE(incumbent_weights(off.policy.impl().network).empty());

  on.policy.save(path("with.ckpt"));
  const Policy with = Policy::load(path("with.ckpt"));
  EXPECT_TRUE(with.config().incumbent_features);
  const auto saved = on.policy.impl().network->named_parameters();
  const auto loaded = with.impl().network->named_parameters();
  ASSERT_EQ(loaded.size(), saved.size());
  for (const auto& item : saved) EXPECT_TRUE(loaded[item.key()].equal(item.value())) << item.key();
  for (const std::string& name : incumbent_weights(with.impl().network)) {
    EXPECT_TRUE((loaded[name] != 0).any().item<bool>()) << name;
  }
  with.save(path("again.ckpt"));
  EXPECT_TRUE(read_file(path("again.ckpt")) == read_file(path("with.ckpt")));
  // It goes on with them, unless it is told not to.
  EXPECT_TRUE(tuned(with, on_one, "").policy.config().incumbent_features);
  EXPECT_TRUE(incumbent_weights(tuned(with, on_one, "false").policy.impl().network).empty());
  oracle::BatchEvaluator ask(on_one);
  EXPECT_EQ(propose(with, ask, 2, Rng(1)).size(), 3u);
}

}  // namespace
}  // namespace heterog::policy
