// Small random chains and all of their paths.
#pragma once

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "space/chain.h"

namespace heterog::space {

// Some rows impossible, some changes free.
struct RandomChain {
  RandomChain(Rng& rng, std::size_t groups, std::size_t rows)
      : moving(rows * rows),
        chain{.groups = groups, .rows = rows, .own = {}, .weight = {}, .change = {}, .moving = {}} {
    for (std::size_t i = 0; i < rows * rows; ++i) {
      moving[i] = i % (rows + 1) == 0 ? 0 : rng.uniform();
    }
    const double dear = static_cast<double>(rng.below(4));
    for (std::size_t n = 0; n < groups; ++n) {
      for (std::size_t a = 0; a < rows; ++a) {
        chain.own.push_back(a > 0 && rng.below(6) == 0 ? kImpossible : -3 * rng.uniform());
      }
      chain.weight.push_back(dear * rng.uniform());
      chain.change.push_back(rng.uniform() - 0.3);
    }
    chain.moving = moving;
  }
  RandomChain(const RandomChain&) = delete;

  std::vector<double> moving;
  Chain chain;
};

inline std::vector<Path> every_path(const Chain& chain) {
  std::vector<Path> paths;
  const auto count = static_cast<std::size_t>(
      std::pow(static_cast<double>(chain.rows), static_cast<double>(chain.groups)) + 0.5);
  for (std::size_t code = 0; code < count; ++code) {
    Path path;
    for (std::size_t n = 0, rest = code; n < chain.groups; ++n, rest /= chain.rows) {
      path.push_back(static_cast<std::uint32_t>(rest % chain.rows));
    }
    paths.push_back(std::move(path));
  }
  return paths;
}

}  // namespace heterog::space
