// A distribution over layouts of the whole model: each group's row depends on the row before.
#pragma once

#include <vector>

#include "base/rng.h"
#include "space/chain.h"

namespace heterog::learn {

using space::Chain;
using space::kImpossible;
using space::Path;

// log π(a) = score(a) − log Z: a linear-chain conditional random field (Lafferty et al. 2001). Sums
// over all Aᴺ paths take N · A² steps.

// Of the paths up to each group that end in each row, the log of the sum of exp(score).
struct Filtered {
  std::vector<double> sums;  // [N, A]
  double log_z = 0;
};
// Throws an internal error where every path is impossible.
Filtered filter_forward(const Chain& chain);
// A path by π: the last group's row first, then backwards (forward filtering, backward sampling).
Path sample_backward(const Chain& chain, const Filtered& filtered, Rng rng);

// What is expected under π of each term of a score: ∂ log Z by each potential.
struct Expected {
  std::vector<double> own;      // [N, A]: how likely each row is
  std::vector<double> moving;   // [N]: Σ of moving[a_(n−1), a_n]
  std::vector<double> changed;  // [N]: how likely a change is
};
Expected expected(const Chain& chain, const Filtered& filtered);

}  // namespace heterog::learn
