// For which batches a graph is known to hold.
#include "graph/known_batches.h"

#include <algorithm>

#include <fmt/format.h>

namespace heterog::graph {

namespace {

// A model that decides by B % 7 has a range for every seven batches.
constexpr std::size_t kMostShown = 6;

}  // namespace

bool KnownBatches::contain(std::int64_t batch) const { return last(batch) == batch; }

std::int64_t KnownBatches::next(std::int64_t batch) const {
  for (const Range& range : ranges) {
    if (!range.to || *range.to >= batch) return std::max(batch, range.from);
  }
  return *ranges.back().to;
}

std::optional<std::int64_t> KnownBatches::last(std::int64_t batch) const {
  std::optional<std::int64_t> found;
  for (const Range& range : ranges) {
    if (range.from > batch) break;
    found = range.to ? std::min(batch, *range.to) : batch;
  }
  return found;
}

std::string KnownBatches::text() const {
  std::string text;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (i == kMostShown) return text + ", …";
    const auto& [from, to] = ranges[i];
    if (i > 0) text += ", ";
    text += fmt::format("{}", from);
    if (!to) {
      text += " and more";
    } else if (*to != from) {
      text += fmt::format(" to {}", *to);
    }
  }
  return text;
}

}  // namespace heterog::graph
