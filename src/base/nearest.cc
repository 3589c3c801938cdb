// Optimal string alignment (Damerau 1964, Levenshtein 1966), over words of bounded length.
#include "base/nearest.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <vector>

namespace heterog {
namespace {

constexpr std::size_t kLongest = 64;  // of a word that anybody knows; bounds the time

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two_before(b.size() + 1), before(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::swap(two_before, before);
    std::swap(before, row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] =
          std::min({before[j] + (same_letter(a[i], b[j]) ? 0 : 1), before[j + 1] + 1, row[j] + 1});
      if (i > 0 && j > 0 && same_letter(a[i], b[j - 1]) && same_letter(a[i - 1], b[j])) {
        row[j + 1] = std::min(row[j + 1], two_before[j - 1] + 1);
      }
    }
  }
  return row.back();
}

std::optional<std::size_t> nearest_word(std::string_view wrong,
                                        std::span<const std::string> known) {
  if (wrong.empty() || wrong.size() > kLongest) return std::nullopt;
  std::optional<std::size_t> best;
  std::size_t least = wrong.size() / 3 + 1;
  for (std::size_t i = 0; i < known.size(); ++i) {
    const std::size_t distance =
        edit_distance(wrong, std::string_view(known[i]).substr(0, 2 * kLongest));
    if (distance >= least) continue;
    least = distance;
    best = i;
  }
  return best;
}

std::string did_you_mean(std::string_view wrong, std::span<const std::string> known) {
  const std::optional<std::size_t> best = nearest_word(wrong, known);
  return best ? " (did you mean " + known[*best] + "?)" : "";
}

}  // namespace heterog
