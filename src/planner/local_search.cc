// Hill climbing in rounds: several moves from one incumbent, then the moves that helped, together.
#include "planner/local_search.h"

#include <algorithm>
#include <array>

#include "planner/moves.h"

namespace heterog::planner {

namespace {

// Draws kinds of move in proportion to how often they helped lately.
class KindChooser {
 public:
  KindChooser() { weights_.fill(1); }
  MoveKind draw(Rng& rng) const {
    double total = 0;
    for (double weight : weights_) total += weight;
    double point = rng.uniform() * total;
    for (int kind = 0; kind < kMoveKindCount; ++kind) {
      if ((point -= weights_[kind]) < 0) return static_cast<MoveKind>(kind);
    }
    return static_cast<MoveKind>(kMoveKindCount - 1);
  }
  void learn(MoveKind kind, bool helped) {
    double& weight = weights_[static_cast<std::size_t>(kind)];
    weight = std::clamp(helped ? weight * 1.5 : weight * 0.97, 0.25, 4.0);
  }

 private:
  std::array<double, kMoveKindCount> weights_;
};

struct Proposal {
  Move move;
  MoveKind kind;
  Candidate candidate;
  Evaluation evaluation;
};

}  // namespace

SearchResult local_search(BatchEvaluator& evaluator, const compiler::Strategy& start, Rng& rng,
                          const LocalSearchOptions& options) {
  const MoveMaker maker(evaluator.problem());
  KindChooser kinds;
  Candidate incumbent = to_candidate(start);
  Evaluation best = evaluator.evaluate(start).evaluation;
  const std::int64_t end = evaluator.evaluations() + options.evaluations;
  std::vector<Proposal> helpful;  // of the last round, best first, the one taken left out
  std::int64_t in_vain = 0;
  // Small spaces run out of new strategies: a bound on proposals ends the search there too.
  for (std::int64_t proposed = 0; proposed < 16 * options.evaluations;) {
    const std::int64_t left = std::min(end - evaluator.evaluations(), evaluator.evaluations_left());
    if (left <= 0 || evaluator.spent()) break;
    if (options.patience > 0 && in_vain >= options.patience) break;

    std::vector<Proposal> round;
    const auto size = static_cast<std::size_t>(std::min(options.round, left));
    if (!helpful.empty()) {
      // What helped the last incumbent may still help this one: all of it, and the best of it.
      Candidate all = incumbent;
      for (const Proposal& proposal : helpful) all = apply(all, proposal.move);
      round.push_back({helpful[0].move, helpful[0].kind, std::move(all), {}});
      if (helpful.size() > 1 && size > 1) {
        round.push_back({helpful[0].move, helpful[0].kind, apply(incumbent, helpful[0].move), {}});
      }
    }
    while (round.size() < size) {
      const MoveKind kind = kinds.draw(rng);
      Move move = maker.propose(incumbent, kind, rng);
      Candidate candidate = apply(incumbent, move);
      round.push_back({std::move(move), kind, std::move(candidate), {}});
    }
    proposed += static_cast<std::int64_t>(round.size());

    std::vector<compiler::Strategy> strategies;
    for (const Proposal& proposal : round) strategies.push_back(to_strategy(proposal.candidate));
    const std::vector<Measured> measured = evaluator.evaluate(strategies);
    helpful.clear();
    for (std::size_t i = 0; i < round.size(); ++i) {
      round[i].evaluation = measured[i].evaluation;
      const bool helped = better(round[i].evaluation, best);
      kinds.learn(round[i].kind, helped);
      if (helped) helpful.push_back(std::move(round[i]));
    }
    in_vain = helpful.empty() ? in_vain + static_cast<std::int64_t>(size) : 0;
    if (helpful.empty()) continue;
    std::stable_sort(helpful.begin(), helpful.end(), [](const Proposal& a, const Proposal& b) {
      return better(a.evaluation, b.evaluation);
    });
    incumbent = std::move(helpful.front().candidate);
    best = helpful.front().evaluation;
    helpful.erase(helpful.begin());
  }
  return {to_strategy(incumbent), best};
}

}  // namespace heterog::planner
