// Draws without replacement in proportion to exp(score): the greatest of score + Gumbel noise.
#include "planner/scorer/move_drawer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/hash.h"

namespace heterog::planner {

namespace {

void add(Hasher& hasher, const Replicas& replicas) {
  hasher.add(replicas.size());
  for (const compiler::Replica& replica : replicas) {
    hasher.add(replica.device.value());
    hasher.add(std::bit_cast<std::uint64_t>(replica.weight));
  }
}

std::uint64_t hash_of(const Move& move) {
  Hasher hasher;
  hasher.add(move.groups.size());
  for (GroupId group : move.groups) hasher.add(group.value());
  hasher.add(move.replicas.has_value());
  if (move.replicas) add(hasher, *move.replicas);
  hasher.add(move.sync ? 1 + static_cast<std::uint64_t>(*move.sync) : 0);
  hasher.add(move.recompute ? 1 + static_cast<std::uint64_t>(*move.recompute) : 0);
  hasher.add(move.reweigh.size());
  for (const auto& [from, to] : move.reweigh) {
    add(hasher, from);
    add(hasher, to);
  }
  hasher.add(move.order ? 1 + static_cast<std::uint64_t>(*move.order) : 0);
  hasher.add(move.bucket_bytes ? 1 + static_cast<std::uint64_t>(*move.bucket_bytes) : 0);
  return hasher.value();
}

// Part of the moves that are drawn evenly: at least so much, at most one less so much.
constexpr double kLeast = 0.2;
// What a move adds to what is known of moves drawn like it.
constexpr double kNews = 0.02;

double gumbel(Rng& rng) { return -std::log(-std::log(std::max(1e-300, rng.uniform()))); }

}  // namespace

DrawnMove MoveDrawer::draw_one(const Incumbent& from, const KindChooser& kinds, Rng& rng) const {
  const MoveKind kind = kinds.draw(rng);
  return {.move = maker_.propose(from, kind, rng), .kind = kind, .kind_weight = kinds.weight(kind)};
}

std::vector<DrawnMove> MoveDrawer::draw(const Incumbent& from, const KindChooser& kinds,
                                        std::size_t count, Rng& rng, double sharpness) {
  std::vector<DrawnMove> moves;
  if (!scorer_) {
    while (moves.size() < count) moves.push_back(draw_one(from, kinds, rng));
    return moves;
  }
  std::vector<std::uint64_t> hashes;
  const std::size_t pool = count * static_cast<std::size_t>(drawn_);
  for (std::size_t i = 0; i < pool; ++i) {
    DrawnMove one = draw_one(from, kinds, rng);
    const std::uint64_t hash = hash_of(one.move);
    if (given_.contains(hash) || std::ranges::find(hashes, hash) != hashes.end()) continue;
    moves.push_back(std::move(one));
    hashes.push_back(hash);
  }
  scored_ = 0;
  if (moves.empty()) return {draw_one(from, kinds, rng)};

  std::vector<std::pair<double, std::size_t>> order;  // of the scored, the best first
  const std::vector<double> scores = scorer_->score(from, moves);
  for (std::size_t i = 0; i < moves.size(); ++i) {
    order.emplace_back(sharpness * scores[i] + gumbel(rng), i);
  }
  std::ranges::stable_sort(order, std::ranges::greater(), &std::pair<double, std::size_t>::first);
  const std::size_t given = std::min(count, moves.size());
  const double part = std::clamp(evenly_ / (evenly_ + by_score_), kLeast, 1 - kLeast);
  const auto evenly = static_cast<std::size_t>(std::ceil(part * static_cast<double>(count) - 1e-9));
  scored_ = given - std::min(given, evenly);
  for (std::size_t i = scored_; i < given; ++i) {
    std::swap(order[i], order[i + rng.below(order.size() - i)]);
  }
  std::vector<DrawnMove> chosen;
  for (std::size_t i = 0; i < given; ++i) {
    given_.insert(hashes[order[i].second]);
    chosen.push_back(std::move(moves[order[i].second]));
  }
  return chosen;
}

void MoveDrawer::learn(std::size_t i, bool helped) {
  double& rate = i < scored_ ? by_score_ : evenly_;
  rate += kNews * ((helped ? 1.0 : 0.0) - rate);
  rate = std::max(rate, 1e-3);
}

}  // namespace heterog::planner
