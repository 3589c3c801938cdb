// Sums, draws and expectations against all paths.
#include "learn/formula/chain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "space/every_path.h"

namespace heterog::learn {
namespace {

using space::every_path;
using space::RandomChain;

double log_z_of(const Chain& chain) {
  double sum = 0;
  for (const Path& path : every_path(chain)) sum += std::exp(score(chain, path));
  return std::log(sum);
}

TEST(Filter, SumsOverAllPaths) {
  Rng rng(3);
  for (int trial = 0; trial < 50; ++trial) {
    const RandomChain random(rng, 5, 3);
    EXPECT_NEAR(filter_forward(random.chain).log_z, log_z_of(random.chain), 1e-9) << trial;
  }
}

TEST(Filter, ExpectsWhatAllPathsHave) {
  Rng rng(4);
  for (int trial = 0; trial < 50; ++trial) {
    const RandomChain random(rng, 4, 3);
    const Chain& chain = random.chain;
    const Filtered filtered = filter_forward(chain);
    const Expected found = expected(chain, filtered);
    Expected wanted{.own = std::vector<double>(12, 0),
                    .moving = std::vector<double>(4, 0),
                    .changed = std::vector<double>(4, 0)};
    for (const Path& path : every_path(chain)) {
      const double p = std::exp(score(chain, path) - filtered.log_z);
      if (p == 0) continue;
      for (std::size_t n = 0; n < 4; ++n) {
        wanted.own[n * 3 + path[n]] += p;
        if (n == 0 || path[n] == path[n - 1]) continue;
        wanted.moving[n] += p * chain.moving[path[n - 1] * 3 + path[n]];
        wanted.changed[n] += p;
      }
    }
    for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(found.own[i], wanted.own[i], 1e-9);
    for (std::size_t n = 0; n < 4; ++n) {
      EXPECT_NEAR(found.moving[n], wanted.moving[n], 1e-9);
      EXPECT_NEAR(found.changed[n], wanted.changed[n], 1e-9);
    }
  }
}

// A step of hundreds of nats: nothing under- or overflows, and the best path is as good as certain.
TEST(Filter, KeepsPotentialsThatLieFarApart) {
  const std::vector<double> moving = {0, 1, 1, 0};
  const Chain chain{.groups = 3,
                    .rows = 2,
                    .own = {-2000, -9000, -9000, -2000, -2000, -9000},
                    .weight = {0, 700, 700},
                    .change = {0, 0, 0},
                    .moving = moving};
  const Filtered filtered = filter_forward(chain);
  EXPECT_NEAR(filtered.log_z, -7400, 1e-9);
  EXPECT_EQ(sample_backward(chain, filtered, Rng(1)), (Path{0, 1, 0}));
  EXPECT_NEAR(expected(chain, filtered).changed[1], 1, 1e-9);
}

TEST(Filter, DrawsPathsAsLikelyAsTheyAre) {
  Rng rng(5);
  const RandomChain random(rng, 3, 3);
  const Filtered filtered = filter_forward(random.chain);
  std::map<Path, int> counts;
  constexpr int kDraws = 40'000;
  for (std::uint64_t s = 0; s < kDraws; ++s)
    ++counts[sample_backward(random.chain, filtered, Rng(s))];
  for (const Path& path : every_path(random.chain)) {
    const double p = std::exp(score(random.chain, path) - filtered.log_z);
    const double deviation = std::sqrt(p * (1 - p) / kDraws);
    EXPECT_NEAR(static_cast<double>(counts[path]) / kDraws, p, 5 * deviation + 1e-9);
  }
}

}  // namespace
}  // namespace heterog::learn
