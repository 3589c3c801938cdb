// Discrete-event simulation of a plan: when every task runs, and what memory it takes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/plan.h"
#include "decide/strategy.h"

namespace heterog::sim {

// Where memory first ran out, in order of simulated time.
struct OutOfMemory {
  DeviceId device;
  TaskId task;              // invalid: what stays resident does not fit
  Bytes missing_bytes = 0;  // of that device at its peak over the whole step
};

struct SimResult {
  Nanoseconds step = 0;
  std::optional<OutOfMemory> out_of_memory;
  bool feasible() const { return !out_of_memory; }
  IdVector<DeviceId, Nanoseconds> device_busy;  // compute streams
  IdVector<DeviceId, Bytes> peak_bytes;         // static memory included
  IdVector<LinkId, Nanoseconds> link_busy;
  IdVector<LinkId, Bytes> link_bytes;
  // As HeteroG Fig. 8: the longest busy time of a compute stream and of a link.
  Nanoseconds computation = 0;
  Nanoseconds communication = 0;
  // Filled by simulate_timeline only.
  IdVector<TaskId, Nanoseconds> start;
  IdVector<TaskId, Nanoseconds> end;
  std::vector<TaskId> dispatch;  // tasks in order of start
};

// When a task gives back what it holds: its compute stream when it ends, which may be later than
// its duration says (Plan::drag).
inline Nanoseconds held_until(const compiler::Plan& plan, const SimResult& result, TaskId task,
                              const compiler::Hold& hold) {
  const bool computes =
      hold.resource.value() < plan.device_count && hold.duration == plan.duration[task];
  return computes ? result.end[task] : result.start[task] + hold.duration;
}

// A compiled plan with what its simulation gave.
struct Simulated {
  compiler::Plan plan;
  SimResult result;
};

// Simulates plans, one after another. Nothing of a plan carries over to the next but memory: one
// that it has seen is simulated again without an allocation. Not for several threads: keep one per
// thread.
//
//   Simulator simulator;
//   const SimResult& result = simulator.simulate(plan, strategy.order);
//   if (result.feasible() && result.step < best) ...
//
// Inside are two event loops, one by rank and one by time (fifo), and the result
// that both write: totals always, `start`, `end` and `dispatch` by simulate_timeline alone.
//
// Decision 8: at any moment, of the ready tasks whose resources are all free, the one that the plan
// gives the highest priority (by rank, unless the strategy has an order of its own) starts, until
// none can; nothing is pre-empted. A moment is: first every task that ends then ends, then tasks
// start; what takes no time ends at the same moment, which is then gone through again. Until it has
// ended, its compute stream begins nothing that takes time: what it makes ready may be more urgent.
// While a device takes part in a collective, or in a transfer that kernels move, what its compute
// stream runs goes on slower, by Plan::drag: once all of a moment has happened, what is left of it
// is scaled to the pace that the device has from then, to whole nanoseconds, rounded up. Under
// kFifo the time of becoming ready comes before the priority.
class Simulator {
 public:
  Simulator();
  ~Simulator();
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;
  // Scratch memory is kept between calls; the result is valid until the next one.
  const SimResult& simulate(const compiler::Plan& plan, decide::OrderPolicy order);
  const SimResult& simulate_timeline(const compiler::Plan& plan, decide::OrderPolicy order);

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

// With its own scratch and the timeline.
SimResult simulate(const compiler::Plan& plan,
                   decide::OrderPolicy order = decide::OrderPolicy::kRank);

}  // namespace heterog::sim
