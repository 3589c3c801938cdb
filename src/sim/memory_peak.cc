// Replays a timeline to the peak of each device, and says what is held there.
#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "base/csr.h"
#include "sim/memory.h"
#include "sim/prepared_plan.h"

namespace heterog::sim {
namespace {

using compiler::Plan;
using compiler::TaskKind;
using graph::Phase;
using graph::TensorRole;

// Tells its listener when each task starts and ends, in the order in which the simulator does it.
class Replay {
 public:
  using Listener = std::function<void(TaskId)>;
  Replay(const Plan& plan, const SimResult& result) : plan_(plan), result_(result) {
    prepared_.prepare(plan);
    for (TaskId task : plan.task_ids()) {
      if (plan.duration[task] > 0) by_end_.push_back(task);
    }
    std::stable_sort(by_end_.begin(), by_end_.end(),
                     [&](TaskId a, TaskId b) { return result.end[a] < result.end[b]; });
  }

  void run(const Listener& started, const Listener& ended) {
    std::uint32_t round = 1;
    IdVector<TaskId, std::uint32_t> woken_in(plan_.task_count(), 0);
    // Of each stream: the round in which something of no time started, for whose end what takes
    // time waits.
    std::vector<std::uint32_t> passed_in(prepared_.streams, 0);
    const auto stream_of = [&](TaskId task) { return prepared_.tasks[task.value()].lane; };
    const auto waited = [&](TaskId task) {
      return stream_of(task) < passed_in.size() && passed_in[stream_of(task)] == round;
    };
    std::vector<TaskId> instant;  // tasks of no time that started in this round of this moment
    Nanoseconds moment = 0;
    std::size_t next_end = 0;
    const auto end_instant = [&] {
      for (TaskId task : instant) ended(task);
      instant.clear();
      ++round;
    };
    for (TaskId task : result_.dispatch) {
      const Nanoseconds now = result_.start[task];
      if (now > moment || woken_in[task] == round || (plan_.duration[task] > 0 && waited(task))) {
        end_instant();
      }
      moment = now;
      for (; next_end < by_end_.size() && result_.end[by_end_[next_end]] <= now; ++next_end) {
        ended(by_end_[next_end]);
      }
      started(task);
      if (plan_.duration[task] > 0) continue;
      instant.push_back(task);
      for (TaskId next : plan_.successors[task]) woken_in[next] = round;
      if (stream_of(task) < passed_in.size()) passed_in[stream_of(task)] = round;
    }
  }

 private:
  const Plan& plan_;
  const SimResult& result_;
  PreparedPlan prepared_;
  std::vector<TaskId> by_end_;
};

// What is live, and the largest that each device has come to.
class Ledger {
 public:
  explicit Ledger(const Plan& plan) : plan_(plan), left_(plan.readers), live_(plan.device_count) {
    for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
      live_[device] = plan.static_memory[device].total();
    }
    peak_ = live_;
    at_.assign(plan.device_count, TaskId());
  }
  void start(TaskId task) {
    add(plan_.device[task], plan_.workspace[task]);
    for (BufferId buffer : plan_.allocates[task]) {
      add(plan_.buffers[buffer].device, plan_.buffers[buffer].bytes);
    }
    note(plan_.device[task], task);
    for (BufferId buffer : plan_.allocates[task]) note(plan_.buffers[buffer].device, task);
  }
  // Calls `released` with each buffer that is given back.
  template <class Released>
  void end(TaskId task, const Released& released) {
    add(plan_.device[task], -plan_.workspace[task]);
    const auto release = [&](BufferId buffer) {
      add(plan_.buffers[buffer].device, -plan_.buffers[buffer].bytes);
      released(buffer);
    };
    for (BufferId buffer : plan_.reads[task]) {
      if (--left_[buffer] == 0) release(buffer);
    }
    for (BufferId buffer : plan_.allocates[task]) {
      if (plan_.readers[buffer] == 0) release(buffer);
    }
  }
  // The task whose start brought the device to its peak; invalid: none did.
  const IdVector<DeviceId, TaskId>& at() const { return at_; }

