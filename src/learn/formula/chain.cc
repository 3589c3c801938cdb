// Everything in logarithms: potentials lie hundreds of nats apart.
#include "learn/formula/chain.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace heterog::learn {
namespace {

// Terms so far below the greatest, in nats, do not change a sum of doubles.
constexpr double kNegligible = 40;

double log_sum(std::span<const double> terms) {
  const double most = *std::ranges::max_element(terms);
  if (most == kImpossible) return kImpossible;
  double sum = 0;
  for (const double term : terms) {
    if (term > most - kNegligible) sum += std::exp(term - most);
  }
  return most + std::log(sum);
}

// Of the paths from each group to the last, without the group's own term.
std::vector<double> filter_backward(const Chain& chain) {
  const std::size_t rows = chain.rows;
  std::vector<double> sums(chain.groups * rows, 0), terms(rows);
  for (std::size_t n = chain.groups - 1; n > 0; --n) {
    for (std::size_t a = 0; a < rows; ++a) {
      for (std::size_t b = 0; b < rows; ++b) {
        terms[b] = chain.pair(n, a, b) + chain.own[n * rows + b] + sums[n * rows + b];
      }
      sums[(n - 1) * rows + a] = log_sum(terms);
    }
  }
  return sums;
}

std::size_t drawn_by_logs(std::span<const double> logs, Rng& rng) {
  const double all = log_sum(logs);
  double left = rng.uniform();
  std::size_t last = 0;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    if (logs[i] <= all - kNegligible) continue;
    last = i;
    left -= std::exp(logs[i] - all);
    if (left < 0) break;
  }
  return last;
}

}  // namespace

Filtered filter_forward(const Chain& chain) {
  const std::size_t rows = chain.rows;
  Filtered filtered{.sums = std::vector<double>(chain.groups * rows)};
  std::copy_n(chain.own.begin(), rows, filtered.sums.begin());
  std::vector<double> terms(rows);
  for (std::size_t n = 1; n < chain.groups; ++n) {
    for (std::size_t b = 0; b < rows; ++b) {
      for (std::size_t a = 0; a < rows; ++a) {
        terms[a] = filtered.sums[(n - 1) * rows + a] + chain.pair(n, a, b);
      }
      filtered.sums[n * rows + b] = log_sum(terms) + chain.own[n * rows + b];
    }
  }
  filtered.log_z = log_sum(std::span(filtered.sums).last(rows));
  ENSURE(std::isfinite(filtered.log_z));
  return filtered;
}

Path sample_backward(const Chain& chain, const Filtered& filtered, Rng rng) {
  const std::size_t rows = chain.rows;
  Path path(chain.groups);
  std::vector<double> logs(filtered.sums.end() - static_cast<long>(rows), filtered.sums.end());
  for (std::size_t n = chain.groups; n-- > 0;) {
    path[n] = static_cast<std::uint32_t>(drawn_by_logs(logs, rng));
    if (n == 0) break;
    for (std::size_t a = 0; a < rows; ++a) {
      logs[a] = filtered.sums[(n - 1) * rows + a] + chain.pair(n, a, path[n]);
    }
  }
  return path;
}

Expected expected(const Chain& chain, const Filtered& filtered) {
  const std::size_t rows = chain.rows;
  const std::vector<double> behind = filter_backward(chain);
  Expected result{.own = std::vector<double>(chain.groups * rows, 0),
                  .moving = std::vector<double>(chain.groups, 0),
                  .changed = std::vector<double>(chain.groups, 0)};
  for (std::size_t i = 0; i < result.own.size(); ++i) {
    const double log_p = filtered.sums[i] + behind[i] - filtered.log_z;
    if (log_p <= -kNegligible) continue;
    result.own[i] = std::exp(log_p);
  }
  for (std::size_t n = 1; n < chain.groups; ++n) {
    for (std::size_t b = 0; b < rows; ++b) {
      const double end = chain.own[n * rows + b] + behind[n * rows + b] - filtered.log_z;
      if (end == kImpossible) continue;
      for (std::size_t a = 0; a < rows; ++a) {
        if (a == b) continue;
        const double log_p = filtered.sums[(n - 1) * rows + a] + chain.pair(n, a, b) + end;
        if (log_p <= -kNegligible) continue;
        const double p = std::exp(log_p);
        result.moving[n] += p * chain.moving[a * rows + b];
        result.changed[n] += p;
      }
    }
  }
  return result;
}

}  // namespace heterog::learn
