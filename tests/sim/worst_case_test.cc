// How far list scheduling can be from the best schedule: the worst case of HeteroG's appendix, and
// its bound on small plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "compiler/order.h"
#include "compiler/plan_builder.h"
#include "sim/bounds.h"
#include "sim/simulator.h"

namespace heterog::sim {
namespace {

using compiler::Hold;
using compiler::Plan;
using compiler::PlanBuilder;
using decide::OrderPolicy;

// The appendix's figure of the instance is lost; this is its text with the gaps filled. M devices
// and M² links are H resources. There are H−1 chains of k·H operations, operation n·H + h on
// resource h, and k lone operations of length p on resource H. Every operation is e long, but for
// one a chain and pass: chain j takes p on resource j. (The text needs that: it says that the best
// schedule has period p + (H−1)e, in which every resource is busy for one p.)
//
// The text lets ties be broken for the worst. Here on resource h chain h goes first of those whose
// p of this pass is still ahead (all of one rank), and of those that have it behind them (again of
// one rank) the first chain goes last. Ids of ops break ties, so they are numbered so.
class WorstCase {
 public:
  WorstCase(std::size_t devices, std::size_t passes, Nanoseconds p, Nanoseconds e)
      : devices_(devices), resources_(devices + devices * devices), passes_(passes), p_(p), e_(e) {
    const std::size_t chains = resources_ - 1;
    PlanBuilder builder(devices_, devices_ * devices_);
    builder.plan().batch = 1;
    std::vector<TaskId> last(chains);
    for (std::size_t pass = 0; pass < passes_; ++pass) {
      for (std::size_t h = 1; h <= resources_; ++h) {
        for (std::size_t j = 1; j <= chains; ++j) {
          const std::size_t tie = j >= h ? j : 2 * resources_ - j;
          const TaskId task =
              add(builder, (pass * resources_ + h) * 2 * resources_ + tie, h, j == h ? p_ : e_);
          if (last[j - 1].valid()) builder.depend(last[j - 1], task);
          last[j - 1] = task;
        }
      }
      add(builder, pass, resources_, p_);  // a lone one; its rank is p whatever the pass
    }
    plan_ = std::move(builder).finish();
    plan_.static_memory.assign(devices_, {});
    plan_.capacity.assign(devices_, 1);
    compiler::set_ranks(plan_);
  }
  const Plan& plan() const { return plan_; }

  // T_LS and T* as the appendix derives them.
  Nanoseconds formula() const {
    const auto k = static_cast<Nanoseconds>(passes_), h = static_cast<Nanoseconds>(resources_);
    return ((k - 1) * h + 1) * p_ + ((k - 1) * (2 * h - 3) + h - 1) * e_;
  }
  Nanoseconds optimum() const {
    const auto k = static_cast<Nanoseconds>(passes_), h = static_cast<Nanoseconds>(resources_);
    return k * (p_ + (h - 1) * e_) + (h - 2) * e_;
  }
  Nanoseconds work() const {
    return std::accumulate(plan_.duration.begin(), plan_.duration.end(), Nanoseconds{0});
  }

 private:
  TaskId add(PlanBuilder& builder, std::size_t op, std::size_t h, Nanoseconds duration) {
    PlanBuilder::Task task;
    task.op = OpId(op);
    task.device = DeviceId(0);
    task.end = 1;
    task.duration = duration;
    const TaskId id = builder.add_task(task);
    const Plan& plan = builder.plan();
    builder.hold(id, {h <= devices_ ? plan.compute_stream(DeviceId(h - 1))
                                    : plan.link(LinkId(h - 1 - devices_)),
                      duration});
    return id;
  }

