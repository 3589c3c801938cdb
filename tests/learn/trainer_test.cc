// Whole training runs on a tiny graph: same bits with more threads, after a resume, and files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <set>

#include "base/file.h"
#include "learn/api.h"
#include "learn/checkpoint_io.h"
#include "learn/network/problems.h"
#include "learn/network/small_networks.h"
#include "learn/reinforce/case.h"
#include "learn/reinforce/learner.h"
#include "oracle/batch_evaluator.h"
#include "oracle/simulated_oracle.h"
#include "tensors/tensor_file_io.h"

namespace heterog::learn {
namespace {

class Training : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            fmt::format("heterog-policy-test-{}",
                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string path(const std::string& name) const { return (root_ / name).string(); }

  static TrainConfig tiny_config() {
    TrainConfig config = small_network();
    config.graphs = {{"models/vgg19-tiny.json.gz", {32}}, {"models/lenet5-tiny.json.gz", {16, 64}}};
    config.clusters = {"configs/clusters/heterog-4gpu.json", "configs/clusters/heterog-8gpu.json"};
    config.steps = 9;
    config.cases_per_step = 2;
    config.samples = 6;
    config.checkpoint_every = 4;
    config.max_groups = 12;
    return config;
  }

  // A policy after one step.
  Policy barely_begun() const {
    TrainConfig config = tiny_config();
    config.steps = 1;
    return Policy::load(train(config, {.out_dir = path("run")}).policy_path);
  }

  std::filesystem::path root_;
};

// Thrown out of the progress callback: stops a run between two steps as a kill would.
struct Killed {};

TEST_F(Training, OneThreadAndTwoGiveTheSameBits) {
  train(tiny_config(), {.out_dir = path("one"), .threads = 1});
  train(tiny_config(), {.out_dir = path("two"), .threads = 2});
  for (const char* file : {"/train.ckpt", "/policy.ckpt", "/train.log"}) {
    EXPECT_TRUE(read_file(path("one") + file) == read_file(path("two") + file)) << file;
  }
  TrainConfig other = tiny_config();
  other.seed = 2;
  train(other, {.out_dir = path("other"), .threads = 2});
  EXPECT_NE(read_file(path("one/train.log")), read_file(path("other/train.log")));
}

TEST_F(Training, KilledAnywhereResumesToTheSameBits) {
  TrainConfig config = tiny_config();
  config.averaged_steps = 4;  // of which the checkpoint of step 8 has three
  train(config, {.out_dir = path("whole"), .threads = 2});
  // Steps 5 and 7 lie after the checkpoint of step 4, step 9 is after the last one but before
  // policy.ckpt; at step 2 there is no checkpoint yet.
  for (std::int64_t kill_at : {2, 5, 7, 9}) {
    const std::string folder = path(fmt::format("killed-{}", kill_at));
    const auto kill = [&](const TrainProgress& now) {
      if (now.step == kill_at) throw Killed();
    };
    EXPECT_THROW(train(config, {.out_dir = folder, .threads = 2, .progress = kill}), Killed);
    train(config, {.out_dir = folder, .start = StartFrom::kCheckpoint, .threads = 1});
    for (const char* file : {"/train.ckpt", "/policy.ckpt", "/train.log"}) {
      EXPECT_TRUE(read_file(path("whole") + file) == read_file(folder + file)) << kill_at << file;
    }
  }
}

// Runs of two and of three steps are the same up to the second.
TEST_F(Training, ThePolicyHasTheMeanOfWeights) {
  TrainConfig config = tiny_config();
  config.entropy_weight_end = config.entropy_weight;
  const auto weights = [&](std::int64_t steps, std::int64_t averaged) {
    config.steps = steps;
    config.averaged_steps = averaged;
    const std::string folder = path(fmt::format("{}-{}", steps, averaged));
    return tensors::read_tensors(train(config, {.out_dir = folder}).policy_path).tensors;
  };
  const auto second = weights(2, 0), third = weights(3, 1), both = weights(3, 2);
  for (const auto& [name, tensor] : both) {
    const torch::Tensor mean = (second.at(name) + third.at(name)) / 2;
    EXPECT_TRUE(torch::allclose(tensor, mean)) << name;
  }
  EXPECT_FALSE(torch::allclose(both.at("network.head.pairs.score.weight"),
                               third.at("network.head.pairs.score.weight")));
}

TrainConfig tiny_formula_config(TrainConfig config) {
  config.clusters = {};
  config.random_cases = 5;
  config.random_devices = 6;
  config.random_costs = 0.3;
  config.actions = "formula";
  config.elite_weight = 0;
  return config;
}

TEST_F(Training, ARandomCaseIsTheSameEachTimeItIsMade) {
  TrainConfig config = tiny_formula_config(tiny_config());
  Cases cases(config);
  ASSERT_EQ(cases.size(), 5u);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(cases.name(i), cases[i].name);
    const torch::Tensor before = cases[i].features.actions;
    cases.keep({});
    EXPECT_TRUE(torch::equal(before, cases[i].features.actions));
    config.random_costs = 0;
    EXPECT_FALSE(torch::equal(before, Cases(config)[i].features.actions));
    config.random_costs = 0.3;
  }
}

TEST_F(Training, OfTheFormulasPolicyGivesTheSameBitsHoweverItRuns) {
  TrainConfig config = tiny_formula_config(tiny_config());
  config.settling_rounds = 1;
  train(config, {.out_dir = path("whole"), .threads = 2});
  const auto stop = [](const TrainProgress& now) {
    if (now.step == 5) throw Killed();
  };
  EXPECT_THROW(train(config, {.out_dir = path("killed"), .threads = 1, .progress = stop}), Killed);
  train(config, {.out_dir = path("killed"), .start = StartFrom::kCheckpoint, .threads = 1});
  for (const char* file : {"/train.ckpt", "/policy.ckpt", "/train.log"}) {
    EXPECT_TRUE(read_file(path("whole") + file) == read_file(path("killed") + file)) << file;
  }
}

// By what its draws take alone: nothing is imitated.
TEST_F(Training, TheFormulasPolicyLearnsByReinforce) {
  TrainConfig config = tiny_formula_config(tiny_config());
  config.graphs = {{"models/vgg19-tiny.json.gz", {64}}, {"models/bert_large24-tiny.json.gz", {16}}};
  config.random_cases = 4;
  config.steps = 150;
  config.samples = 16;
  config.learning_rate = 3e-3;
  std::vector<double> rewards;
  train(config, {.out_dir = path("run"), .threads = 2, .progress = [&](const TrainProgress& now) {
                   rewards.push_back(now.mean_reward);
                 }});
  const auto mean = [&](std::size_t from) {
    return std::accumulate(rewards.begin() + static_cast<long>(from),
                           rewards.begin() + static_cast<long>(from) + 20, 0.0) /
           20;
  };
  // Rewards are −log of steps: these are a fifth shorter in the mean.
  EXPECT_GT(mean(130), mean(0) + 0.2);
}

// Resident pages of this process.
std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST_F(Training, MemoryDoesNotGrow) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer keeps what was freed";
#endif
  TrainConfig config = tiny_config();
  config.steps = 700;
  std::int64_t settled = 0, last = 0;
  train(config, {.out_dir = path("run"), .progress = [&](const TrainProgress& progress) {
                   if (progress.step == 300) settled = resident_bytes();
                   last = resident_bytes();
                 }});
  EXPECT_GT(settled, 0);
  // A leak of one tensor of a hundred floats a step would be half a megabyte.
  EXPECT_LT(last - settled, 2'000'000);
}

