// Tries the cheap baselines at one batch after the other.
#include "cli/answers/what_fits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/thread_pool.h"
#include "compiler/micro_batches.h"
#include "explain/work.h"
#include "loading/other_batch.h"
#include "oracle/batch_evaluator.h"
#include "oracle/simulated_oracle.h"
#include "planner/baselines.h"

namespace heterog::cli {

namespace {

using compiler::Strategy;

// More of them hold hardly less.
constexpr std::int64_t kMostMicroBatches = 64;

enum class Way : std::uint8_t { kWhole, kMicroBatches, kRecomputing };

// Of a block of consecutive groups what it reads is kept, and all else is made again. Of n groups,
// about √n blocks keep the least (Chen et al. 2016); where blocks are of very unequal size, more.
void recompute_in_blocks(const cost::Problem& problem, std::vector<Strategy>& strategies,
                         std::vector<std::string>& names) {
  const std::size_t groups = problem.grouping.count();
  const auto root = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(groups))));
  const std::size_t uniform = strategies.size();
  std::vector<Strategy> made;
  std::vector<std::string> made_names;
  for (std::size_t blocks : {root, std::min(4 * root, groups)}) {
    for (std::size_t i = 0; i < uniform; ++i) {
      Strategy strategy = strategies[i];
      compiler::UnitDecision decision = strategy.units[UnitId(0)];  // all are alike
      decision.recompute = true;
      strategy.units = IdVector<UnitId, compiler::UnitDecision>(blocks, decision);
      strategy.unit_of_op.resize(problem.graph->op_count());
      for (OpId op : problem.graph->op_ids()) {
        strategy.unit_of_op[op] = UnitId(problem.grouping.group_of[op].value() * blocks / groups);
      }
      made.push_back(std::move(strategy));
      made_names.push_back(names[i]);
    }
  }
  strategies = std::move(made);
  names = std::move(made_names);
}

class Tries {
 public:
  Tries(const cost::Problem& problem, const loading::ProblemOptions& options,
        const graph::KnownBatches& known, std::function<bool()> stopped)
      : problem_(problem), options_(options), known_(known), stopped_(std::move(stopped)) {}

  // The batch itself where it fits in this way, else the largest that does.
  std::optional<Fit> best(Way way) const {
    if (way != Way::kWhole) {
      if (auto fit = at(problem_.batch, way)) return fit;
    }
    std::optional<Fit> best;
    std::int64_t fits = known_.smallest() - 1, too_large = problem_.batch;
    while (fits + 1 < too_large) {
      std::int64_t middle = fits + (too_large - fits) / 2;
      if (const auto known = known_.last(middle); known && *known > fits) {
        middle = *known;
      } else if (const std::int64_t next = known_.next(middle); next > fits && next < too_large) {
        middle = next;
      } else {
        break;
      }
      if (auto fit = at(middle, way)) {
        best = fit;
        fits = middle;
      } else {
        too_large = middle;
      }
    }
    return best;
  }

 private:
  std::optional<Fit> at(std::int64_t batch, Way way) const {
    std::unique_ptr<const cost::Problem> made;
    if (batch != problem_.batch) made = loading::at_batch(problem_, options_, batch);
    const cost::Problem& problem = made ? *made : problem_;
    ThreadPool threads(1);
    oracle::SimulatedOracle oracle(problem, threads, loading::compile_options(options_), stopped_);
    oracle::BatchEvaluator evaluator(oracle);
    for (std::int64_t parts = way == Way::kMicroBatches ? 2 : 1;
         parts <= std::min(batch, way == Way::kMicroBatches ? kMostMicroBatches : 1); parts *= 2) {
      std::vector<Strategy> strategies;
      std::vector<std::string> names;
      for (planner::NamedStrategy& one : planner::baseline_strategies(problem)) {
        const bool cheap = one.name == "ev-ar" || one.name == "cp-ar" || one.name == "single";
        if (!cheap || one.strategy.order != compiler::OrderPolicy::kRank) continue;
        strategies.push_back(std::move(one.strategy));
        names.push_back(std::move(one.name));
      }
      if (way == Way::kRecomputing) recompute_in_blocks(problem, strategies, names);
      for (Strategy& strategy : strategies) {
        if (parts > 1) strategy = compiler::accumulate(problem, strategy, parts);
      }
      std::optional<Fit> fit;
      const std::vector<oracle::Measured> measured = evaluator.evaluate(strategies);
      for (std::size_t i = 0; i < measured.size(); ++i) {
        const oracle::Evaluation& now = measured[i].evaluation;
        if (!now.feasible || (fit && fit->step <= now.step)) continue;
        fit = Fit{.batch = batch, .micro_batches = parts, .step = now.step, .planner = names[i]};
      }
      if (fit) return fit;
    }
    return std::nullopt;
  }

  const cost::Problem& problem_;
  const loading::ProblemOptions& options_;
  const graph::KnownBatches& known_;
  const std::function<bool()> stopped_;
};

std::string step_of(const Fit& fit) { return explain::step_text(fit.batch, fit.step); }

explain::OrderedJson fit_json(const std::optional<Fit>& fit) {
  if (!fit) return nullptr;
  return {{"batch", fit->batch},
          {"micro_batches", fit->micro_batches},
          {"step_seconds", to_seconds(fit->step)},
          {"planner", fit->planner}};
}

}  // namespace

WhatFits what_fits(const cost::Problem& problem, const loading::ProblemOptions& options,
                   const graph::KnownBatches& known, const std::function<bool()>& stopped) {
  const Tries tries(problem, options, known, stopped);
  return {.asked = problem.batch,
          .whole = tries.best(Way::kWhole),
          .micro_batches = tries.best(Way::kMicroBatches),
          .recomputing = tries.best(Way::kRecomputing)};
}

std::string what_fits_text(const WhatFits& fits) {
  std::string text = "a smaller batch       ";
  text += fits.whole ? fmt::format("fits up to {} ({})\n", fits.whole->batch, step_of(*fits.whole))
                     : "does not fit either, by plain data parallelism or on one device\n";
  text += "micro-batches         ";
  if (!fits.micro_batches) {
    text += "do not help\n";
  } else if (fits.micro_batches->batch == fits.asked) {
    text += fmt::format("fit from {} on ({}): --planner {} --accumulate {}\n",
                        fits.micro_batches->micro_batches, step_of(*fits.micro_batches),
                        fits.micro_batches->planner, fits.micro_batches->micro_batches);
  } else {
    text += fmt::format("allow batch {}, in {} ({})\n", fits.micro_batches->batch,
                        fits.micro_batches->micro_batches, step_of(*fits.micro_batches));
  }
  text += "forward passes again  ";
  if (!fits.recomputing) return text + "for the backward pass do not help\n";
  return text + fmt::format("for the backward pass allow batch {} ({})\n", fits.recomputing->batch,
                            step_of(*fits.recomputing));
}

explain::OrderedJson what_fits_json(const WhatFits& fits) {
  return {{"whole", fit_json(fits.whole)},
          {"micro_batches", fit_json(fits.micro_batches)},
          {"recomputing", fit_json(fits.recomputing)}};
}

}  // namespace heterog::cli