  std::size_t devices_, resources_, passes_;
  Nanoseconds p_, e_;
  Plan plan_;
};

// Every resource runs its tasks in this one order and waits for the next of them, whatever else is
// ready. The order must be topological.
Nanoseconds strict_step(const Plan& plan, const std::vector<TaskId>& order) {
  IdVector<TaskId, Nanoseconds> ready(plan.task_count(), 0);
  std::vector<Nanoseconds> free_at(plan.resource_count(), 0);
  Nanoseconds step = 0;
  for (TaskId task : order) {
    Nanoseconds start = ready[task];
    for (const Hold& hold : plan.holds[task]) {
      start = std::max(start, free_at[hold.resource.value()]);
    }
    for (const Hold& hold : plan.holds[task]) {
      free_at[hold.resource.value()] = start + hold.duration;
    }
    const Nanoseconds end = start + plan.duration[task];
    for (TaskId next : plan.successors[task]) ready[next] = std::max(ready[next], end);
    step = std::max(step, end);
  }
  return step;
}

std::vector<TaskId> by_rank(const Plan& plan) {
  std::vector<TaskId> order(plan.task_count());
  for (TaskId task : plan.task_ids()) order[plan.priority[task]] = task;
  return order;
}

// A pass: chain h ends its p on resource h at h·p + (h−1)e, for the chain behind it comes from
// resource h−1 one e after chain h−1's p. After the last p, on resource H−1 at (H−1)p + (H−2)e, the
// H−2 chains that waited there follow, e each, and the last of them, chain 1, takes one more e on
// resource H: (H−1)p + (2H−3)e. The next pass begins with chain 1 on resource 1, where it goes
// first, so nothing overlaps. The k lone operations rank below the chains but for the chains' very
// last operations: they start when the last pass does, and the H−1 last operations follow.
TEST(WorstCase, StrictOrderByRankReachesTheFormula) {
  for (std::size_t devices : {2, 3}) {
    for (std::size_t passes : {12, 40}) {
      const WorstCase instance(devices, passes, 1000, 1);
      EXPECT_EQ(strict_step(instance.plan(), by_rank(instance.plan())), instance.formula());
    }
  }
  // H = 2 + 4: 40 passes are 5.93 times the best schedule.
  const WorstCase instance(2, 40, 1000, 1);
  EXPECT_EQ(instance.formula(), (39 * 6 + 1) * 1000 + (39 * 9 + 5));
  EXPECT_GT(static_cast<double>(instance.formula()), 5.8 * static_cast<double>(instance.optimum()));
}

// The best schedule lets the chains follow one another at a distance of e, the last first. It is a
// strict order too: by the moment at which each operation then starts.
TEST(WorstCase, TheBestScheduleIsOneOfAnotherStrictOrder) {
  const std::size_t devices = 2, h = 6, passes = 40;
  const Nanoseconds p = 1000, e = 1;
  const WorstCase instance(devices, passes, p, e);
  std::vector<std::pair<Nanoseconds, TaskId>> starts;
  // Tasks stand in the order of their making: pass, resource, chain; then the lone one.
  std::size_t task = 0;
  const Nanoseconds period = p + (h - 1) * e;
  for (std::size_t pass = 0; pass < passes; ++pass) {
    for (std::size_t at = 1; at <= h; ++at) {
      for (std::size_t chain = 1; chain < h; ++chain) {
        const Nanoseconds before = static_cast<Nanoseconds>(at - 1) * e + (at > chain ? p - e : 0);
        starts.emplace_back(static_cast<Nanoseconds>(pass) * period +
                                static_cast<Nanoseconds>(h - 1 - chain) * e + before,
                            TaskId(task++));
      }
    }
    // On resource H, before the chains of this pass come.
    starts.emplace_back(static_cast<Nanoseconds>(pass) * period + (pass > 0 ? (h - 2) * e : 0),
                        TaskId(task++));
  }
  std::sort(starts.begin(), starts.end());
  std::vector<TaskId> order;
  for (const auto& [start, id] : starts) order.push_back(id);
  EXPECT_EQ(strict_step(instance.plan(), order), instance.optimum());
}

// Decision 8 keeps no resource idle for a task that is yet to come. On resource 2 chain 1 goes on
// instead of waiting for chain 2, and the lone operations fill resource H from the start.
TEST(WorstCase, AnOrderThatKeepsNothingIdleStaysBelow) {
  const WorstCase instance(2, 40, 1000, 1);
  for (OrderPolicy order : {OrderPolicy::kRank, OrderPolicy::kFifo}) {
    const Nanoseconds step = simulate(instance.plan(), order).step;
    EXPECT_GE(step, instance.optimum());
    EXPECT_LT(step, instance.formula() * 2 / 3);
  }
}

// The shortest step: serial schedules of every topological order, of which the order of starts of
// a best schedule is one.
class BruteForce {
 public:
  explicit BruteForce(const Plan& plan) : plan_(plan), waiting_(plan.predecessors), best_(kNever) {}
  Nanoseconds best() {
    extend();
    return best_;
  }

