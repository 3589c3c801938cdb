// What a plan for fully_shard (FSDP2) is, and what its ranks hold.
#pragma once

#include "oracle/oracle.h"

namespace heterog::search {

// fully_shard with reshard_after_forward=False, as far as a plan says it (fsdp2_strategy() in
// shares.h): every rank has its samples of each micro-batch, gradients are scattered by rows as
// soon as a bucket of them is there, each rank updates its rows, and the new ones are gathered.
//
//   fully_shard                            the plan
//   rows of a parameter on each rank,      the whole parameter, always: WithParameterRows adds the
//   whole ones from its forward pass to    rows to what is in memory at the peak, where fully_shard
//   the end of its backward pass           has both
//   gathers before the forward pass of     gathers right behind the update: the same bytes, beside
//   the next step, beside computation      the backward pass of the layers in front
//
// With reshard_after_forward=True parameters are gathered a second time, before the backward pass,
// and are not whole between: no plan says that.

// Throws an input error for a model with many weights that are not trained, as a LoRA's base:
// fully_shard gathers them in each step, and a plan never moves them.
void check_for_fsdp2(const cost::Problem& problem);

// Of so many ranks, what one holds of the parameters at most: every one is cut along axis 0, its
// last parts padded to the first.
Bytes parameter_rows(const cost::Problem& problem, std::size_t ranks);

// Adds to each device that the strategy uses its rows of the parameters, and judges anew.
oracle::Measured with_parameter_rows(const cost::Problem& problem, const decide::Strategy& strategy,
                                     oracle::Measured measured);

// Answers as another oracle, which has to outlive it, with each device's rows of the parameters in
// its memory.
class WithParameterRows final : public oracle::Oracle {
 public:
  explicit WithParameterRows(oracle::Oracle& asked) : asked_(asked) {}
  std::vector<oracle::Measured> measure(std::span<const decide::Strategy> strategies) override;
  std::vector<oracle::Measured> measure_rounds(const decide::Strategy& strategy) override;
  void for_each(std::size_t n, const std::function<void(std::size_t i)>& body) override {
    asked_.for_each(n, body);
  }
  const cost::Problem& problem() const override { return asked_.problem(); }

 private:
  oracle::Oracle& asked_;
};

}  // namespace heterog::search
