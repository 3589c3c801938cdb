// The dynamic program against all paths.
#include "space/chain.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "space/every_path.h"

namespace heterog::space {
namespace {

TEST(Chain, TheBestPathIsTheBestOfAll) {
  Rng rng(7);
  for (int trial = 0; trial < 200; ++trial) {
    const RandomChain random(rng, 5, 3);
    double best = kImpossible;
    for (const Path& path : every_path(random.chain))
      best = std::max(best, score(random.chain, path));
    EXPECT_NEAR(score(random.chain, best_path(random.chain)), best, 1e-12) << trial;
  }
}

TEST(Chain, StaysWhereAChangeIsDear) {
  const std::vector<double> moving = {0, 1, 1, 0};
  Chain chain{.groups = 3,
              .rows = 2,
              .own = {0, -1, -1, 0, 0, -1},
              .weight = {0, 5, 5},
              .change = {0, 0, 0},
              .moving = moving};
  EXPECT_EQ(best_path(chain), (Path{0, 0, 0}));
  chain.weight = {0, 0, 0};
  EXPECT_EQ(best_path(chain), (Path{0, 1, 0}));
  chain.change = {0, 0.6, 0.6};  // two changes cost more than the one group gains
  EXPECT_EQ(best_path(chain), (Path{0, 0, 0}));
}

}  // namespace
}  // namespace heterog::space