 private:
  void add(DeviceId device, Bytes bytes) { live_[device] += bytes; }
  void note(DeviceId device, TaskId task) {
    if (live_[device] <= peak_[device]) return;
    peak_[device] = live_[device];
    at_[device] = task;
  }
  const Plan& plan_;
  IdVector<BufferId, std::uint32_t> left_;
  IdVector<DeviceId, Bytes> live_, peak_;
  IdVector<DeviceId, TaskId> at_;
};

// What a buffer is for, from the tensor in it and from who reads it.
class Purposes {
 public:
  Purposes(const cost::Problem& problem, const Plan& plan, const SimResult& result)
      : plan_(plan),
        graph_(*problem.graph),
        is_gradient_(graph_.tensor_count(), 0),
        kept_for_backward_(plan.buffers.size(), 0),
        until_(plan.buffers.size()) {
    for (TensorId tensor : graph_.tensor_ids()) {
      const graph::Tensor& info = graph_.tensor(tensor);
      if (info.role == TensorRole::kGradient && info.of.valid())
        is_gradient_[graph_.root(tensor)] = 1;
    }
    for (TaskId task : result.dispatch) {
      for (BufferId buffer : plan.allocates[task]) until_[buffer] = task;
    }
    for (TaskId task : result.dispatch) {
      const bool backward = plan.kind[task] == TaskKind::kCompute &&
                            graph_.op(plan.op[task]).phase != Phase::kForward;
      for (BufferId buffer : plan.reads[task]) {
        if (backward) kept_for_backward_[buffer] = 1;
        if (result.end[task] >= result.end[until_[buffer]]) until_[buffer] = task;
      }
    }
  }

  TaskId until(BufferId buffer) const { return until_[buffer]; }
  MemoryPurpose of(BufferId buffer, TaskId maker) const {
    const TensorId tensor = plan_.buffers[buffer].tensor;
    if (!tensor.valid()) return MemoryPurpose::kTemporaries;
    if (is_gradient_[graph_.root(tensor)]) {
      return compiler::is_collective(plan_.kind[maker]) ? MemoryPurpose::kBuckets
                                                        : MemoryPurpose::kGradients;
    }
    const OpId producer = graph_.tensor(graph_.root(tensor)).producer;
    const bool forward = producer.valid() && graph_.op(producer).phase == Phase::kForward;
    return forward && kept_for_backward_[buffer] ? MemoryPurpose::kActivations
                                                 : MemoryPurpose::kTemporaries;
  }

 private:
  const Plan& plan_;
  const graph::ModelGraph& graph_;
  IdVector<TensorId, std::uint8_t> is_gradient_;  // of the tensor that holds the memory
  IdVector<BufferId, std::uint8_t> kept_for_backward_;
  IdVector<BufferId, TaskId> until_;
};

MemoryPeak resident(const compiler::StaticMemory& memory) {
  MemoryPeak peak;
  const auto set = [&](MemoryPurpose purpose, Bytes bytes) {
    peak.bytes[static_cast<std::size_t>(purpose)] = bytes;
  };
  set(MemoryPurpose::kParameters, memory.parameters);
  set(MemoryPurpose::kOptimizerState, memory.optimizer_state);
  set(MemoryPurpose::kBuffers, memory.buffers);
  set(MemoryPurpose::kReserve, memory.reserve);
  return peak;
}

void hold(MemoryPeak& peak, const HeldMemory& held) {
  if (held.bytes == 0) return;
  peak.bytes[static_cast<std::size_t>(held.purpose)] += held.bytes;
  peak.held.push_back(held);
}

// Of each device, so that a look at one is not a walk through all.
Csr<DeviceId, TaskId> with_workspace(const Plan& plan) {
  std::vector<std::pair<DeviceId, TaskId>> pairs;
  for (TaskId task : plan.task_ids()) {
    if (plan.workspace[task] > 0) pairs.emplace_back(plan.device[task], task);
  }
  return Csr<DeviceId, TaskId>::from_pairs(plan.device_count, pairs);
}

Csr<DeviceId, BufferId> by_device(const Plan& plan) {
  std::vector<std::pair<DeviceId, BufferId>> pairs;
  pairs.reserve(plan.buffers.size());
  for (BufferId buffer : id_range<BufferId>(plan.buffers.size())) {
    pairs.emplace_back(plan.buffers[buffer].device, buffer);
  }
  return Csr<DeviceId, BufferId>::from_pairs(plan.device_count, pairs);
}

}  // namespace