TEST_F(Training, ResumingWithAnotherConfigIsRefused) {
  train(tiny_config(), {.out_dir = path("run")});
  TrainConfig other = tiny_config();
  other.learning_rate *= 2;
  EXPECT_THROW(train(other, {.out_dir = path("run"), .start = StartFrom::kCheckpoint}), Error);
  std::filesystem::remove(path("run/train.ckpt"));  // as if stopped before the first one
  EXPECT_THROW(train(other, {.out_dir = path("run"), .start = StartFrom::kCheckpoint}), Error);
}

TEST_F(Training, PolicySurvivesSavingAndProposesTheSame) {
  const TrainSummary summary = train(tiny_config(), {.out_dir = path("run")});
  const Policy policy = Policy::load(summary.policy_path);
  policy.save(path("copy.ckpt"));
  EXPECT_TRUE(read_file(path("copy.ckpt")) == read_file(summary.policy_path));
  const auto problem = test_problem("vgg19-tiny", "heterog-12gpu", 48, 2000);
  oracle::Evaluator evaluator(*problem);
  oracle::BatchEvaluator ask(evaluator);
  const auto proposals = propose(policy, ask, 3, Rng(4));
  ASSERT_EQ(proposals.size(), 4u);
  EXPECT_EQ(proposals, propose(Policy::load(path("copy.ckpt")), ask, 3, Rng(4)));
  EXPECT_EQ(ask.evaluations(), 6);  // once: two in each of three orders
  for (const auto& strategy : proposals) EXPECT_GT(evaluator.evaluate(strategy).step, 0);
}

