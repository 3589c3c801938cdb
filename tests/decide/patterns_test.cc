// The turns of stages, and SPP's bound on how long a step takes in its order.
#include "decide/patterns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace heterog::decide {
namespace {

using Turns = std::vector<std::int64_t>;

TEST(Pattern, OfGPipeIsForwardThenBackward) {
  for (const StageTurns& stage : stage_turns(Pattern::kForwardFirst, 3, 4)) {
    EXPECT_EQ(stage.forward, (Turns{0, 1, 2, 3}));
    EXPECT_EQ(stage.backward, (Turns{4, 5, 6, 7}));
  }
}

TEST(Pattern, OfPipeDreamKeepsAsManyAsStagesFollow) {
  const auto stages = stage_turns(Pattern::kOneForwardOneBackward, 3, 4);
  EXPECT_EQ(stages[0].forward, (Turns{0, 1, 2, 4}));
  EXPECT_EQ(stages[0].backward, (Turns{3, 5, 6, 7}));
  EXPECT_EQ(stages[1].forward, (Turns{0, 1, 3, 5}));
  EXPECT_EQ(stages[1].backward, (Turns{2, 4, 6, 7}));
  EXPECT_EQ(stages[2].forward, (Turns{0, 2, 4, 6}));
  EXPECT_EQ(stages[2].backward, (Turns{1, 3, 5, 7}));
}

TEST(Pattern, OfZeroBubbleHasTheTurnsOfPipeDream) {
  const auto a = stage_turns(Pattern::kOneForwardOneBackward, 3, 5);
  const auto b = stage_turns(Pattern::kZeroBubble, 3, 5);
  for (std::size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(a[s].forward, b[s].forward);
    EXPECT_EQ(a[s].backward, b[s].backward);
  }
}

// Two stages: blocks are forward 1, channel, forward and backward 2, channel, backward 1. The first
// micro-batch comes back to stage 1 in the fifth round, in which the fifth one sets out before it.
TEST(Pattern, OfPeGoesRoundTheBlocks) {
  const auto stages = stage_turns(Pattern::kListed, 2, 6);
  EXPECT_EQ(stages[1].forward, (Turns{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(stages[1].backward, (Turns{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(stages[0].forward, (Turns{0, 1, 2, 3, 4, 6}));
  EXPECT_EQ(stages[0].backward, (Turns{5, 7, 8, 9, 10, 11}));
}

// A step of stages that run strictly in their turns, with a channel to and one from each neighbour,
// which carry one micro-batch at a time, the first that is ready.
struct Times {
  std::vector<double> forward, backward, to, from;  // of each stage; channels: of those in front
};

double run_strictly(const Times& times, const std::vector<StageTurns>& turns,
                    std::size_t micro_batches) {
  const std::size_t stages = times.forward.size();
  constexpr double kNot = -1;
  struct Transfer {
    double ready = 0;
    bool forward = false;
    std::size_t micro_batch = 0;
  };
  // When each pass can start; of the last stage, the backward pass once the forward pass has ended.
  std::vector<std::vector<double>> arrived(stages, std::vector<double>(micro_batches, kNot));
  std::vector<std::vector<double>> returned = arrived;
  std::ranges::fill(arrived[0], 0);
  std::vector<std::vector<std::pair<bool, std::size_t>>> order(stages);
  for (std::size_t s = 0; s < stages; ++s) {
    order[s].resize(2 * micro_batches);
    for (std::size_t m = 0; m < micro_batches; ++m) {
      order[s][static_cast<std::size_t>(turns[s].forward[m])] = {true, m};
      order[s][static_cast<std::size_t>(turns[s].backward[m])] = {false, m};
    }
  }
  std::vector<std::size_t> next(stages, 0);
  std::vector<double> free(stages, 0), channel_free(2 * stages, 0);
  std::vector<std::vector<Transfer>> waiting(2 * stages);  // in front of the stage: to it, from it
  double end = 0;
  while (true) {
    // Of all passes and transfers that can go on, the one that starts first.
    double start = 1e30;
    std::size_t at = 0;
    bool transfers = false;
    for (std::size_t s = 0; s < stages; ++s) {
      if (next[s] < order[s].size()) {
        const auto [forward, m] = order[s][next[s]];
        const double ready = (forward ? arrived : returned)[s][m];
        if (ready != kNot && std::max(ready, free[s]) < start) {
          start = std::max(ready, free[s]);
          at = s;
          transfers = false;
        }
      }
    }
    for (std::size_t c = 0; c < waiting.size(); ++c) {
      if (waiting[c].empty()) continue;
      const auto first = std::ranges::min_element(waiting[c], {}, &Transfer::ready);
      if (std::max(first->ready, channel_free[c]) < start) {
        start = std::max(first->ready, channel_free[c]);
        at = c;
        transfers = true;
      }
    }
    if (start == 1e30) break;
    if (transfers) {
      const auto first = std::ranges::min_element(waiting[at], {}, &Transfer::ready);
      const auto [ready, forward, m] = *first;
      waiting[at].erase(first);
      const std::size_t s = at / 2;
      channel_free[at] = start + (forward ? times.to : times.from)[s];
      (forward ? arrived[s] : returned[s - 1])[m] = channel_free[at];
      continue;
    }
    const auto [forward, m] = order[at][next[at]++];
    const double done = start + (forward ? times.forward : times.backward)[at];
    free[at] = done;
    end = std::max(end, done);
    if (forward && at + 1 < stages) waiting[2 * at + 2].push_back({done, true, m});
    if (forward && at + 1 == stages) returned[at][m] = done;
    if (!forward && at > 0) waiting[2 * at + 1].push_back({done, false, m});
  }
  for (std::size_t s = 0; s < stages; ++s) EXPECT_EQ(next[s], order[s].size());
  return end;
}

// Equal stages without communication: (M + S − 1)(f + b), however they are ordered.
TEST(Pattern, OfEqualStagesTakesWhatItMust) {
  for (std::size_t stages : {1, 2, 3, 5}) {
    for (std::size_t m : {1, 2, 4, 9}) {
      const std::vector<double> ones(stages, 1), twos(stages, 2), none(stages, 0);
      for (Pattern schedule :
           {Pattern::kForwardFirst, Pattern::kOneForwardOneBackward, Pattern::kListed}) {
        const auto turns = stage_turns(schedule, stages, static_cast<std::int64_t>(m));
        const double least = static_cast<double>(m + stages - 1) * 3;
        const double takes = run_strictly({ones, twos, none, none}, turns, m);
        if (schedule == Pattern::kListed) {
          EXPECT_GE(takes, least);  // its rounds count channels, which here take no time
        } else {
          EXPECT_EQ(takes, least) << stages << ' ' << m;
        }
      }
    }
  }
}

// SPP lemma 1, without all-reduces: PE's order takes at most (M + 4 S − 4) C, where C is the most
// that a stage or channel has to do for a micro-batch. Not so where both ways share a channel and
// whoever comes first goes first: the lemma's proof takes them in the order of its rounds.
TEST(Pattern, OfPeKeepsTheBoundOfTheLemma) {
  Rng rng(5);
  for (int i = 0; i < 100'000; ++i) {
    const std::size_t stages = 1 + rng.below(5), m = 1 + rng.below(8);
    Times times;
    double most = 0;
    const auto draw = [&] { return static_cast<double>(rng.below(20)); };
    for (std::size_t s = 0; s < stages; ++s) {
      times.forward.push_back(draw());
      times.backward.push_back(draw());
      times.to.push_back(s > 0 ? draw() : 0);
      times.from.push_back(s > 0 ? draw() : 0);
      most = std::max({most, times.forward[s] + times.backward[s], times.to[s] + times.from[s]});
    }
    const auto turns = stage_turns(Pattern::kListed, stages, static_cast<std::int64_t>(m));
    ASSERT_LE(run_strictly(times, turns, m), static_cast<double>(m + 4 * stages - 4) * most) << i;
  }
}

}  // namespace
}  // namespace heterog::decide
