// Each pattern writes down, for every stage, which pass of which micro-batch comes next.
#include "decide/patterns.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "base/check.h"

namespace heterog::decide {
namespace {

// Gives out turns in the order in which they are asked for.
class Turns {
 public:
  Turns(std::size_t stages, std::int64_t micro_batches)
      : turns_(stages, {std::vector<std::int64_t>(static_cast<std::size_t>(micro_batches)),
                        std::vector<std::int64_t>(static_cast<std::size_t>(micro_batches))}),
        next_(stages, 0) {}
  void forward(std::size_t stage, std::int64_t micro_batch) {
    turns_[stage].forward[static_cast<std::size_t>(micro_batch)] = next_[stage]++;
  }
  void backward(std::size_t stage, std::int64_t micro_batch) {
    turns_[stage].backward[static_cast<std::size_t>(micro_batch)] = next_[stage]++;
  }
  std::vector<StageTurns> take() && { return std::move(turns_); }

 private:
  std::vector<StageTurns> turns_;
  std::vector<std::int64_t> next_;
};

// SPP algorithm 1, lines 1 to 8. Blocks: the stages' forward passes with a channel behind each; the
// last stage's forward and backward pass as one; the channels and backward passes back.
void list_blocks(std::size_t stages, std::int64_t micro_batches, Turns& turns) {
  const std::size_t blocks = 4 * stages - 3;
  std::vector<std::deque<std::int64_t>> available(blocks);
  for (std::int64_t m = 0; m < micro_batches; ++m) available[0].push_back(m);
  const auto any = [&] {
    return std::ranges::any_of(available, [](const auto& queue) { return !queue.empty(); });
  };
  while (any()) {
    // What can be processed at about the same time: of each block, as it stands now.
    std::vector<std::size_t> busy;
    for (std::size_t block = 0; block < blocks; ++block) {
      if (!available[block].empty()) busy.push_back(block);
    }
    for (std::size_t block : busy) {
      const std::int64_t m = available[block].front();
      available[block].pop_front();
      if (block + 1 < blocks) available[block + 1].push_back(m);
      if (block % 2 == 1) continue;  // a channel
      const std::size_t at = block / 2;
      if (at < stages) turns.forward(at, m);
      if (at + 1 >= stages) turns.backward(2 * (stages - 1) - at, m);
    }
  }
}

}  // namespace

std::vector<StageTurns> stage_turns(Pattern pattern, std::size_t stages,
                                    std::int64_t micro_batches) {
  EXPECT(pattern != Pattern::kNone && stages > 0 && micro_batches > 0);
  Turns turns(stages, micro_batches);
  if (pattern == Pattern::kListed) {
    list_blocks(stages, micro_batches, turns);
    return std::move(turns).take();
  }
  if (pattern == Pattern::kDepthFirst) {
    std::vector<std::int64_t> each(static_cast<std::size_t>(micro_batches));
    std::iota(each.begin(), each.end(), 0);
    return {stages, {each, each}};
  }
  for (std::size_t stage = 0; stage < stages; ++stage) {
    // So many forward passes go ahead that the stages behind have work.
    std::int64_t ahead = micro_batches;
    if (pattern == Pattern::kOneForwardOneBackward || pattern == Pattern::kZeroBubble) {
      ahead = std::min(micro_batches, static_cast<std::int64_t>(stages - stage));
    }
    for (std::int64_t m = 0; m < ahead; ++m) turns.forward(stage, m);
    for (std::int64_t m = 0; m < micro_batches; ++m) {
      turns.backward(stage, m);
      if (ahead + m < micro_batches) turns.forward(stage, ahead + m);
    }
  }
  return std::move(turns).take();
}

}  // namespace heterog::decide
