// Moves drawn with and without a scorer, and searches with one.
#include "planner/scorer/move_drawer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "oracle/simulated_oracle.h"
#include "planner/annealing.h"
#include "planner/baselines.h"
#include "planner/local_search.h"
#include "planner/problems.h"
#include "planner/scorer/move_features.h"
#include "planner/scorer/move_network.h"

namespace heterog::planner {
namespace {

// Likes one kind of move, and hates all others.
class Likes final : public MoveScorer {
 public:
  explicit Likes(MoveKind kind) : kind_(kind) {}
  std::vector<double> score(const Incumbent& /*from*/, std::span<const DrawnMove> moves) override {
    most_ = std::max(most_, moves.size());
    std::vector<double> scores;
    for (const DrawnMove& one : moves) scores.push_back(one.kind == kind_ ? 100 : -100);
    return scores;
  }
  std::size_t most() const { return most_; }

 private:
  MoveKind kind_;
  std::size_t most_ = 0;
};

bool same(const Move& a, const Move& b) {
  return a.groups == b.groups && a.replicas == b.replicas && a.sync == b.sync &&
         a.recompute == b.recompute && a.reweigh == b.reweigh && a.order == b.order &&
         a.bucket_bytes == b.bucket_bytes;
}

class MoveDrawerTest : public testing::Test {
 protected:
  void SetUp() override {
    ThreadPool pool(1);
    oracle::SimulatedOracle oracle(*problem_, pool);
    const compiler::Strategy strategy = even_ps(*problem_);
    from_ = {to_candidate(strategy), oracle.measure({&strategy, 1})[0]};
  }
  // What a search finds with this scorer, from the same start.
  SearchResult searched(MoveScorer* scorer, int threads) {
    ThreadPool pool(threads);
    oracle::SimulatedOracle oracle(*problem_, pool);
    BatchEvaluator evaluator(oracle);
    Rng rng(7);
    const SearchResult climbed =
        local_search(evaluator, even_ps(*problem_), rng, {.evaluations = 120, .scorer = scorer});
    return anneal(evaluator, climbed.strategy, rng, {.evaluations = 120, .scorer = scorer});
  }

  const std::unique_ptr<const cost::Problem> problem_ =
      load_test_problem("vgg19", "heterog-8gpu", 192);
  Incumbent from_;
  KindChooser kinds_;
};

TEST_F(MoveDrawerTest, WithoutAScorerDrawsWhatTheMakerProposes) {
  MoveDrawer drawer(*problem_, nullptr, kDrawnMoves);
  const MoveMaker maker(*problem_);
  Rng rng(5), alike(5);
  const std::vector<DrawnMove> moves = drawer.draw(from_, kinds_, 40, rng);
  ASSERT_EQ(moves.size(), 40u);
  for (const DrawnMove& one : moves) {
    const MoveKind kind = kinds_.draw(alike);
    EXPECT_EQ(one.kind, kind);
    EXPECT_TRUE(same(one.move, maker.propose(from_, kind, alike)));
  }
  EXPECT_EQ(rng.state(), alike.state());
}

TEST_F(MoveDrawerTest, PrefersWhatScoresHighAndLeavesAFifthToChance) {
  Likes scorer(MoveKind::kBalance);
  MoveDrawer drawer(*problem_, &scorer, 4);
  Rng rng(5);
  int liked = 0, others = 0;
  for (int i = 0; i < 100; ++i) {
    drawer.begin();
    const std::vector<DrawnMove> moves = drawer.draw(from_, kinds_, 8, rng);
    ASSERT_EQ(moves.size(), 8u);
    for (const DrawnMove& one : moves) ++(one.kind == MoveKind::kBalance ? liked : others);
  }
  EXPECT_LE(scorer.most(), 32u);
  EXPECT_GT(scorer.most(), 24u);
  // Of 32 moves some three are of a kind; two of eight places are for anything.
  EXPECT_GT(liked, 150);
  EXPECT_GT(others, 150);
}

TEST_F(MoveDrawerTest, GivesNoMoveTwiceFromAnIncumbent) {
  Likes scorer(MoveKind::kSchedule);  // eight different moves in all
  MoveDrawer drawer(*problem_, &scorer, 4);
  Rng rng(5);
  std::vector<DrawnMove> given;
  for (int i = 0; i < 20; ++i) {
    for (DrawnMove& one : drawer.draw(from_, kinds_, 8, rng)) {
      for (const DrawnMove& before : given) EXPECT_FALSE(same(before.move, one.move));
      given.push_back(std::move(one));
    }
  }
  EXPECT_EQ(std::ranges::count(given, MoveKind::kSchedule, &DrawnMove::kind), 8);
}

TEST_F(MoveDrawerTest, SearchesFindTheSameOnAnyNumberOfThreads) {
  // Some network: every feature counts, and none as much as another.
  auto network = std::make_shared<MoveNetwork>();
  const std::size_t width = move_feature_count();
  network->layers = {{width, 4, std::vector<float>(width * 4), std::vector<float>(4)},
                     {4, 1, {1, -1, 2, -2}, {0}}};
  for (std::size_t i = 0; i < width * 4; ++i) {
    network->layers[0].weights[i] = 0.1F * static_cast<float>(static_cast<int>(i % 17) - 8);
  }
  NetworkMoveScorer scorer(*problem_, network), again(*problem_, network);
  const SearchResult one = searched(&scorer, 1);
  const SearchResult two = searched(&again, 2);
  EXPECT_EQ(one.strategy, two.strategy);
  EXPECT_EQ(one.evaluation.step, two.evaluation.step);
  EXPECT_NE(one.strategy, searched(nullptr, 1).strategy);
}

TEST(MoveNetworkTest, SumsByHand) {
  // Two inputs, two hidden, one output: hidden = max(0, {x + 2y, −x + 1}), out = 3h − h' + 0.5.
  const MoveNetwork network{{{2, 2, {1, -1, 2, 0}, {0, 1}}, {2, 1, {3, -1}, {0.5}}}};
  const std::vector<float> some = {1, 2}, other = {-3, 1};
  EXPECT_EQ(network(some), 3 * 5 - 0 + 0.5F);
  EXPECT_EQ(network(other), 3 * 0 - 4 + 0.5F);
}

}  // namespace
}  // namespace heterog::planner
