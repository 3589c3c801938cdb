// Evaluates many strategies on all cores, every distinct one once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "planner/evaluator.h"
#include "planner/planner.h"

namespace heterog::planner {

// An evaluation, and the peak memory of each device behind it.
struct Measured {
  Evaluation evaluation;
  IdVector<DeviceId, Bytes> peak_bytes;
};

// Keeps one Evaluator per worker and remembers what it has seen. What it returns depends on the
// strategies alone, never on the number of threads.
class BatchEvaluator {
 public:
  BatchEvaluator(const cost::Problem& problem, ThreadPool& threads,
                 compiler::CompileOptions options, Budget budget = {});

  // Parallel to `strategies`. What one of them throws reaches the caller, and then none of this
  // call counts as seen or evaluated.
  std::vector<Measured> evaluate(std::span<const compiler::Strategy> strategies);
  Measured evaluate(const compiler::Strategy& strategy) { return evaluate({&strategy, 1})[0]; }

  std::int64_t evaluations() const { return evaluations_; }  // simulated, repeats not counted
  // Of the budget's evaluations; huge if it has none.
  std::int64_t evaluations_left() const;
  bool spent() const;
  const cost::Problem& problem() const { return problem_; }

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const { return key.first; }
  };
  static Key key_of(const compiler::Strategy& strategy);

  const cost::Problem& problem_;
  ThreadPool& threads_;
  Budget budget_;
  std::vector<std::unique_ptr<Evaluator>> evaluators_;  // one per worker
  std::unordered_map<Key, Measured, KeyHash> seen_;     // looked up, never walked
  std::int64_t evaluations_ = 0;
};

}  // namespace heterog::planner
