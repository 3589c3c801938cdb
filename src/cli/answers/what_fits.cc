// Simulates what is tried at other batches, and says what came of it.
#include "cli/answers/what_fits.h"

#include <fmt/format.h>

#include <memory>

#include "base/thread_pool.h"
#include "explain/work.h"
#include "loading/other_batch.h"
#include "oracle/simulated_oracle.h"

namespace heterog::cli {

namespace {

std::string step_of(const search::Fit& fit) { return explain::step_text(fit.batch, fit.step); }

explain::OrderedJson fit_json(const std::optional<search::Fit>& fit) {
  if (!fit) return nullptr;
  return {{"batch", fit->batch},
          {"micro_batches", fit->micro_batches},
          {"step_seconds", to_seconds(fit->step)},
          {"planner", fit->planner}};
}

}  // namespace

search::WhatFits what_fits(const cost::Problem& problem, const loading::ProblemOptions& options,
                           const graph::KnownBatches& known, const std::function<bool()>& stopped) {
  ThreadPool threads(1);
  const search::OtherBatches others{
      .problem_at = [&](std::int64_t batch) { return loading::at_batch(problem, options, batch); },
      .oracle_of =
          [&](const cost::Problem& at) {
            return std::make_unique<oracle::SimulatedOracle>(
                at, threads, loading::compile_options(options), stopped);
          }};
  return search::what_fits(problem, known, others);
}

std::string what_fits_text(const search::WhatFits& fits) {
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

explain::OrderedJson what_fits_json(const search::WhatFits& fits) {
  return {{"whole", fit_json(fits.whole)},
          {"micro_batches", fit_json(fits.micro_batches)},
          {"recomputing", fit_json(fits.recomputing)}};
}

}  // namespace heterog::cli
