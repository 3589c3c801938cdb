// Layouts of the whole model as paths: each group has a row, and a change from the row before costs
// something.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace heterog::space {

// N groups, each with one of A rows. What a path a is worth:
//   Σ_n own[n, a_n] − Σ_{n > 0} (weight[n] · moving[a_(n−1), a_n] + change[n] where these differ)
struct Chain {
  std::size_t groups = 0, rows = 0;
  std::vector<double> own;         // [N, A]; kImpossible: never
  std::vector<double> weight;      // [N]; that of the first is not read
  std::vector<double> change;      // [N]; that of the first is not read
  std::span<const double> moving;  // [A, A], 0 on the diagonal
  // The term of going from row a to row b in front of group n.
  double pair(std::size_t n, std::size_t a, std::size_t b) const {
    return a == b ? 0 : -weight[n] * moving[a * rows + b] - change[n];
  }
};
inline constexpr double kImpossible = -std::numeric_limits<double>::infinity();

using Path = std::vector<std::uint32_t>;  // a row a group

double score(const Chain& chain, const Path& path);
// The path of the greatest score, by dynamic programming (Viterbi), N · A² steps. Ties: the first
// rows, from the last group on.
Path best_path(const Chain& chain);

}  // namespace heterog::space
