// Keeps the best of all that an oracle is asked about: what is left of a search that is told to
// stop.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "oracle/oracle.h"

namespace heterog::oracle {

// Passes everything on to another oracle, which has to outlive it, and answers as that one does.
class BestSeen final : public Oracle {
 public:
  struct Seen {
    decide::Strategy strategy;
    Evaluation evaluation;
  };

  explicit BestSeen(Oracle& asked) : asked_(asked) {}
  std::vector<Measured> measure(std::span<const decide::Strategy> strategies) override;
  std::vector<Measured> measure_within(std::span<const decide::Strategy> strategies,
                                       Nanoseconds longest) override;
  std::vector<Measured> measure_rounds(const decide::Strategy& strategy) override;
  void for_each(std::size_t n, const std::function<void(std::size_t i)>& body) override {
    asked_.for_each(n, body);
  }
  // What that one is asked about is not seen here.
  std::unique_ptr<Oracle> of(const cost::Problem& other) override { return asked_.of(other); }
  const cost::Problem& problem() const override { return asked_.problem(); }

  // Of the calls that have returned; the first of equally good ones. Not while one is under way.
  const std::optional<Seen>& best() const { return best_; }
  std::int64_t evaluations() const { return evaluations_; }  // strategies measured, repeats too

 private:
  void look_at(const decide::Strategy& strategy, const Evaluation& evaluation);
  std::vector<Measured> look_at_all(std::span<const decide::Strategy> strategies,
                                    std::vector<Measured> measured);

  Oracle& asked_;
  std::mutex mutex_;  // measure_rounds() is called by several threads
  std::optional<Seen> best_;
  std::int64_t evaluations_ = 0;
};

}  // namespace heterog::oracle
