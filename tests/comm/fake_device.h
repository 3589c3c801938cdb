// A device that is none: memory of the host, operators of the CPU, and streams and events that only
// note what they are asked for, so that what is not in order can be found.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "comm/order_checker.h"

namespace heterog::comm::fake {

inline constexpr int kDevices = 4;

// Registers the device with PyTorch, once a process.
void install();

at::Device device(int index);

// What the device leaves undone, to see that the checker notices.
struct Faults {
  bool streams_ignore_events = false;   // waiting for an event does nothing
  bool memory_ignores_streams = false;  // so does recording a tensor on a stream
  bool synchronize_returns_at_once = false;
  bool events_are_always_done = false;  // a query says so before the thread could know
};
void set_faults(const Faults& faults);

OrderChecker& checker();

// Blocks that were handed out again after another stream had used them, and events, since
// reset_counts().
struct Counts {
  std::uint64_t reused = 0;
  std::uint64_t reused_after_other_streams = 0;
  std::uint64_t pinned_reused = 0;
  std::uint64_t events = 0;                        // recorded on a stream
  std::uint64_t waits = 0;                         // of a thread for an event
  std::map<std::string, std::uint64_t> operators;  // launches, by name
  std::uint64_t launches = 0;                      // of operators that write something, on a device
  std::uint64_t launched_bytes = 0;                // that these read and wrote
  std::uint64_t syncs = 0;     // of a thread with a stream, or for a number or a copy
  std::uint64_t copies = 0;    // between a device and the host
  std::uint32_t contexts = 0;  // a bit a device: whether anything was asked of it
};
Counts counts();
// As in a process in which nothing was allocated on the device yet.
void forget_allocator();
void reset_counts();

// Work on a stream that ends when it is told to, as a kernel that waits for a peer: events behind
// it have not happened before, and whoever waits for them waits.
class Kernel {
 public:
  void end() { ended_ = true; }
  bool has_ended() const { return ended_; }

 private:
  std::atomic<bool> ended_ = false;
};
// `native_stream`: what c10::Stream::native_handle() says.
std::shared_ptr<Kernel> launch_kernel(void* native_stream);

// Called by whoever takes so many bytes of pinned memory, before he has it; empty: nothing is.
void before_pinned_memory(std::function<void(std::size_t bytes)> call);

// A kernel that no operator of the device launches.
void count_launch(const std::string& name, std::uint64_t bytes);

// What a library does that asks something of the device that the thread is on.
void use_current_device();

// Pinned memory that a message is read from or written to by the calling thread.
void host_reads(const at::Tensor& value, const std::string& what);
void host_writes(const at::Tensor& value, const std::string& what);

}  // namespace heterog::comm::fake
