// What planners ask an oracle through: every distinct strategy once, within a budget.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "oracle/oracle.h"

namespace heterog::oracle {

// How long a planner that searches may go on. A budget of evaluations is reproducible, one of time
// is not.
struct Budget {
  std::optional<std::int64_t> evaluations;
  // The part of the time that is over, from 0; at 1 it is spent. Asked between evaluations; empty:
  // no limit.
  std::function<double()> time_used;
  // Of plans that are simulated from when the budget is set: how long that takes, so that it can be
  // said in advance, and the same every time.
  std::optional<std::size_t> tasks;

  bool limited() const { return evaluations || time_used || tasks; }
  bool expired() const { return time_used && time_used() >= 1; }
};

// Remembers what the oracle has said: a repeat costs nothing and is no evaluation. The budget is
// counted, not enforced: whoever searches asks what is left.
class BatchEvaluator {
 public:
  explicit BatchEvaluator(Oracle& oracle, Budget budget = {})
      : oracle_(oracle), budget_(std::move(budget)) {}

  // Parallel to `strategies`, which are candidates of a search: one that the oracle refuses (an
  // input error) is dropped, which means that it is worse than any other, and counted. Where all
  // are refused that were ever asked about, or one of them throws something else, that reaches the
  // caller, and none of this call counts as seen or evaluated.
  std::vector<Measured> evaluate(std::span<const decide::Strategy> strategies);
  // One that has to be good: what refuses it reaches the caller.
  Measured evaluate(const decide::Strategy& strategy);

  // From now on what provably takes longer than `times` the best step that fits so far is given up:
  // it counts as evaluated, and is worse than any other. The best of a call is known after it.
  void give_up_beyond(double times) { give_up_beyond_ = times; }
  // In place of the one it has. What has been evaluated counts against it.
  void set_budget(Budget budget) {
    budget_ = std::move(budget);
    tasks_before_ = tasks_;
  }
  const Budget& budget() const { return budget_; }
  std::int64_t evaluations() const { return evaluations_; }  // repeats not counted
  std::size_t tasks() const { return tasks_; }         // of the plans that were simulated, in all
  std::int64_t refused() const { return refused_; }    // of these, candidates that were dropped
  std::int64_t given_up() const { return given_up_; }  // of these, not simulated
  // Of the budget's evaluations; huge if it has none.
  std::int64_t evaluations_left() const;
  // The part of the budget that is used, of evaluations, time or tasks, whichever is the greatest;
  // 0 if there is no limit. Whoever divides a budget among searches gives each the part at which it
  // ends.
  double used() const;
  bool spent() const { return used() >= 1; }
  const cost::Problem& problem() const { return oracle_.problem(); }
  Oracle& oracle() const { return oracle_; }

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const { return key.first; }
  };
  static Key key_of(const decide::Strategy& strategy);
  std::vector<Measured> measure(std::span<const decide::Strategy> fresh);
  Nanoseconds longest() const;
  void note(const Measured& made);

  Oracle& oracle_;
  Budget budget_;
  std::unordered_map<Key, Measured, KeyHash> seen_;  // looked up, never walked
  std::int64_t evaluations_ = 0;
  std::int64_t refused_ = 0;
  std::int64_t given_up_ = 0;
  std::optional<double> give_up_beyond_;
  std::optional<Nanoseconds> best_step_;      // of what fits
  std::size_t tasks_ = 0, tasks_before_ = 0;  // in all, and when the budget was set
};

}  // namespace heterog::oracle
