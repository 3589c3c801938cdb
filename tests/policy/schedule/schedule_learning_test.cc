// Schedules are learnt: the best one of a problem that can be enumerated; runs that learn them are
// repeated to the bit, and their files hold what they hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "gnn/problems.h"
#include "oracle/simulated_oracle.h"
#include "planner/baselines.h"
#include "policy/api.h"
#include "policy/checkpoint_io.h"
#include "policy/learner.h"
#include "policy/small_networks.h"

namespace heterog::policy {
namespace {

TrainConfig learning_config() {
  TrainConfig config = small_network();
  config.graphs = {{"models/vgg19-tiny.json.gz", {32}}};
  config.clusters = {"configs/clusters/heterog-4gpu.json"};
  config.schedule = "learned";
  config.draws = "mixed";
  config.samples = 8;
  config.max_groups = 8;
  config.gat_layers = config.txl_layers = 1;
  return config;
}

// Of even all-reduce in every order and with every bucket: what is drawn for groups is nothing, so
// that 15 simulations tell the best schedule.
class OrdersAndBuckets : public testing::Test {
 protected:
  OrdersAndBuckets() {
    for (std::size_t order = 0; order < compiler::kSearchedOrders.size(); ++order) {
      for (const Bytes bucket : kScheduleBuckets) {
        compiler::Strategy strategy = planner::even_all_reduce(*problem_);
        strategy.order = kScheduleOrders[order];
        strategy.bucket_bytes = bucket;
        known_[{strategy.order, bucket}] = evaluator_.evaluate(strategy);
      }
    }
  }
  planner::Evaluation evaluation(const compiler::Strategy& strategy) const {
    return known_.at({strategy.order, strategy.bucket_bytes});
  }
  double seconds(const Schedule& schedule) const {
    return to_seconds(
        known_.at({kScheduleOrders[schedule[kOrder]], kScheduleBuckets[schedule[kBucket]]}).step);
  }

  // How much longer the step of the most likely schedule is than the best, after learning began at
  // the worst order.
  double learnt(TrainConfig config) {
    const auto by_step = [](const auto& a, const auto& b) { return a.second.step < b.second.step; };
    const auto best = std::ranges::min_element(known_, by_step);
    const auto worst = std::ranges::max_element(known_, by_step);
    std::vector<Case> cases;
    cases.push_back(make_case("tiny", regrouped(*problem_, 8), worst->first.first));
    auto& allowed = cases[0].schedules.allowed;
    std::fill(allowed.begin() + first_option(kMicroBatches) + 1,
              allowed.begin() + first_option(kRecompute), false);
    allowed[first_option(kRecompute) + 1] = false;
    Learner learner(config);
    learner.states.resize(1);
    const Measure measure = [&](const Case&, std::span<const compiler::Strategy> strategies) {
      std::vector<oracle::Measured> measured;
      for (const auto& strategy : strategies)
        measured.push_back({.evaluation = evaluation(strategy)});
      return measured;
    };
    for (int step = 0; step < config.steps; ++step) {
      learn_step(learner, {.cases = cases, .measure = measure}, 0.002);
    }
    const Said said = say(learner.network, cases[0]);
    return seconds(most_likely_schedule(said.schedule)) / to_seconds(best->second.step) - 1;
  }

