// Several ranks train to the bits of one, whatever their number, and stop, fail and resume
// together.
#include "learn/reinforce/team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>

#include "base/file.h"
#include "comm/local_transport.h"
#include "comm/threads.h"
#include "learn/api.h"
#include "learn/checkpoint_io.h"
#include "learn/network/small_networks.h"
#include "learn/reinforce/case.h"
#include "learn/reinforce/learner.h"
#include "learn/reinforce/shared_work.h"
#include "tensors/tensor_file_io.h"

namespace heterog::learn {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// Ranks as threads, each with a team over `hub`. What each failed with; the others of one that
// fails are told, as ranks that are processes are.
template <class Body>
std::vector<std::string> run_team(int ranks, const Body& body) {
  comm::LocalHub hub(static_cast<std::size_t>(ranks), {});
  return comm::run_threads(ranks, [&](int rank) {
    const auto transport = hub.end_of(DeviceId(static_cast<std::size_t>(rank)));
    const auto team = make_team(*transport, rank, ranks);
    try {
      body(*team);
    } catch (const Error& error) {
      transport->abort(fmt::format("rank {}: {}", rank, error.what()));
      throw;
    }
  });
}

class TeamTraining : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            fmt::format("heterog-team-test-{}-{}",
                        ::testing::UnitTest::GetInstance()->current_test_info()->name(), getpid());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string path(const std::string& name) const { return (root_ / name).string(); }

  // Three cases, so that steps of two come to every pair, and one of four has a case twice.
  static TrainConfig tiny_config(std::int64_t cases_per_step) {
    TrainConfig config = small_network();
    config.graphs = {{"models/vgg19-tiny.json.gz", {32}}, {"models/lenet5-tiny.json.gz", {16, 64}}};
    config.clusters = {"configs/clusters/heterog-4gpu.json"};
    config.steps = 6;
    config.cases_per_step = cases_per_step;
    config.samples = 5;
    config.checkpoint_every = 4;
    config.max_groups = 12;
    return config;
  }
  static TrainConfig formula_config(std::int64_t cases_per_step) {
    TrainConfig config = tiny_config(cases_per_step);
    config.clusters = {};
    config.random_cases = 5;
    config.random_devices = 6;
    config.actions = "formula";
    config.samples = 6;
    return config;
  }

  // Each rank has a folder of its own in `folder`; only rank 0's is to be made.
  std::vector<std::string> train_with(int ranks, const TrainConfig& config,
                                      const std::string& folder, TrainOptions options = {}) const {
    return run_team(ranks, [&](Team& team) {
      TrainOptions own = options;
      own.out_dir = out(folder, team.rank());
      own.team = &team;
      const TrainSummary summary = train(config, own);
      EXPECT_EQ(summary.policy_path, own.out_dir + "/policy.ckpt");
    });
  }
  std::string out(const std::string& folder, int rank = 0) const {
    return path(fmt::format("{}-{}", folder, rank));
  }
  void expect_same_files(const std::string& folder, const std::string& other) const {
    for (const char* file : {"/train.ckpt", "/policy.ckpt", "/train.log", "/config.json"}) {
      EXPECT_TRUE(read_file(out(folder) + file) == read_file(out(other) + file)) << other << file;
    }
  }

  std::filesystem::path root_;
};

