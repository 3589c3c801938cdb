// Events for the edges of a program that go from queue to queue.
#include "runtime/exec/streams.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/check.h"
#include "comm/device_copies.h"

namespace heterog::runtime {
namespace {

std::size_t index_of(Queue queue) { return static_cast<std::size_t>(queue); }

// For each instruction, those of other queues that its stream must wait for: of one queue the last
// says it for all before it, and nobody waits twice.
IdVector<InstructionId, std::vector<InstructionId>> fewest_waits(
    const Program& program, const IdVector<InstructionId, std::size_t>& place) {
  IdVector<InstructionId, std::array<std::size_t, kQueueCount>> last(program.instructions.size());
  for (InstructionId id : id_range<InstructionId>(program.instructions.size())) {
    const std::size_t queue = index_of(program.instructions[id].queue);
    for (InstructionId woken : program.instructions[id].wakes) {
      last[woken][queue] = std::max(last[woken][queue], place[id] + 1);
    }
  }
  IdVector<InstructionId, std::vector<InstructionId>> waits(program.instructions.size());
  for (const auto& queue : program.queues) {
    std::array<std::size_t, kQueueCount> seen{};
    for (InstructionId id : queue) {
      for (std::size_t other = 0; other < kQueueCount; ++other) {
        if (last[id][other] <= seen[other]) continue;
        seen[other] = last[id][other];
        waits[id].push_back(program.queues[other][seen[other] - 1]);
      }
    }
  }
  return waits;
}

c10::EventFlag flag_of(bool timed) {
  return timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT;
}

std::vector<c10::Event> make_events(std::size_t count, c10::DeviceType type, c10::EventFlag flag) {
  std::vector<c10::Event> events;
  events.reserve(count);
  for (std::size_t i = 0; i < count; ++i) events.emplace_back(type, flag);
  return events;
}

}  // namespace

QueueStreams::QueueStreams(const Program& program, const Options& options)
    : program_(program),
      options_(options),
      device_(options.device.type()),
      is_awaited_(program.instructions.size(), options.record),
      far_behind_(program.instructions.size()),
      joined_(options.device.type()),
      inputs_(options.device.type()),
      ahead_(new_stream(false)),
      arrived_(options.device.type()) {
  IdVector<InstructionId, std::size_t> place(program.instructions.size());
  for (std::size_t queue = 0; queue < kQueueCount; ++queue) {
    // What others wait for goes before what is computed meanwhile.
    const bool urgent = queue != index_of(Queue::kCompute);
    streams_.push_back(new_stream(urgent));
    for (std::size_t i = 0; i < program.queues[queue].size(); ++i) {
      place[program.queues[queue][i]] = i;
    }
    place_marks(program.queues[queue]);
  }
  waits_ = fewest_waits(program, place);
  for (const std::vector<InstructionId>& waits : waits_) {
    for (InstructionId other : waits) is_awaited_[other] = true;
  }
  const std::size_t count = program.instructions.size();
  ends_ = make_events(count, options.device.type(), flag_of(options.record));
  if (options.record) begins_ = make_events(count, options.device.type(), flag_of(true));
  for (int i = 0; i < 2; ++i) {
    flights_.push_back({.begin = {options.device.type(), flag_of(true)},
                        .end = {options.device.type(), flag_of(true)},
                        .copied = {}});
  }
}

c10::Stream QueueStreams::new_stream(bool urgent) const {
  if (options_.streams) return options_.streams(urgent);
  return device_.getStreamFromGlobalPool(options_.device, urgent);
}

// An instruction is marked where a quarter of kAhead has gone by; what is launched behind waits for
// the last mark that leaves kAhead between them.
void QueueStreams::place_marks(const std::vector<InstructionId>& queue) {
  struct Mark {
    InstructionId instruction;
    std::size_t steps = 0;  // up to its end
  };
  std::vector<Mark> marks;
  std::size_t steps = 0, next = 0;
  for (InstructionId id : queue) {
    for (; next < marks.size() && marks[next].steps + kAhead <= steps; ++next) {
      far_behind_[id] = marks[next].instruction;
    }
    steps += std::max<std::size_t>(1, program_.instructions[id].body.size());
    if (steps < (marks.empty() ? 0 : marks.back().steps) + kAhead / 4) continue;
    marks.push_back({id, steps});
  }
  for (InstructionId id : queue) {
    if (far_behind_[id].valid()) is_awaited_[far_behind_[id]] = true;
  }
}

void QueueStreams::begin() {
  now_ = 1 - now_;
  flights_[now_].begin.record(stream(Queue::kCompute));
}

namespace {

// In memory that the device copies from by itself. What is pinned already stays the caller's too.
at::Tensor pinned(const at::Tensor& value) {
  if (value.is_pinned()) return value;
  at::Tensor host = comm::pinned_like(value);
  host.copy_(value);
  return host;
}

// On the current stream.
at::Tensor copied_from(const at::Tensor& host, at::Device device) {
  at::Tensor there = at::empty_like(host, host.options().device(device).pinned_memory(false));
  there.copy_(host, true);
  return there;
}

}  // namespace

at::Tensor QueueStreams::copy_in(const at::Tensor& value) {
  if (value.device() == options_.device) {
    c10::Event written(options_.device.type());
    written.record(comm::current_stream(options_.device));
    written.block(stream(Queue::kCompute));
    for (const c10::Stream& reader : streams_) {
      device_.recordDataPtrOnStream(value.storage().data_ptr(), reader);
    }
    return value;
  }
  at::Tensor host = pinned(value.cpu());
  const c10::StreamGuard guard(stream(Queue::kCompute));
  at::Tensor there = copied_from(host, options_.device);
  flights_[now_].copied.push_back(std::move(host));
  return there;
}

at::Tensor QueueStreams::copy_ahead(const at::Tensor& value) {
  if (value.device() == options_.device) return value;
  at::Tensor host = pinned(value.cpu());
  const c10::StreamGuard guard(ahead_);
  at::Tensor there = copied_from(host, options_.device);
  copied_ahead_.push_back(std::move(host));
  arrived_.record(ahead_);
  return there;
}

void QueueStreams::take_ahead(const at::Tensor& value) {
  arrived_.block(stream(Queue::kCompute));
  for (const c10::Stream& reader : streams_) {
    device_.recordDataPtrOnStream(value.storage().data_ptr(), reader);
  }
  std::ranges::move(copied_ahead_, std::back_inserter(flights_[now_].copied));
  copied_ahead_.clear();
}

void QueueStreams::drop_ahead() {
  if (copied_ahead_.empty()) return;
  arrived_.synchronize();
  copied_ahead_.clear();
}

void QueueStreams::end_of_inputs() { inputs_.record(stream(Queue::kCompute)); }

at::Tensor QueueStreams::brought(const at::Tensor& value) const {
  if (!value.defined() || value.device() != options_.device) return value;
  use(value, Queue::kCompute);
  // Of one order in memory, so that it is one copy, which the host need not wait for.
  const at::Tensor dense = value.is_non_overlapping_and_dense() ? value : value.contiguous();
  at::Tensor host = comm::pinned_like(dense);
  host.copy_(dense, true);
  return host;
}

std::size_t QueueStreams::end(std::vector<at::Tensor>& made) {
  const c10::Stream& compute = stream(Queue::kCompute);
  for (std::size_t queue = 0; queue < kQueueCount; ++queue) {
    if (streams_[queue] == compute || program_.queues[queue].empty()) continue;
    joined_.record(streams_[queue]);
    joined_.block(compute);
  }
  const c10::StreamGuard guard(compute);
  for (at::Tensor& value : made) value = brought(value);
  flights_[now_].end.record(compute);
  return now_;
}

void QueueStreams::wait(std::size_t flight) {
  flights_[flight].end.synchronize();
  flights_[flight].copied.clear();
}

namespace {

Nanoseconds time_between(const c10::Event& first, const c10::Event& second) {
  return static_cast<Nanoseconds>(std::llround(1e6 * first.elapsedTime(second)));
}

}  // namespace

Nanoseconds QueueStreams::duration(std::size_t flight) const {
  return time_between(flights_[flight].begin, flights_[flight].end);
}

void QueueStreams::synchronize() {
  for (const c10::Stream& stream : streams_) stream.synchronize();
  for (Flight& flight : flights_) flight.copied.clear();
}

IdVector<InstructionId, Span> QueueStreams::spans() const {
  ENSURE(options_.record);
  const c10::Event& zero = flights_[now_].begin;
  IdVector<InstructionId, Span> spans(ends_.size());
  for (InstructionId id : id_range<InstructionId>(ends_.size())) {
    spans[id] = {time_between(zero, begins_[id.value()]), time_between(zero, ends_[id.value()])};
  }
  return spans;
}

at::Tensor QueueStreams::copy_out(const at::Tensor& value) const {
  if (!value.defined()) return value;
  const c10::StreamGuard guard(stream(Queue::kCompute));
  return value.to(at::kCPU);
}

c10::StreamGuard QueueStreams::enter(Queue queue) const {
  inputs_.block(stream(queue));
  return c10::StreamGuard(stream(queue));
}

void QueueStreams::before(InstructionId id) {
  const Queue queue = program_.instructions[id].queue;
  if (far_behind_[id].valid()) ends_[far_behind_[id].value()].synchronize();
  for (InstructionId other : waits_[id]) ends_[other.value()].block(stream(queue));
  if (options_.record) begins_[id.value()].record(stream(queue));
}

void QueueStreams::after(InstructionId id) {
  if (!is_awaited_[id]) return;
  ends_[id.value()].record(stream(program_.instructions[id].queue));
}

void QueueStreams::use(const at::Tensor& value, Queue queue) const {
  if (value.device() != options_.device) return;
  device_.recordDataPtrOnStream(value.storage().data_ptr(), stream(queue));
}

}  // namespace heterog::runtime