TEST_F(Training, DamagedFilesAndOtherVersionsAreInputErrors) {
  const TrainSummary summary = train(tiny_config(), {.out_dir = path("run")});
  const auto error_of = [&](const std::string& file) -> std::string {
    try {
      Policy::load(file);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(error_of(path("missing.ckpt")), testing::HasSubstr("missing.ckpt"));
  const std::string bytes = read_file(summary.policy_path);
  for (std::size_t length :
       {std::size_t{0}, std::size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    write_file(path("short.ckpt"), bytes.substr(0, length));
    EXPECT_NE(error_of(path("short.ckpt")), "accepted") << length;
  }
  write_file(path("text.ckpt"), "not a checkpoint at all\n");
  EXPECT_THAT(error_of(path("text.ckpt")), testing::HasSubstr("text.ckpt: not a file of tensors"));
  write_file(path("other.ckpt"), tensors::pack_tensors({}));
  EXPECT_THAT(error_of(path("other.ckpt")), testing::HasSubstr("not a policy checkpoint"));

  tensors::TensorFile future = tensors::unpack_tensors(bytes, "policy");
  future.metadata["feature_version"] = std::to_string(learn::kFeatureVersion + 1);
  write_file(path("future.ckpt"), tensors::pack_tensors(future));
  EXPECT_THAT(error_of(path("future.ckpt")),
              testing::AllOf(testing::HasSubstr("feature_version"),
                             testing::HasSubstr("train the policy again")));
}

// Most that this process has ever held.
std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// A small file whose config asks for a network of a gigabyte.
TEST_F(Training, ASmallFileCannotAskForALargeNetwork) {
  TrainConfig config = tiny_config();
  config.steps = 1;
  const TrainSummary summary = train(config, {.out_dir = path("run")});
  tensors::TensorFile file = tensors::unpack_tensors(read_file(summary.policy_path), "policy");
  config.txl_width = 4096;
  config.txl_inner_width = 16384;
  config.txl_layers = 1;
  ASSERT_GT(parameter_count(config), 200'000'000);
  file.metadata["config"] = train_config_text(config);
  write_file(path("greedy.ckpt"), tensors::pack_tensors(file));
  const std::int64_t before = peak_resident_bytes();
  try {
    Policy::load(path("greedy.ckpt"));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("greedy.ckpt: config"),
                                             testing::HasSubstr("the file has")));
  }
  EXPECT_LT(peak_resident_bytes() - before, 100'000'000);
}

TEST_F(Training, FinetuningByEvaluationsIsReproducibleAndNeverLosesItsBest) {
  const Policy policy = Policy::load(train(tiny_config(), {.out_dir = path("run")}).policy_path);
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 64, 2000);
  ThreadPool one(1), two(2);
  const FinetuneOptions options{.name = "vgg", .seed = 3, .budget = {.evaluations = 40}};
  oracle::SimulatedOracle on_one(*problem, one), on_two(*problem, two);
  const FinetuneResult a = finetune(policy, on_one, options);
  const FinetuneResult b = finetune(policy, on_two, options);
  EXPECT_LE(a.evaluations, 40);
  EXPECT_EQ(a.strategy, b.strategy);
  EXPECT_EQ(a.evaluation.step, b.evaluation.step);
  oracle::Evaluator evaluator(*problem);
  EXPECT_EQ(evaluator.evaluate(a.strategy).step, a.evaluation.step);
  EXPECT_THROW(finetune(policy, on_one, {.name = "vgg"}), Error);
}