TEST_F(TeamTraining, GathersWhatIsOfAnyLength) {
  const auto errors = run_team(3, [](Team& team) {
    const Numbers own(static_cast<std::size_t>(2 * team.rank()), team.rank());
    const std::vector<Numbers> all = gather_numbers(team, own);
    EXPECT_THAT(all, testing::ElementsAre(Numbers{}, Numbers{1, 1}, Numbers{2, 2, 2, 2}));
    EXPECT_THAT(gather_numbers(team, {}), Each(Numbers{}));
    EXPECT_FALSE(team.over());
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(gather_numbers(alone(), {7}), testing::ElementsAre(Numbers{7}));
}

// Of positions that ranks do not divide, fewer than ranks, and of one case twice in a step.
TEST_F(TeamTraining, AnyNumberOfRanksGivesTheBitsOfOneProcess) {
  for (const int cases_per_step : {1, 3, 4}) {
    const TrainConfig config = tiny_config(cases_per_step);
    const std::string whole = fmt::format("whole-{}", cases_per_step);
    train(config, {.out_dir = out(whole), .threads = 2});
    for (const int ranks : {2, 3}) {
      const std::string folder = fmt::format("{}-ranks-{}", ranks, cases_per_step);
      EXPECT_THAT(train_with(ranks, config, folder, {.threads = ranks - 1}), Each(""));
      expect_same_files(whole, folder);
      EXPECT_FALSE(std::filesystem::exists(out(folder, 1)));  // rank 0 alone writes
    }
  }
}

// What is edited is the best as the step began: of one case at all positions of a step, some find
// something better before others begin.
TEST_F(TeamTraining, EditsAreOfTheSameStrategyWhoeverDrawsThem) {
  TrainConfig config = tiny_config(6);
  config.graphs = {{"models/vgg19-tiny.json.gz", {32}}};
  const auto weights_of = [&](Team& team) {
    ThreadPool one(1);
    Cases cases(config);
    Learner learner(config);
    learner.states.resize(cases.size());
    const LearningContext context{.cases = cases,
                                  .measure = simulated(one),
                                  .draws = DrawnBy::kRunsAndEdits,
                                  .entropy_floor = 0.2,
                                  .team = team};
    for (int step = 0; step < 6; ++step) learn_step(learner, context, 0.01);
    return pack_learner(learner, cases);
  };
  const std::string whole = weights_of(alone());
  for (const int ranks : {2, 3}) {
    EXPECT_THAT(run_team(ranks, [&](Team& team) { EXPECT_TRUE(weights_of(team) == whole); }),
                Each(""));
  }
}

// A rank whose processor computes another last bit.
class OtherBits final : public Team {
 public:
  explicit OtherBits(Team& team) : team_(team) {}
  int rank() const override { return team_.rank(); }
  int size() const override { return team_.size(); }
  bool over() const override { return team_.over(); }
  std::vector<torch::Tensor> gather(const torch::Tensor& own) override {
    std::vector<torch::Tensor> all = team_.gather(own);
    for (torch::Tensor& one : all) {
      if (one.is_floating_point()) one = one * (1 + 1e-3);
    }
    return all;
  }

 private:
  Team& team_;
};

TEST_F(TeamTraining, WeightsThatComeApartEndTheRun) {
  const TrainConfig config = tiny_config(2);
  const auto errors = run_team(2, [&](Team& team) {
    OtherBits other(team);
    train(config, {.out_dir = out("apart", team.rank()),
                   .team = team.rank() == 1 ? static_cast<Team*>(&other) : &team});
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1: has come to other weights than rank 0 in step 1")));
  EXPECT_FALSE(std::filesystem::exists(out("apart") + "/train.ckpt"));
}

TEST_F(TeamTraining, PlansOfTheFormulasPolicyAreTheSameWhoeverDrawsThem) {
  const TrainConfig config = formula_config(3);
  train(config, {.out_dir = out("whole"), .threads = 2});
  EXPECT_THAT(train_with(2, config, "two"), Each(""));
  expect_same_files("whole", "two");
}

// Rank 1 alone is told.
TEST_F(TeamTraining, StopsTogetherAndGoesOnWithAnotherNumber) {
  const TrainConfig config = formula_config(2);
  train(config, {.out_dir = out("whole"), .threads = 2});
  // Told after step `after`.
  const auto stop = [&](const std::string& folder, std::int64_t after) {
    std::int64_t steps = -1;
    const auto errors = run_team(2, [&](Team& team) {
      std::atomic<std::int64_t> step = 0;
      const TrainSummary summary =
          train(config, {.out_dir = out(folder),
                         .progress = [&](const TrainProgress& now) { step = now.step; },
                         .stopped = [&] { return team.rank() == 1 && step >= after; },
                         .team = &team});
      EXPECT_TRUE(summary.stopped);
      if (team.rank() == 0) steps = summary.steps;
    });
    EXPECT_THAT(errors, Each(""));
    EXPECT_FALSE(std::filesystem::exists(out(folder) + "/policy.ckpt"));
    EXPECT_THAT(train_with(3, config, folder, {.start = StartFrom::kCheckpoint}), Each(""));
    expect_same_files("whole", folder);
    return steps;
  };
  EXPECT_EQ(stop("after-a-step", 3), 4);  // asked after step 4, the callback came after step 3
}

TEST_F(TeamTraining, StopsWhileItReadsTheCases) {
  const auto errors = run_team(2, [&](Team& team) {
    train(tiny_config(2),
          {.out_dir = out("run"), .stopped = [&] { return team.rank() == 1; }, .team = &team});
  });
  EXPECT_THAT(errors, Each(HasSubstr("stopped by the caller")));
  EXPECT_FALSE(std::filesystem::exists(out("run")));
}

TEST_F(TeamTraining, GoesOnAfterALossWithAnotherNumber) {
  const TrainConfig config = tiny_config(3);
  train(config, {.out_dir = out("whole")});
  // Rank 1 fails after step 5, of which there is no checkpoint.
  const auto errors = run_team(2, [&](Team& team) {
    train(config, {.out_dir = out("lost"),
                   .progress =
                       [&](const TrainProgress& now) {
                         if (team.rank() == 1 && now.step == 5) fail_input("gone");
                       },
                   .team = &team});
  });
  EXPECT_EQ(errors[0], "rank 1: gone");
  EXPECT_EQ(errors[1], "gone");
  EXPECT_THAT(train_with(3, config, "lost", {.start = StartFrom::kCheckpoint}), Each(""));
  expect_same_files("whole", "lost");
}

TEST_F(TeamTraining, RanksOfOtherConfigsAreRefusedBeforeAnythingIsWritten) {
  const auto errors = run_team(3, [&](Team& team) {
    TrainConfig config = tiny_config(2);
    if (team.rank() == 2) config.learning_rate *= 2;
    train(config, {.out_dir = out("run"), .team = &team});
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 2: was given another config than rank 0"),
                                 HasSubstr("--set"))));
  EXPECT_FALSE(std::filesystem::exists(out("run")));
}

TEST_F(TeamTraining, WhatRankZeroCannotReadEndsAll) {
  const TrainConfig config = tiny_config(2);
  train(config, {.out_dir = out("run")});
  write_file(out("run") + "/train.ckpt", "not a checkpoint");
  const auto errors = train_with(2, config, "run", {.start = StartFrom::kCheckpoint});
  EXPECT_THAT(errors[0], AllOf(HasSubstr("train.ckpt"), testing::Not(HasSubstr("rank"))));
  EXPECT_EQ(errors[1], "rank 0: " + errors[0]);
}

// Weights that overflow: the step and the case are named, on all ranks, and the checkpoint stays.
TEST_F(TeamTraining, ALossThatIsNoNumberEndsTheRun) {
  const TrainConfig config = tiny_config(3);
  const auto kill = [](const TrainProgress& now) {
    if (now.step == 5) fail_input("killed");
  };
  EXPECT_THROW(train(config, {.out_dir = out("run"), .progress = kill}), Error);
  const std::string checkpoint = out("run") + "/train.ckpt";
  tensors::TensorFile file = tensors::read_tensors(checkpoint);
  for (auto& [name, tensor] : file.tensors) {
    if (name.starts_with("network.head")) tensor.fill_(3e38);
  }
  write_file(checkpoint, tensors::pack_tensors(file));
  const std::string before = read_file(checkpoint);
  const std::size_t case_of_step = cases_of_step(config, 3, 4)[0];
  const std::string name = Cases(config).name(case_of_step);
  const auto errors = train_with(2, config, "run", {.start = StartFrom::kCheckpoint});
  EXPECT_THAT(errors, Each(HasSubstr("step 5: the loss of case " + name + " is not a finite")));
  EXPECT_TRUE(read_file(checkpoint) == before);
  EXPECT_FALSE(std::filesystem::exists(out("run") + "/policy.ckpt"));
}

// Against backward(), which adds gradients up in place. Of three losses, one of which does not
// depend on all parameters.
TEST_F(TeamTraining, GradientsAddUpAsBackwardDoes) {
  const torch::NoGradGuard no_grad;
  const auto make = [] {
    std::vector<torch::Tensor> parameters;
    for (const std::int64_t size : {7, 33}) {
      parameters.push_back(torch::arange(1, size + 1, torch::kFloat32).div(3).requires_grad_());
    }
    return parameters;
  };
  const auto loss = [](const std::vector<torch::Tensor>& p, int i) {
    const torch::AutoGradMode grad(true);
    const auto first = p[0].mul(0.1 * (i + 1)).sin().sum();
    return i == 0 ? first : first + p[1].mul(0.7 * i).cos().mean();
  };
  auto expected = make(), found = make();
  for (int i = 0; i < 3; ++i) loss(expected, i).backward();
  std::vector<Gradient> gradients;
  for (int i = 0; i < 3; ++i) gradients.push_back(gradient_of(loss(found, i), found));
  EXPECT_FALSE(found[0].grad().defined());
  EXPECT_EQ(gradients[0].present, (std::vector<bool>{true, false}));
  for (const Gradient& gradient : gradients) add_gradient(gradient, found);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].grad().equal(expected[i].grad())) << i;
  }
}

}  // namespace
}  // namespace heterog::learn
