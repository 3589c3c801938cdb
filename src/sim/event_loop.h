// The event loop of a simulation, for one kind of order: streams, hold sets, memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "compiler/plan.h"
#include "decide/strategy.h"
#include "sim/event_tree.h"
#include "sim/prepared_plan.h"
#include "sim/ready_queue.h"
#include "sim/simulator.h"

namespace heterog::sim {

// Runs a plan in simulated time, in the order of decision 8 (see Simulator). Queue is RankQueue or
// FifoQueue: which of the ready tasks goes first. Simulator keeps one loop for each, and a loop
// keeps its memory from plan to plan:
//
//   EventLoop<RankQueue> loop;
//   SimResult result;
//   loop.run(plan, {.timeline = true}, result);
//
// run() goes from moment to moment: start_streams and start_sets start what can start, end_moment
// writes it down, the clock goes on to the earliest time of tree_, and end_all_at_now ends what
// ends there, which makes its successors ready. In between:
//
//   streams_[s]   ready tasks, and the one that runs: its end stands in slot s of tree_
//   sets_[h]      ready tasks that hold the same resources; the first of them is on trial in
//                 fronts_, or waits in waiting_[r] for resource r
//   events_       ends of tasks of hold sets and of those that take no time, and releases that
//                 someone waits for; the earliest stands in the last slot of tree_
//   live_[d]      bytes on device d now
//
// A collective, or a transfer that kernels move, adds its drag to its devices' compute streams
// while it lasts (change_drag). Once nothing more happens at a moment, what runs on a stream with
// another drag than before gets a new end: its slot of tree_ is set anew (settle_paces).
//
// Within a moment, what starts on a stream depends on that stream alone, and what starts of the
// hold sets on them alone; so the two are gone through one after the other. Only who is named as
// the first that does not fit, and the order in a timeline, depend on the order of starts across
// them: what started in a moment is noted and sorted where one of the two is asked for.
template <class Queue>
class EventLoop {
 public:
  struct Options {
    bool timeline = false;  // fill start, end and dispatch
  };
  void run(const compiler::Plan& plan, const Options& options, SimResult& result);

 private:
  // The end of a task or, with kWake, the release of a resource that someone waits for.
  struct Event {
    Nanoseconds time = 0;
    std::uint32_t id = 0;
    friend bool operator>(const Event& a, const Event& b) {
      return a.time != b.time ? a.time > b.time : a.id > b.id;
    }
  };
  static constexpr std::uint32_t kWake = 0x80000000;
  static constexpr std::uint32_t kNone = 0xffffffff;

  struct Stream {
    Queue ready;
    std::uint32_t running = kNone;
    bool touched = false;   // in touched_
    bool noted = false;     // in repaced_
    std::int32_t drag = 0;  // thousandths by which it is slower now
    std::int32_t pace = 0;  // and by which the end in tree_ has it
  };
  // Ready tasks that hold the same resources. Its first task waits at `blocked_by` with all others
  // behind it, or nowhere while the set is empty or on trial.
  struct HoldSet {
    Queue ready;
    std::uint32_t blocked_by = kNone;
    std::uint32_t first = kNone;  // the task that waits there
    bool touched = false;         // in touched_sets_
  };
  // The first task of a hold set, on trial or waiting. Stale once it is not the first any more.
  struct Front {
    Key key;
    std::uint32_t set = 0;
    std::uint32_t from = kNone;  // the resource at which it waited
    friend bool operator>(const Front& a, const Front& b) { return a.key > b.key; }
  };

  void reset(const compiler::Plan& plan, const Options& options, SimResult& result);
  void make_ready(std::uint32_t task);
  void touch(std::uint32_t stream);
  void prefetch_end(std::uint32_t task) const;
  void start_streams();
  void start_sets();
  std::uint32_t blocking_resource(std::uint32_t set) const;
  void wake_when_free(std::uint32_t resource);
  void try_front(const Front& front);
  void start_of_set(const Key& key);
  void note_pace(std::uint32_t stream);
  void change_drag(std::uint32_t task, int times);
  void settle_paces();
  void note_start(const Key& key);
  void take_memory(std::uint32_t task);
  void note_memory(std::uint32_t device);
  void end_moment();
  void name_first_that_does_not_fit();
  void end(std::uint32_t task);
  void end_all_at_now();

  const compiler::Plan* plan_ = nullptr;
  SimResult* result_ = nullptr;
  Options options_;
  bool drags_ = false;  // something slows computation
  Nanoseconds now_ = 0;
  std::size_t ended_ = 0;
  PreparedPlan prepared_;
  // Rows and columns of the plan and of prepared_, without the way through them.
  TaskRecord* tasks_ = nullptr;
  BufferRecord* buffers_ = nullptr;
  const Nanoseconds* duration_ = nullptr;
  const std::uint32_t* read_rows_ = nullptr;
  const BufferId* reads_ = nullptr;
  const std::uint32_t* successor_rows_ = nullptr;
  const TaskId* successors_ = nullptr;

  EventTree tree_;  // the end of what each stream runs; behind them the earliest event
  std::vector<Stream> streams_;
  std::vector<std::uint32_t> touched_;  // streams that may start something at this moment
  std::vector<std::uint32_t> stopped_;  // streams that ended a task at this moment
  std::vector<std::uint32_t> repaced_;  // streams whose drag may be another than their pace

  MinHeap<Event> events_;
  std::vector<HoldSet> sets_;
  std::vector<std::uint32_t> touched_sets_;  // with tasks that became ready
  std::vector<Nanoseconds> free_at_;         // [resource], of hold sets
  std::vector<Nanoseconds> wake_at_;         // [resource], the last wake-up asked for
  std::vector<MinHeap<Front>> waiting_;      // [resource]
  std::vector<std::uint32_t> freed_;         // resources freed at this moment
  MinHeap<Front> fronts_;                    // on trial, first in order first

  std::vector<Key> started_;  // in this moment
  std::vector<Bytes> live_;   // [device]
  bool overflowed_ = false;   // in this moment, for the first time
};

extern template class EventLoop<RankQueue>;
extern template class EventLoop<FifoQueue>;

}  // namespace heterog::sim