TEST_F(Training, SettingsOfLearningCanBeGivenToFinetuningAndNoOthers) {
  const Policy policy = barely_begun();
  const auto problem = test_problem("vgg19-tiny", "heterog-4gpu", 64, 2000);
  ThreadPool pool(2);
  oracle::SimulatedOracle oracle(*problem, pool);
  const auto tuned = [&](std::vector<std::pair<std::string, std::string>> learning) {
    return finetune(policy, oracle,
                    {.budget = {.evaluations = 120}, .learning = std::move(learning)});
  };
  EXPECT_NE(tuned({}).entropy, tuned({{"elite_weight", "3"}}).entropy);
  EXPECT_THROW(tuned({{"max_groups", "3"}}), Error);
}

// Learns fast from few strategies: imitation of the best leaves nothing else, but for a floor.
struct Settled {
  TrainConfig config;
  Cases cases;
  Learner learner;
  double entropy = 0;

  Settled(TrainConfig given, double floor)
      : config(one_case(std::move(given))), cases(config), learner(config) {
    ThreadPool pool(2);
    learner.states.resize(cases.size());
    const LearningContext context{.cases = cases,
                                  .measure = simulated(pool),
                                  .draws = DrawnBy::kRunsAndEdits,
                                  .entropy_floor = floor};
    for (int step = 0; step < 500; ++step) entropy = learn_step(learner, context, 0).entropy;
  }
  static TrainConfig one_case(TrainConfig config) {
    config.graphs = {{"models/vgg19-tiny.json.gz", {64}}};
    config.clusters = {"configs/clusters/heterog-4gpu.json"};
    config.cases_per_step = 1;
    config.learning_rate = 0.03;
    return config;
  }
};

TEST_F(Training, ACollapsedEntropyIsNoticedAndAFloorPreventsIt) {
  EXPECT_GT(Settled(tiny_config(), 1).entropy, 0.2);
  const Settled settled(tiny_config(), 0);
  EXPECT_LT(settled.entropy, kCollapsedNats);
  save_policy(settled.learner.network, settled.config, path("settled.ckpt"));
  const auto problem = test_problem("vgg19-tiny", "heterog-4gpu", 64, 2000);
  ThreadPool pool(2);
  oracle::SimulatedOracle oracle(*problem, pool);
  const FinetuneOptions options{.budget = {.evaluations = 60},
                                .learning = {{"finetune_entropy_floor", "0"}}};
  const FinetuneResult collapsed = finetune(Policy::load(path("settled.ckpt")), oracle, options);
  EXPECT_LT(collapsed.entropy, kCollapsedNats);
  ASSERT_TRUE(collapsed.collapsed_after.has_value());
  EXPECT_GT(*collapsed.collapsed_after, 6);
  EXPECT_LT(*collapsed.collapsed_after, 60);
  EXPECT_FALSE(finetune(barely_begun(), oracle, options).collapsed_after.has_value());
}

// 1,500 plans of annealing are 18 % shorter than plain data parallelism here.
TEST_F(Training, FinetuningLeavesThePlainStrategiesThatItBeginsWith) {
  const Policy policy = barely_begun();
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 64, 2000);
  ThreadPool pool(2);
  oracle::SimulatedOracle oracle(*problem, pool);
  double plain = 0;
  const FinetuneResult tuned =
      finetune(policy, oracle, {.budget = {.evaluations = 1500}, .progress = [&](const auto& now) {
                                  plain = now.cases[0].baseline_step_seconds;
                                }});
  ASSERT_GT(plain, 0);
  EXPECT_LT(to_seconds(tuned.evaluation.step), 0.9 * plain);
}