std::string_view memory_purpose_name(MemoryPurpose purpose) {
  static constexpr std::array<std::string_view, kMemoryPurposeCount> kNames = {
      "parameters",  "optimizer_state", "buffers", "reserve",  "gradients",
      "activations", "temporaries",     "buckets", "workspace"};
  return kNames[static_cast<std::size_t>(purpose)];
}

Bytes MemoryPeak::total() const { return std::accumulate(bytes.begin(), bytes.end(), Bytes{0}); }

// Two passes: the first finds the task that makes each peak, the second stops there and looks.
IdVector<DeviceId, MemoryPeak> memory_peaks(const cost::Problem& problem, const Plan& plan,
                                            const SimResult& result) {
  Ledger ledger(plan);
  Replay(plan, result)
      .run([&](TaskId task) { ledger.start(task); },
           [&](TaskId task) { ledger.end(task, [](BufferId) {}); });
  IdVector<DeviceId, MemoryPeak> peaks(plan.device_count);
  IdVector<TaskId, std::uint8_t> makes_a_peak(plan.task_count(), 0);
  for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
    peaks[device] = resident(plan.static_memory[device]);
    peaks[device].task = ledger.at()[device];
    if (!peaks[device].task.valid()) continue;
    peaks[device].time = result.start[peaks[device].task];
    makes_a_peak[peaks[device].task] = 1;
  }

  const Purposes purposes(problem, plan, result);
  Ledger again(plan);
  IdVector<BufferId, TaskId> maker(plan.buffers.size());  // of live buffers
  IdVector<TaskId, std::uint8_t> running(plan.task_count(), 0);
  const Csr<DeviceId, TaskId> tasks_of = with_workspace(plan);
  const Csr<DeviceId, BufferId> buffers_of = by_device(plan);
  const auto look = [&](DeviceId device) {
    MemoryPeak& peak = peaks[device];
    for (TaskId task : tasks_of[device]) {
      if (!running[task]) continue;
      hold(peak, {plan.workspace[task], MemoryPurpose::kWorkspace, TensorId(), task, task});
    }
    for (BufferId buffer : buffers_of[device]) {
      if (!maker[buffer].valid()) continue;
      hold(peak, {plan.buffers[buffer].bytes, purposes.of(buffer, maker[buffer]),
                  plan.buffers[buffer].tensor, maker[buffer], purposes.until(buffer)});
    }
    std::stable_sort(
        peak.held.begin(), peak.held.end(), [](const HeldMemory& a, const HeldMemory& b) {
          return std::tie(b.bytes, a.maker, a.tensor) < std::tie(a.bytes, b.maker, b.tensor);
        });
  };
  Replay(plan, result)
      .run(
          [&](TaskId task) {
            again.start(task);
            running[task] = 1;
            for (BufferId buffer : plan.allocates[task]) maker[buffer] = task;
            if (!makes_a_peak[task]) return;
            for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
              if (peaks[device].task == task) look(device);
            }
          },
          [&](TaskId task) {
            running[task] = 0;
            again.end(task, [&](BufferId buffer) { maker[buffer] = TaskId(); });
          });
  return peaks;
}

}  // namespace heterog::sim