  std::unique_ptr<const cost::Problem> problem_ =
      test_problem("vgg19-tiny", "heterog-8gpu", 32, 2000);
  oracle::Evaluator evaluator_{*problem_};
  std::map<std::pair<compiler::OrderPolicy, Bytes>, planner::Evaluation> known_;
};

TEST_F(OrdersAndBuckets, TheBestIsLearntFromRewardsAlone) {
  TrainConfig config = learning_config();
  config.draws = "runs";
  config.elite_weight = 0;
  config.imitate_plain = false;
  config.learning_rate = 1e-2;
  config.steps = 200;
  for (const std::string baseline : {"moving", "others"}) {
    for (config.seed = 1; config.seed <= 4; ++config.seed) {
      config.baseline = baseline;
      EXPECT_LT(learnt(config), 0.002) << baseline << " " << config.seed;
    }
  }
}

TEST_F(OrdersAndBuckets, TheBestIsLearntByEditsImitationAndFurtherPasses) {
  TrainConfig config = learning_config();
  config.learning_rate = 5e-3;
  config.steps = 100;
  for (const std::int64_t passes : {1, 4}) {
    for (config.seed = 1; config.seed <= 4; ++config.seed) {
      config.proximal_passes = passes;
      EXPECT_LT(learnt(config), 0.002) << passes << " " << config.seed;
    }
  }
}

// Adam moves a weight by no more than the learning rate at first, and not at all where it has no
// gradient.
TEST(ScheduleLearning, EveryPassMovesTheHead) {
  TrainConfig config = learning_config();
  const std::vector<Case> cases = load_cases(config);
  ThreadPool threads(1);
  for (config.proximal_passes = 1; config.proximal_passes <= 3; ++config.proximal_passes) {
    Learner learner(config);
    learner.states.resize(1);
    learn_step(learner, {.cases = cases, .measure = simulated(threads)}, 0.01);
    const auto bias = learner.network->named_parameters()["schedule.score.bias"];
    const double passes = static_cast<double>(config.proximal_passes);
    EXPECT_GT(bias.abs().max().item<double>(), (passes - 0.5) * config.learning_rate);
    EXPECT_LT(bias.abs().max().item<double>(), (passes + 0.1) * config.learning_rate);
  }
}

class ScheduleFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        (std::filesystem::temp_directory_path() / fmt::format("heterog-schedule-test-{}", getpid()))
            .string();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string folder_;
};

// A policy without a head is fine-tuned with one, which its file then has.
TEST_F(ScheduleFiles, APolicyThatHasNoHeadIsGivenOne) {
  TrainConfig config = learning_config();
  config.schedule = "case";
  const auto before = make_network(config, 3)->parameters();
  save_policy(make_network(config, 3), config, path("without.ckpt"));
  config.schedule = "learned";
  const auto with = make_network(config, 3);
  ASSERT_EQ(with->parameters().size(), before.size() + 2);
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(with->parameters()[i].equal(before[i]));  // as they would be without it
  }
  const Policy policy = Policy::load(path("without.ckpt"));
  EXPECT_EQ(policy.config().schedule, "case");
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 64, 2000);
  ThreadPool one(1), two(2);
  oracle::SimulatedOracle on_one(*problem, one), on_two(*problem, two);
  FinetuneOptions options{.name = "vgg", .seed = 3, .budget = {.evaluations = 300}};
  options.learning = {{"finetune_schedule", "case"}};
  const FinetuneResult plain = finetune(policy, on_one, options);
  EXPECT_EQ(plain.policy.config().schedule, "case");
  options.learning = {};
  const FinetuneResult a = finetune(policy, on_one, options);
  const FinetuneResult b = finetune(policy, on_two, options);
  EXPECT_EQ(a.strategy, b.strategy);
  EXPECT_EQ(a.likely, b.likely);
  EXPECT_EQ(a.mean_step_seconds, b.mean_step_seconds);
  EXPECT_NE(a.mean_step_seconds, plain.mean_step_seconds);
  EXPECT_EQ(plain.strategy.bucket_bytes, 0);
  oracle::Evaluator evaluator(*problem);
  EXPECT_EQ(evaluator.evaluate(a.strategy).step, a.evaluation.step);

  a.policy.save(path("with.ckpt"));
  const Policy again = Policy::load(path("with.ckpt"));
  EXPECT_EQ(again.config().schedule, "learned");
  oracle::BatchEvaluator ask(evaluator);
  EXPECT_EQ(propose(again, ask, 3, Rng(4)), propose(a.policy, ask, 3, Rng(4)));
  options.learning = {{"finetune_schedule", "case"}};  // and is without it again
  EXPECT_EQ(finetune(again, on_one, options).policy.config().schedule, "case");
}

// What the head has come to expect is proposed, and is the answer of fine-tuning that goes on.
TEST_F(ScheduleFiles, ProposalsHaveTheMostLikelySchedule) {
  const TrainConfig config = learning_config();
  PolicyNetwork network = make_network(config, 3);
  const torch::NoGradGuard no_grad;
  network->named_parameters()["schedule.score.bias"][first_option(kBucket) + 2] = 50;
  save_policy(network, config, path("policy.ckpt"));
  const Policy policy = Policy::load(path("policy.ckpt"));
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 64, 2000);
  oracle::Evaluator evaluator(*problem);
  oracle::BatchEvaluator ask(evaluator);
  for (const auto& strategy : propose(policy, ask, 8, Rng(4))) {
    EXPECT_EQ(strategy.bucket_bytes, kScheduleBuckets[2]);
  }
}

TEST_F(ScheduleFiles, ATrainingStateKeepsTheSchedulesOfItsBest) {
  const TrainConfig config = learning_config();
  const std::vector<Case> cases = load_cases(config);
  ThreadPool threads(1);
  Learner learner(config);
  learner.states.resize(1);
  learn_step(learner, {.cases = cases, .measure = simulated(threads)}, 0.01);
  Schedule& best = learner.states[0].best[0].choice.schedule;
  best = {2, 3, 1, 1};
  save_learner(learner, cases, path("train.ckpt"));
  EXPECT_EQ(load_learner(config, cases, path("train.ckpt")).states[0].best[0].choice,
            learner.states[0].best[0].choice);
  best[kOrder] = 3;  // rank-reserve, which the case does not take
  save_learner(learner, cases, path("train.ckpt"));
  try {
    load_learner(config, cases, path("train.ckpt"));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), testing::HasSubstr("schedule"));
  }
}

}  // namespace
}  // namespace heterog::policy