// 1,000 plans of annealing are 11 % shorter here than the ten of an untrained policy.
TEST_F(Training, FinetuningFindsMoreThanThePolicyThatBeginsAsTheFormulaProposes) {
  TrainConfig config = tiny_config();
  config.actions = "formula";
  config.steps = 1;
  config.samples = 12;
  config.learning_rate = 1e-3;
  const Policy policy = Policy::load(train(config, {.out_dir = path("formula")}).policy_path);
  const auto problem = test_problem("bert_large24-tiny", "heterog-8gpu", 64, 2000);
  ThreadPool pool(2);
  oracle::SimulatedOracle oracle(*problem, pool);
  oracle::BatchEvaluator evaluator(oracle);
  double proposed = std::numeric_limits<double>::infinity();
  for (const oracle::Measured& one : evaluator.evaluate(propose(policy, evaluator, 31, Rng(1)))) {
    if (one.evaluation.feasible) proposed = std::min(proposed, to_seconds(one.evaluation.step));
  }
  const FinetuneResult tuned = finetune(policy, oracle, {.budget = {.evaluations = 1000}});
  EXPECT_LT(to_seconds(tuned.evaluation.step), 0.98 * proposed);
}

TEST_F(Training, EverySeedOfFinetuningIsARunOfItsOwn) {
  const Policy policy = barely_begun();
  const auto problem = test_problem("vgg19-tiny", "heterog-4gpu", 64, 2000);
  ThreadPool pool(2);
  oracle::SimulatedOracle oracle(*problem, pool);
  const auto rewards = [&](std::uint64_t seed) {
    std::vector<double> means;
    finetune(policy, oracle,
             {.name = "vgg",
              .seed = seed,
              .budget = {.evaluations = 24},
              .progress = [&](const TrainProgress& now) { means.push_back(now.mean_reward); }});
    return means;
  };
  const std::uint64_t high = std::uint64_t{1} << 63;
  const std::vector<std::vector<double>> runs = {rewards(0), rewards(1),    rewards(2),
                                                 rewards(3), rewards(high), rewards(high + 1)};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(runs[i], runs[j]) << i << " and " << j;
  }
  EXPECT_EQ(rewards(1), runs[1]);
}

// One group, so that every action can be tried: every seed must end at the best of them.
TEST_F(Training, LearnsAOneGroupProblemFromEverySeed) {
  TrainConfig config = tiny_config();
  config.graphs = {{"models/vgg19-tiny.json.gz", {256}}};
  config.clusters = {"configs/clusters/heterog-4gpu.json"};
  config.max_groups = 1;
  config.steps = 120;
  config.cases_per_step = 1;
  config.elite_weight = 0;  // the policy gradient alone
  config.learning_rate = 1e-2;
  const auto problem = test_problem("vgg19-tiny", "heterog-4gpu", 256, 1);
  const space::ActionSpace actions(*problem);
  oracle::Evaluator evaluator(*problem);
  oracle::BatchEvaluator ask(evaluator);
  const decide::OrderPolicy order = find_order(ask);
  Nanoseconds best = std::numeric_limits<Nanoseconds>::max();
  for (const auto action : actions.ids()) {
    decide::Strategy strategy = actions.strategy(Actions{action});
    strategy.order = order;
    best = std::min(best, evaluator.evaluate(strategy).step);
  }
  for (config.seed = 0; config.seed < 5; ++config.seed) {
    const std::string run = path("run" + std::to_string(config.seed));
    const TrainSummary summary = train(config, {.out_dir = run});
    const auto greedy = propose(Policy::load(summary.policy_path), ask, 0, Rng(0));
    EXPECT_EQ(evaluator.evaluate(greedy[0]).step, best) << config.seed;
  }
}

}  // namespace
}  // namespace heterog::learn
