// Branch and bound over placements, then all pipelines.
#include "search/engines/exact.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"
#include "decide/decisions.h"
#include "search/engines/best_so_far.h"
#include "search/engines/exact_ops.h"
#include "search/pipeline/stage_strategy.h"
#include "space/action_space.h"

namespace heterog::search {
namespace {

using decide::Pattern;
using decide::Strategy;
using space::ActionId;

constexpr std::size_t kMostDevices = 4;
using Best = BestSoFar;

// ---- placements ----

class Placements {
 public:
  Placements(Best& best, std::size_t units)
      : best_(best),
        chain_(make_chain(best.problem(), units)),
        actions_(best.problem()),
        chosen_(chain_.layers.size()) {
    for (std::size_t unit = 0; unit < chain_.layers.size(); ++unit) {
      auto& of_unit = loads_.emplace_back();
      for (ActionId action : actions_.ids())
        of_unit.push_back(load(unit, actions_.decision(action)));
    }
    // At the least, of each unit and all behind it.
    rest_.assign(chain_.layers.size() + 1, 0);
    for (std::size_t unit = chain_.layers.size(); unit-- > 0;) {
      Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
      for (const Load& one : loads_[unit]) least = std::min(least, one.together());
      rest_[unit] = rest_[unit + 1] + least;
    }
  }

  std::size_t units() const { return chain_.layers.size(); }
  double count() const {
    double all = decide::kSearchedOrders.size();
    for (std::size_t unit = 0; unit < units(); ++unit) all *= static_cast<double>(actions_.size());
    return all;
  }

  void search() {
    // Alike everywhere first: what these take cuts most branches off.
    for (ActionId action : actions_.ids()) {
      std::ranges::fill(chosen_, action);
      ask();
    }
    best_.flush();
    branch(0, Load{std::vector<Nanoseconds>(best_.problem().cluster->device_count(), 0)});
    best_.flush();
  }

 private:
  // What each device computes.
  struct Load {
    std::vector<Nanoseconds> of_device;
    Nanoseconds together() const {
      Nanoseconds sum = 0;
      for (Nanoseconds one : of_device) sum += one;
      return sum;
    }
  };

  // Of ops that run on the unit's slices whatever others decide: not of those that read what only
  // another unit's slice has.
  Load load(std::size_t unit, const decide::UnitDecision& decision) const {
    const cost::Problem& problem = best_.problem();
    Load made{std::vector<Nanoseconds>(problem.cluster->device_count(), 0)};
    const auto slices = decide::slice_batch(decision.replicas, problem.batch);
    for (OpId op : problem.folded->ops) {
      if (chain_.layer_of[op] != unit || !problem.splits->sliceable[op] ||
          problem.graph->op(op).phase == graph::Phase::kUpdate) {
        continue;
      }
      const bool bound = std::ranges::any_of(problem.folded->reads[op], [&](const auto& read) {
        return read.producer.valid() &&
               (read.use == graph::OperandUse::kLocal || read.use == graph::OperandUse::kPartial);
      });
      if (bound) continue;
      for (const decide::Slice& slice : slices) {
        const DeviceTypeId type = problem.cluster->device(slice.device).type;
        made.of_device[slice.device.value()] += problem.costs.duration(op, type, slice.size());
      }
    }
    return made;
  }

  void ask() {
    Strategy strategy;
    for (OpId op : best_.problem().graph->op_ids()) {
      strategy.unit_of_op.push_back(UnitId(chain_.layer_of[op]));
    }
    for (ActionId action : chosen_) strategy.units.push_back(actions_.decision(action));
    for (decide::OrderPolicy order : decide::kSearchedOrders) {
      strategy.order = order;
      best_.ask(strategy);
    }
  }

  void branch(std::size_t unit, const Load& before) {
    if (best_.stops()) return;
    Nanoseconds busiest = 0;
    for (Nanoseconds one : before.of_device) busiest = std::max(busiest, one);
    const auto devices = static_cast<Nanoseconds>(before.of_device.size());
    if (best_.excludes(std::max(busiest, (before.together() + rest_[unit]) / devices))) return;
    if (unit == units()) return ask();
    for (ActionId action : actions_.ids()) {
      chosen_[unit] = action;
      Load with = before;
      const Load& own = loads_[unit][action.value()];
      for (std::size_t d = 0; d < with.of_device.size(); ++d) with.of_device[d] += own.of_device[d];
      branch(unit + 1, with);
    }
  }

