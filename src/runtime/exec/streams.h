// The queues of a rank on a device that works while the host goes on: a stream for each, ordered
// among each other by events.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/exec/worker_types.h"
#include "runtime/program/program.h"

namespace heterog::runtime {

// The thread of a queue launches the instructions of the queue on the queue's stream, and does not
// wait for them. Where an instruction wakes one of another queue, on the host, the device is told
// the same: the woken one's stream waits for an event behind the first. What is launched when an
// instruction begins therefore runs after all that the plan puts before it.
//
// A thread stays about kAhead steps of bodies in front of its stream, a few kernels each at most,
// so that no launch ever blocks because the device's own queue of launches is full (1,024 of
// CUDA's), and so that memory is given back soon. That cannot hang: it is a wait for an earlier
// instruction of the same queue, and the earliest unfinished task of the plan waits for none. An
// event is recorded only where somebody waits for it: another stream, or so the thread of the
// queue.
//
// Two steps may have been launched at a time. On the device, the second comes behind all of the
// first, on every stream. When each instruction ran is known of the step that was launched last
// alone.
//
// Written against c10's interface of devices: needs no header of a device's maker.
class QueueStreams {
 public:
  static constexpr std::size_t kAhead = 256;

  struct Options {
    at::Device device = at::kCPU;
    std::function<c10::Stream(bool urgent)> streams = {};  // as of WorkerOptions
    bool record = false;                                   // when each instruction ran
  };
  QueueStreams(const Program& program, const Options& options);

  // ---- by the thread that runs the steps ----

  // From here a step's times count.
  void begin();
  // A copy on the device, made on the stream of the compute queue. What lies there already, where
  // the calling thread's current stream has written it, is taken as it is.
  at::Tensor copy_in(const at::Tensor& value);
  // A copy that is made beside what runs, on a stream of its own, for the next step.
  at::Tensor copy_ahead(const at::Tensor& value);
  // The step about to begin reads what was copied ahead; or nobody does.
  void take_ahead(const at::Tensor& value);
  void drop_ahead();
  // Whatever a queue launches once it has entered comes after what was copied in.
  void end_of_inputs();
  // What comes behind all queues of the step: copies in host memory of what it made, whole once the
  // step was waited for. Returns its number among those on their way, for wait() and duration().
  std::size_t end(std::vector<at::Tensor>& made);
  // Waits for all that was launched up to the end of a step. Throws what the device says if it
  // failed.
  void wait(std::size_t flight);
  // Of a step that was waited for, on the device.
  Nanoseconds duration(std::size_t flight) const;
  // Waits for all that was launched.
  void synchronize();
  // When each instruction of the step that was waited for ran.
  IdVector<InstructionId, Span> spans() const;
  // A copy in host memory, once nothing runs any more.
  at::Tensor copy_out(const at::Tensor& value) const;

  // ---- by the thread of a queue ----

  // While this lives, the calling thread launches on the stream of the queue.
  c10::StreamGuard enter(Queue queue) const;
  void before(InstructionId id);
  void after(InstructionId id);
  // The memory of `value` may not be given to others before the queue's stream is done with it.
  void use(const at::Tensor& value, Queue queue) const;

 private:
  const c10::Stream& stream(Queue queue) const { return streams_[static_cast<std::size_t>(queue)]; }

  c10::Stream new_stream(bool urgent) const;
  void place_marks(const std::vector<InstructionId>& queue);
  at::Tensor brought(const at::Tensor& value) const;

  const Program& program_;
  const Options options_;
  const c10::impl::VirtualGuardImpl device_;
  std::vector<c10::Stream> streams_;                           // one a queue
  IdVector<InstructionId, std::vector<InstructionId>> waits_;  // the fewest that say it all
  std::vector<c10::Event> begins_;                             // by instruction, if recorded
  std::vector<c10::Event> ends_;                               // by instruction
  IdVector<InstructionId, std::uint8_t> is_awaited_;           // its end is recorded
  IdVector<InstructionId, InstructionId> far_behind_;          // whose end the thread waits for
  struct Flight {
    c10::Event begin, end;
    std::vector<at::Tensor> copied;  // what the device may still be copying from
  };
  std::vector<Flight> flights_;  // two, by turns
  std::size_t now_ = 0;          // of the step that was begun last
  c10::Event joined_;            // a queue's end
  c10::Event inputs_;

  c10::Stream ahead_;  // on which inputs of the next step are copied
  c10::Event arrived_;
  std::vector<at::Tensor> copied_ahead_;  // as copied_, for the next step
};

}  // namespace heterog::runtime