 private:
  static constexpr Nanoseconds kNever = 1'000'000'000;
  void extend() {
    if (order_.size() == plan_.task_count()) {
      best_ = std::min(best_, strict_step(plan_, order_));
      return;
    }
    for (TaskId task : plan_.task_ids()) {
      if (waiting_[task] != 0) continue;
      waiting_[task] = kTaken;
      for (TaskId next : plan_.successors[task]) --waiting_[next];
      order_.push_back(task);
      extend();
      order_.pop_back();
      for (TaskId next : plan_.successors[task]) ++waiting_[next];
      waiting_[task] = 0;
    }
  }
  static constexpr std::uint32_t kTaken = 1u << 20;
  const Plan& plan_;
  IdVector<TaskId, std::uint32_t> waiting_;
  std::vector<TaskId> order_;
  Nanoseconds best_;
};

// T_LS ≤ Σ durations, for something always runs; Σ durations ≤ H·T*, for each task keeps at least
// one of the H resources in use busy for as long as it lasts.
TEST(WorstCase, BoundHoldsOnSmallPlans) {
  Rng rng(21);
  int above_best = 0;
  for (int round = 0; round < 1500; ++round) {
    const std::size_t devices = 1 + rng.below(2), links = rng.below(3), tasks = 1 + rng.below(7);
    PlanBuilder builder(devices, links);
    builder.plan().batch = 1;
    std::vector<std::uint8_t> used(builder.plan().resource_count(), 0);
    for (std::size_t i = 0; i < tasks; ++i) {
      PlanBuilder::Task spec;
      spec.op = OpId(i);
      spec.device = DeviceId(rng.below(devices));
      spec.end = 1;
      spec.duration = static_cast<Nanoseconds>(1 + rng.below(9));
      const TaskId task = builder.add_task(spec);
      std::vector<ResourceId> kinds;
      for (DeviceId d : id_range<DeviceId>(devices)) {
        kinds.push_back(builder.plan().compute_stream(d));
      }
      for (LinkId link : id_range<LinkId>(links)) kinds.push_back(builder.plan().link(link));
      const std::size_t first = rng.below(kinds.size()), second = rng.below(kinds.size());
      builder.hold(task, {kinds[first], spec.duration});
      used[kinds[first].value()] = 1;
      if (second != first && rng.below(2)) {
        const auto held = static_cast<Nanoseconds>(1 + rng.below(spec.duration));
        builder.hold(task, {kinds[second], held});
        used[kinds[second].value()] = 1;
      }
      for (std::size_t e = rng.below(3); e > 0 && i > 0; --e) {
        builder.depend(TaskId(rng.below(i)), task);
      }
    }
    Plan plan = std::move(builder).finish();
    plan.static_memory.assign(devices, {});
    plan.capacity.assign(devices, 1);
    compiler::set_ranks(plan);
    const Nanoseconds work =
        std::accumulate(plan.duration.begin(), plan.duration.end(), Nanoseconds{0});
    const Nanoseconds best = BruteForce(plan).best();
    const auto resources = std::count(used.begin(), used.end(), 1);
    EXPECT_LE(work, resources * best) << round;
    EXPECT_LE(bounds(plan).step(), best) << round;
    for (OrderPolicy order : {OrderPolicy::kRank, OrderPolicy::kFifo}) {
      const Nanoseconds step = simulate(plan, order).step;
      EXPECT_LE(best, step) << round;
      EXPECT_LE(step, work) << round;
      above_best += step > best;
    }
  }
  EXPECT_GT(above_best, 50);  // the plans are hard enough to tell a heuristic from the best
}

}  // namespace
}  // namespace heterog::sim