  Best& best_;
  Chain chain_;
  space::ActionSpace actions_;
  std::vector<ActionId> chosen_;          // of each unit
  std::vector<std::vector<Load>> loads_;  // [unit][action]
  std::vector<Nanoseconds> rest_;
};

// ---- pipelines ----

// Calls `visit` with every cut of `layers` layers into `count` stages.
template <class Visit>
void each_cut(std::size_t layers, std::size_t count, std::vector<std::size_t>& ends, Visit visit) {
  if (ends.size() + 1 == count) {
    ends.push_back(layers);
    visit(ends);
    ends.pop_back();
    return;
  }
  const std::size_t before = ends.empty() ? 0 : ends.back();
  for (std::size_t end = before + 1; end + (count - ends.size() - 1) <= layers; ++end) {
    ends.push_back(end);
    each_cut(layers, count, ends, visit);
    ends.pop_back();
  }
}

void try_all_pipelines(Best& best, std::size_t layers) {
  const cost::Problem& problem = best.problem();
  const Chain chain = make_chain(problem, layers);
  LayerTimes times(problem, chain);
  const bool strict = in_line(problem, chain);
  const std::size_t devices = problem.cluster->device_count();
  for (std::int64_t micro_batches : decide::kFewPipelineParts) {
    if (micro_batches > problem.batch) continue;
    const StageCosts costs(times, micro_batches, false);
    for (std::size_t count = 2; count <= std::min(devices, chain.layers.size()); ++count) {
      // Every device in one stage, or, as stage `count`, in none.
      std::vector<std::size_t> stage_of(devices, 0);
      do {
        std::vector<std::vector<DeviceId>> of_stage(count + 1);
        for (std::size_t d = 0; d < devices; ++d) of_stage[stage_of[d]].push_back(DeviceId(d));
        const bool all = std::all_of(of_stage.begin(), of_stage.begin() + static_cast<long>(count),
                                     [](const auto& of) { return !of.empty(); });
        std::vector<std::size_t> ends;
        if (all) {
          each_cut(chain.layers.size(), count, ends, [&](const std::vector<std::size_t>& at) {
            Pipelines pipelines(1);
            for (std::size_t s = 0; s < count; ++s) {
              pipelines[0].push_back({s == 0 ? 0 : at[s - 1], at[s], of_stage[s]});
            }
            for (Pattern pattern :
                 {Pattern::kForwardFirst, Pattern::kOneForwardOneBackward, Pattern::kListed}) {
              for (bool waits : {false, true}) {
                if (best.stops() || (waits && !strict)) continue;
                best.ask(stage_strategy(problem, chain, costs, pipelines,
                                        {micro_batches, pattern, waits, false}));
              }
            }
          });
        }
        // The next assignment, counted in base `count` + 1.
        std::size_t d = 0;
        while (d < devices && ++stage_of[d] > count) stage_of[d++] = 0;
        if (d == devices) break;
      } while (true);
    }
  }
  best.flush();
}

class Exact final : public Planner {
 public:
  explicit Exact(const ExactOptions& options) : options_(options) {}

  PlannerResult plan(PlannerContext& context) const override {
    const std::size_t devices = context.problem().cluster->device_count();
    VALIDATE(devices <= kMostDevices,
             "exact: {} devices; expected at most {}: all strategies are looked at", devices,
             kMostDevices);
    VALIDATE(options_.units > 0 || options_.layers > 0,
             "exact: units=0 and layers=0; expected one of them above 0");
    Best best(context);
    std::string over;
    if (options_.space == ExactSpace::kOps) {
      over = try_all_ops(best, static_cast<std::size_t>(std::max<std::int64_t>(1, options_.units)),
                         options_.orders);
      return std::move(best).finish(found_by(best, over));
    }
    if (options_.units > 0) {
      Placements placements(best, static_cast<std::size_t>(options_.units));
      placements.search();
      over = fmt::format("{:.0f} placements of {} units", placements.count(), placements.units());
    }
    if (options_.layers > 0 && best.complete()) {
      const std::int64_t before = best.asked();
      try_all_pipelines(best, static_cast<std::size_t>(options_.layers));
      over += fmt::format("{}{} pipelines of {} layers", over.empty() ? "" : " and ",
                          best.asked() - before, options_.layers);
    }
    return std::move(best).finish(found_by(best, over));
  }

 private:
  static std::string found_by(const Best& best, const std::string& over) {
    return best.complete() ? "exact: the best of " + over + ", not of all plans"
                           : fmt::format("exact, not finished: the best of {} tried", best.asked());
  }

  ExactOptions options_;
};

constexpr std::array<std::string_view, 2> kSpaces = {"blocks", "ops"};
constexpr std::array<std::string_view, 2> kOrdersTried = {"rank", "all"};
constexpr std::array<Field<ExactOptions>, 4> kExactFields = {
    {{"units", "consecutive layers that are placed each by itself; 0: no placements",
      IntegerField<ExactOptions>{&ExactOptions::units, {0, 12}}},
     {"layers", "that pipelines are cut from; 0: no pipelines",
      IntegerField<ExactOptions>{&ExactOptions::layers, {0, 6}}},
     {"space",
      "blocks: placements and pipelines; ops: each set of operators that stay together on one "
      "device, or, of more than 12, each of `units` stretches of layers",
      choice<ExactOptions, &ExactOptions::space>(kSpaces)},
     {"orders", "of space=ops: by rank, or every order of the operators on each device",
      choice<ExactOptions, &ExactOptions::orders>(kOrdersTried)}}};

}  // namespace

std::vector<PlannerEntry> exact_entries() {
  PlannerEntry entry = planner_entry<ExactOptions>(
      "exact",
      "the best of a small space, not of all plans: placements and pipelines of a few blocks",
      kExactFields, [](const ExactOptions& options) { return std::make_unique<Exact>(options); });
  entry.small_problems = true;
  return {entry};
}

}  // namespace heterog::search
