// A few cuts at a time, so that a budget of seconds may end in between.
#include "search/pipeline/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/log.h"

namespace heterog::search {
namespace {

using decide::Pattern;
using One = TriedPipelines::One;

constexpr std::size_t kAtATime = 8;
// Other turns make a pipeline faster by 4 % at most where that was looked at.
constexpr double kTurnsGain = 1.05;

std::vector<One> best_first(std::vector<One> all) {
  std::ranges::stable_sort(all, better, &One::evaluation);
  return all;
}

// Each once, in the order given; so many at most, and none of a step that is longer.
std::vector<const Cut*> first_cuts(const std::vector<One>& all, std::size_t count, double longest) {
  std::vector<const Cut*> found;
  for (const One& one : all) {
    const bool known = std::ranges::find(found, one.cut) != found.end();
    const bool wanted = !known && to_seconds(one.evaluation.step) <= longest;
    if (wanted && found.size() < count) found.push_back(one.cut);
  }
  return found;
}

}  // namespace

double Trials::simulate(const std::vector<const Cut*>& given, const Staging& how) {
  const std::size_t before = tried_.all.size();
  for (auto next = given.begin(); next != given.end();) {
    if (!tried_.all.empty() && evaluator_.spent()) break;
    const auto left = std::max<std::int64_t>(1, evaluator_.evaluations_left());
    const auto most = std::min(kAtATime, static_cast<std::size_t>(left));
    const double at_most = shortest_that_fits();
    std::vector<const Cut*> chosen;
    for (; next != given.end() && chosen.size() < most; ++next) {
      if ((*next)->busiest <= at_most) chosen.push_back(*next);
    }
    simulate_all(chosen, how);
  }
  double shortest = kNoStep;
  for (const One& one : std::span(tried_.all).subspan(before)) {
    shortest = std::min(shortest, to_seconds(one.evaluation.step));
  }
  return shortest;
}

bool Trials::tied_together() const {
  const auto shortest =
      std::ranges::min_element(tried_.all, {}, [](const One& one) { return one.evaluation.step; });
  return shortest != tried_.all.end() && shortest->tied_together;
}

std::vector<const Cut*> Trials::unknown(std::vector<const Cut*> cuts) const {
  std::erase_if(cuts, [&](const Cut* cut) {
    return std::ranges::find(tried_.all, cut, &One::cut) != tried_.all.end();
  });
  return cuts;
}

std::vector<const Cut*> Trials::best(std::size_t count) const {
  return first_cuts(best_first(tried_.all), count, kTurnsGain * shortest_that_fits());
}

const Cut* Trials::best_of(const std::vector<const Cut*>& cuts) const {
  for (const One& one : best_first(tried_.all)) {
    if (std::ranges::find(cuts, one.cut) != cuts.end()) return one.cut;
  }
  return nullptr;
}

std::vector<const Cut*> Trials::shortest_steps(std::size_t count) const {
  std::vector<One> all = tried_.all;
  std::ranges::stable_sort(all, {}, [](const One& one) { return one.evaluation.step; });
  return first_cuts(all, count, kNoStep);
}

std::vector<const Cut*> Trials::fastest(std::size_t count) const {
  std::vector<const Cut*> found;
  for (const One& one : best_first(tried_.all)) {
    const bool known = std::ranges::any_of(found, [&](const Cut* cut) {
      return cut->line == one.cut->line && cut->stages.size() == one.cut->stages.size();
    });
    if (!known && found.size() < count) found.push_back(one.cut);
  }
  return found;
}

std::vector<const Cut*> Trials::alike(const std::vector<const Cut*>& cuts, double seconds,
                                      const PipelineLimits& limits) const {
  std::vector<const Cut*> known;
  for (const One& one : tried_.all) known.push_back(one.cut);
  return tried_.pool.alike(cuts, known, seconds, limits);
}

void Trials::simulate_all(const std::vector<const Cut*>& chosen, const Staging& how) {
  std::vector<decide::Strategy> strategies;
  for (const Cut* cut : chosen) {
    strategies.push_back(tried_.pool.strategy(evaluator_.problem(), *cut, how));
  }
  const std::vector<Measured> measured = evaluator_.evaluate(strategies);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    logger().debug(
        "pipeline of {} stages, {} micro-batches{}{}{}: estimate {:.4f} s, of which the busiest "
        "stage computes {:.4f} s, step {:.4f} s{}",
        chosen[i]->stages.size(), tried_.pool.parts_of(*chosen[i]),
        how.pattern == Pattern::kOneForwardOneBackward
            ? ""
            : fmt::format(", {}", decide::pattern_name(how.pattern)),
        how.strict          ? ", strictly"
        : how.tied_together ? ", tied together"
                            : "",
        chosen[i]->recompute ? ", forward passes again" : "", chosen[i]->seconds,
        chosen[i]->busiest, to_seconds(measured[i].evaluation.step),
        measured[i].evaluation.feasible ? "" : ", does not fit in memory");
    tried_.all.push_back(
        {chosen[i], std::move(strategies[i]), measured[i].evaluation, how.tied_together});
  }
}

double Trials::shortest(bool that_fits) const {
  double seconds = kNoStep;
  for (const One& one : tried_.all) {
    if (one.evaluation.feasible || !that_fits) {
      seconds = std::min(seconds, to_seconds(one.evaluation.step));
    }
  }
  return seconds;
}

}  // namespace heterog::search
