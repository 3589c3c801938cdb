// Allocators, streams, events and a fallback for all operators, registered as PrivateUse1.
#include "comm/fake_device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "base/check.h"

namespace heterog::comm::fake {
namespace {

using c10::DeviceType;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kAlignment = 64;  // as on the CPU, whose libraries choose kernels by it

Faults g_faults;
std::mutex g_mutex;  // of all that follows, but not of the checker
Counts g_counts;

thread_local c10::DeviceIndex t_device = 0;
thread_local c10::DeviceIndex t_wanted = -1;  // has no context yet: gets one when it is needed
thread_local std::array<c10::StreamId, kDevices> t_streams{};

// Contexts are opened as CUDA 12 and PyTorch's guards do: by going to a device, and by whatever is
// asked of the device that a thread is on; not by a guard that goes back to where it came from.
void open_context(c10::DeviceIndex index) {
  const std::lock_guard lock(g_mutex);
  g_counts.contexts |= 1u << index;
}

bool has_context(c10::DeviceIndex index) {
  const std::lock_guard lock(g_mutex);
  return ((g_counts.contexts >> index) & 1u) != 0;
}

void go_to(c10::DeviceIndex index) {
  t_wanted = -1;
  if (index == t_device) return;
  t_device = index;
  open_context(index);
}

c10::DeviceIndex current_index() { return t_wanted >= 0 ? t_wanted : t_device; }

// A call that works on the device that the thread is on.
void use_current() {
  if (t_wanted >= 0) go_to(t_wanted);
  open_context(t_device);
}

// A call that goes to a device and comes back.
template <class Work>
void on_device_of(c10::DeviceIndex index, const Work& work) {
  const c10::DeviceIndex before = current_index();
  go_to(index);
  use_current();
  work();
  go_to(before);
}

// Kernels that have not ended, by stream. Those that have are dropped when events are recorded.
using Kernels = std::vector<std::shared_ptr<Kernel>>;
std::map<void*, Kernels> g_kernels;

void* native(const c10::Stream& stream) {
  return reinterpret_cast<void*>(stream.id() * kDevices + stream.device_index() + 1);
}

Kernels running_on(const c10::Stream& stream) {
  const std::lock_guard lock(g_mutex);
  Kernels& kernels = g_kernels[native(stream)];
  std::erase_if(kernels, [](const auto& kernel) { return kernel->has_ended(); });
  return kernels;
}

bool have_ended(const Kernels& kernels) {
  return std::ranges::all_of(kernels, [](const auto& kernel) { return kernel->has_ended(); });
}

void wait_for(const Kernels& kernels) {
  while (!have_ended(kernels)) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

c10::Stream stream_of(c10::DeviceIndex index) {
  return c10::Stream(c10::Stream::UNSAFE, device(index), t_streams[index]);
}

// ---- memory ----

struct Block {
  void* memory = nullptr;
  std::size_t bytes = 0;
  c10::DeviceIndex device = -1;  // −1: of the host
  c10::StreamId stream = 0;      // on which it was asked for
  std::vector<c10::Stream> used_on;
  VectorClock released;  // what is known once it may be handed out again
};

// Bytes of one device.
struct Memory {
  std::int64_t held = 0;       // by tensors
  std::int64_t most_held = 0;  // since begin_most()
  std::int64_t taken = 0;      // from the device: held, or to be handed out again
};

// Hands out again what was given back, the latest first, as soon as its rules allow it. Those of a
// device's memory are PyTorch's: at once to the stream that it came from; but once the streams
// that were recorded have done what they had been given when it was returned. Whoever takes it
// knows that they have.
class Pool {
 public:
  Block* take(std::size_t bytes, c10::DeviceIndex device) {
    bytes = std::max<std::size_t>((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
    const c10::StreamId stream = device < 0 ? 0 : t_streams[device];
    if (device >= 0) use_current();
    std::unique_lock lock(g_mutex);
    auto& free = free_[{device, stream, bytes}];
    if (!free.empty()) {
      Block* block = free.back();
      free.pop_back();
      ++(device < 0 ? g_counts.pinned_reused : g_counts.reused);
      if (!block->used_on.empty()) ++g_counts.reused_after_other_streams;
      block->used_on.clear();
      count(*block, 1);
      lock.unlock();
      checker().learn(block->released);
      return block;
    }
    auto* block = new Block{std::aligned_alloc(kAlignment, bytes), bytes, device, stream, {}, {}};
    if (device >= 0) memory_[device].taken += static_cast<std::int64_t>(bytes);
    count(*block, 1);
    lock.unlock();
    checker().watch(block->memory, bytes);
    return block;
  }

  void give_back(Block* block) {
    block->released = checker().known();
    for (const c10::Stream& stream : block->used_on) {
      block->released.join(checker().recorded(stream));
    }
    const std::lock_guard lock(g_mutex);
    count(*block, -1);
    free_[{block->device, block->stream, block->bytes}].push_back(block);
  }

  Memory memory(c10::DeviceIndex device) const {
    const std::lock_guard lock(g_mutex);
    return memory_[device];
  }
  void begin_most(c10::DeviceIndex device) {
    const std::lock_guard lock(g_mutex);
    memory_[device].most_held = memory_[device].held;
  }

 private:
  void count(const Block& block, int sign) {
    if (block.device < 0) return;
    Memory& memory = memory_[block.device];
    memory.held += sign * static_cast<std::int64_t>(block.bytes);
    memory.most_held = std::max(memory.most_held, memory.held);
  }

  std::array<Memory, kDevices> memory_;
  std::map<std::tuple<c10::DeviceIndex, c10::StreamId, std::size_t>, std::vector<Block*>> free_;
};

Pool& pool() {
  static auto* made = new Pool;  // tensors may outlive all that is static
  return *made;
}

void give_back(void* block) { pool().give_back(static_cast<Block*>(block)); }

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    set_up_ = true;
    const c10::DeviceIndex index = current_index();
    Block* block = pool().take(bytes, index);
    return {block->memory, block, &give_back, device(index)};
  }
  // As PyTorch's allocator of CUDA, which knows no device before it is set up.
  void set_up(bool is = true) { set_up_ = is; }
  bool initialized() override { return set_up_; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    check(index);
    const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    c10::CachingDeviceAllocator::DeviceStats stats;
    const Memory memory = pool().memory(index);
    stats.allocated_bytes[all].current = memory.held;
    stats.allocated_bytes[all].peak = memory.most_held;
    stats.reserved_bytes[all].current = stats.reserved_bytes[all].peak = memory.taken;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override { check(index); }
  void resetPeakStats(c10::DeviceIndex index) override {
    check(index);
    pool().begin_most(index);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  void check(c10::DeviceIndex index) const {
    VALIDATE(set_up_ && index >= 0 && index < kDevices,
             "the allocator knows no device {}: it was not set up", static_cast<int>(index));
  }
  std::atomic<bool> set_up_ = false;
};

std::function<void(std::size_t)> g_before_pinned_memory;

class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (g_before_pinned_memory) g_before_pinned_memory(bytes);
    Block* block = pool().take(bytes, -1);
    {
      const std::lock_guard lock(g_mutex);
      blocks_[block->memory] = block->bytes;
    }
    // Its new owner may write at once.
    checker().on_host("taking pinned memory", {{block->memory, block->bytes, true}});
    return {block->memory, block, &give_back, c10::Device(DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool holds(const void* data) const {
    const std::lock_guard lock(g_mutex);
    auto at = blocks_.upper_bound(data);
    if (at == blocks_.begin()) return false;
    --at;
    return static_cast<const char*>(data) < static_cast<const char*>(at->first) + at->second;
  }

 private:
  std::map<const void*, std::size_t> blocks_;
};

DeviceMemory g_device_memory;
PinnedMemory g_pinned_memory;

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return has_context(index); }
  void init() const override { g_device_memory.set_up(); }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator = at::detail::createCPUGenerator();
    return generator;  // seeds are set on all devices; nothing draws from it
  }
  bool isPinnedPtr(const void* data) const override { return g_pinned_memory.holds(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &g_pinned_memory; }
};

// ---- streams and events ----

struct Event {
  VectorClock clock;
  Clock::time_point time;
  Kernels behind;  // that the event comes behind
  int queries = 0;
  bool is_taken_as_done = false;  // by a fault
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device next) const override {
    const c10::Device before = getDevice();
    go_to(next.index());
    return before;
  }
  c10::Device getDevice() const override { return device(current_index()); }
  void setDevice(c10::Device next) const override { go_to(next.index()); }
  void uncheckedSetDevice(c10::Device next) const noexcept override {
    if (has_context(next.index())) return go_to(next.index());
    t_wanted = next.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device of) const override { return stream_of(of.index()); }
  c10::Stream getDefaultStream(c10::Device of) const override {
    return c10::Stream(c10::Stream::DEFAULT, of);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool) const override {
    static std::atomic<c10::StreamId> next{1};
    open_context(of.index());
    return c10::Stream(c10::Stream::UNSAFE, of, next++);
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const c10::Stream before = stream_of(next.device_index());
    t_streams[next.device_index()] = next.id();
    return before;
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    auto& made = *static_cast<Event*>(*event);
    on_device_of(stream.device_index(), [&] { made.clock = checker().recorded(stream); });
    {
      const std::lock_guard lock(g_mutex);
      ++g_counts.events;
    }
    made.behind = running_on(stream);
    made.time = Clock::now();
    made.queries = 0;
    made.is_taken_as_done = false;
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr || g_faults.streams_ignore_events) return;
    on_device_of(stream.device_index(),
                 [&] { checker().wait(stream, static_cast<Event*>(event)->clock); });
    const std::lock_guard lock(g_mutex);
    Kernels& kernels = g_kernels[native(stream)];
    for (const auto& kernel : static_cast<Event*>(event)->behind) kernels.push_back(kernel);
  }
  // Done if the thread knows so anyway, else from the third time on, so that something is under way
  // at times.
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    use_current();
    auto& asked = *static_cast<Event*>(event);
    if (asked.is_taken_as_done) return true;
    if (!have_ended(asked.behind)) return false;
    if (g_faults.events_are_always_done || checker().knows(asked.clock)) return true;
    if (++asked.queries < 3) return false;
    checker().learn(asked.clock);
    return true;
  }
  void destroyEvent(void* event, c10::DeviceIndex index) const noexcept override {
    if (event == nullptr) return;
    on_device_of(index, [&] { delete static_cast<Event*>(event); });
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    if (g_faults.synchronize_returns_at_once) {
      static_cast<Event*>(event)->is_taken_as_done = true;
      return;
    }
    use_current();
    {
      const std::lock_guard lock(g_mutex);
      ++g_counts.waits;
    }
    wait_for(static_cast<Event*>(event)->behind);
    checker().learn(static_cast<Event*>(event)->clock);
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return native(stream); }
  bool queryStream(const c10::Stream&) const override { return false; }
  void synchronizeStream(const c10::Stream& stream) const override {
    if (g_faults.synchronize_returns_at_once) return;
    {
      const std::lock_guard lock(g_mutex);
      ++g_counts.syncs;
    }
    wait_for(running_on(stream));
    checker().learn(checker().recorded(stream));
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get() == nullptr || g_faults.memory_ignores_streams) return;
    auto* block = static_cast<Block*>(data.get_context());
    const std::lock_guard lock(g_mutex);
    if (stream.id() == block->stream) return;
    for (const c10::Stream& known : block->used_on) {
      if (known == stream) return;
    }
    block->used_on.push_back(stream);
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(static_cast<Event*>(second)->time -
                                                     static_cast<Event*>(first)->time)
        .count();
  }
};

// ---- operators ----

bool is_fake(const at::Tensor& value) {
  return value.defined() && value.device().type() == DeviceType::PrivateUse1;
}

// What only makes views writes nothing.
void count(const std::string& name, const std::vector<Touch>& touches) {
  std::uint64_t bytes = 0;
  bool writes = false;
  for (const Touch& touch : touches) {
    bytes += touch.bytes;
    writes = writes || touch.writes;
  }
  if (writes) count_launch(name, bytes);
}

// From the first element to the last.
Touch touch_of(const at::Tensor& value, bool writes) {
  if (value.numel() == 0) return {};
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < value.dim(); ++i) last += (value.size(i) - 1) * value.stride(i);
  return {value.const_data_ptr(), static_cast<std::size_t>((last + 1) * value.element_size()),
          writes};
}

// The same memory, as the CPU sees it.
at::Tensor as_cpu(const at::Tensor& value) {
  const auto options = at::TensorOptions().dtype(value.scalar_type()).device(at::kCPU);
  if (value.numel() == 0) return at::empty_strided(value.sizes(), value.strides(), options);
  return at::from_blob(const_cast<void*>(value.const_data_ptr()), value.sizes(), value.strides(),
                       options);
}

at::Tensor empty_memory(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout>, std::optional<at::Device> on,
                        std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(on.value_or(device(current_index())));
  return at::detail::empty_generic(size, &g_device_memory,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> on, std::optional<bool>) {
  const c10::DeviceGuard guard(on.value_or(device(current_index())));
  return at::detail::empty_strided_generic(size, stride, &g_device_memory,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

at::Tensor new_like(const at::Tensor& made, c10::Device on) {
  return empty_strided(made.sizes(), made.strides(), made.scalar_type(), {}, on, {});
}

// Between two tensors of which one is ours at least. As CUDA does, the host waits unless it is told
// not to and its memory is pinned.
at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const at::Tensor& host = is_fake(to) ? from : to;
  const c10::Stream stream = stream_of((is_fake(to) ? to : from).device().index());
  checker().launch(stream, "a copy", {touch_of(from, false), touch_of(to, true)});
  const bool waits = !is_fake(host) && !(non_blocking && g_pinned_memory.holds(host.data_ptr()));
  if (is_fake(host)) {
    count("aten::copy_", {touch_of(from, false), touch_of(to, true)});
  } else {
    const std::lock_guard lock(g_mutex);
    ++g_counts.copies;
    g_counts.syncs += waits ? 1 : 0;
  }
  at::Tensor there = is_fake(to) ? as_cpu(to) : to;
  there.copy_(is_fake(from) ? as_cpu(from) : from);
  if (waits) checker().learn(checker().recorded(stream));
  return to;
}

at::Scalar number_of(const at::Tensor& value) {
  const c10::Stream stream = stream_of(value.device().index());
  checker().launch(stream, "reading a number", {touch_of(value, false)});
  {
    const std::lock_guard lock(g_mutex);
    ++g_counts.syncs;
  }
  checker().learn(checker().recorded(stream));
  return as_cpu(value).item();
}

at::Tensor view(const at::Tensor& value, c10::IntArrayRef size) {
  return at::native::view(value, size);
}

at::Tensor as_strided(const at::Tensor& value, c10::IntArrayRef size, c10::IntArrayRef stride,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(value, size, stride, offset);
}

// Runs an operator on the CPU, on the same memory.
class OnCpu {
 public:
  explicit OnCpu(const c10::OperatorHandle& op) : op_(op) {}

  // Kernels of optimizers write gradients where they divide them by a scale, and nowhere else.
  bool kept(const c10::Argument& formal, const torch::jit::Stack& stack, std::size_t first) const {
    const auto scale = op_.schema().argumentIndexWithName("grad_scale");
    return scale && formal.name() == "grads" &&
           stack[first + static_cast<std::size_t>(*scale)].isNone();
  }

  void run(torch::jit::Stack* stack) {
    const auto& formal = op_.schema().arguments();
    const std::size_t first = stack->size() - formal.size();
    for (std::size_t i = 0; i < formal.size(); ++i) {
      c10::IValue& value = (*stack)[first + i];
      const auto* alias = formal[i].alias_info();
      value = taken(value, alias != nullptr && alias->isWrite() && !kept(formal[i], *stack, first));
    }
    ENSURE(on_.has_value());
    VALIDATE(!on_host_, "{}: its operands are on two devices", op_.schema().name());
    std::vector<Touch> touches;
    for (const Operand& operand : operands_) {
      touches.push_back(touch_of(operand.given, operand.writes));
    }
    call(stack);
    for (c10::IValue& value : *stack) value = given_back(value, touches);
    for (const Operand& operand : operands_) {
      if (operand.writes) adopt(operand, touches);
    }
    count(op_.schema().name(), touches);
    checker().launch(stream_of(on_->index()), op_.schema().name(), touches);
  }

 private:
  struct Operand {
    at::Tensor given;
    at::Tensor cpu;
    bool writes = false;
  };

  void call(torch::jit::Stack* stack) const {
    if (op_.schema().name() != "aten::bmm" || op_.schema().overload_name() != "dtype") {
      return op_.callBoxed(stack);
    }
    // Of GPUs alone.
    const at::ScalarType type = (*stack)[2].toScalarType();
    *stack = {at::bmm((*stack)[0].toTensor().to(type), (*stack)[1].toTensor().to(type))};
  }

  at::Tensor taken(const at::Tensor& value, bool writes) {
    if (!is_fake(value)) {
      on_host_ = on_host_ || (value.defined() && value.dim() > 0);
      return value;
    }
    if (!on_) on_ = value.device();
    operands_.push_back({value, as_cpu(value), writes});
    return operands_.back().cpu;
  }

  c10::IValue taken(const c10::IValue& value, bool writes) {
    if (value.isTensor()) return taken(value.toTensor(), writes);
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& one : value.toTensorVector()) list.push_back(taken(one, writes));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& one : value.toOptionalTensorVector()) {
        list.push_back(one ? std::optional(taken(*one, writes)) : one);
      }
      return list;
    }
    if (value.isDevice() && value.toDevice().type() == DeviceType::PrivateUse1) {
      if (!on_) on_ = value.toDevice();
      return c10::Device(at::kCPU);
    }
    return value;
  }

  at::Tensor given_back(const at::Tensor& made, std::vector<Touch>& touches) {
    if (!made.defined()) return made;
    for (const Operand& operand : operands_) {
      if (made.is_same(operand.cpu)) return operand.given;
    }
    for (const Operand& operand : operands_) {
      if (made.numel() == 0 || operand.cpu.numel() == 0) continue;
      if (made.storage().data() != operand.cpu.storage().data()) continue;
      const auto behind = static_cast<const char*>(made.const_data_ptr()) -
                          static_cast<const char*>(operand.given.const_data_ptr());
      return operand.given.as_strided(
          made.sizes(), made.strides(),
          operand.given.storage_offset() + behind / operand.given.element_size());
    }
    at::Tensor ours = new_like(made, *on_);
    if (made.numel() > 0) as_cpu(ours).copy_(made);
    touches.push_back(touch_of(ours, true));
    return ours;
  }

  c10::IValue given_back(const c10::IValue& value, std::vector<Touch>& touches) {
    if (value.isTensor()) return given_back(value.toTensor(), touches);
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& one : value.toTensorVector()) {
        list.push_back(given_back(one, touches));
      }
      return list;
    }
    return value;
  }

  // An output that was given empty and has grown.
  void adopt(const Operand& operand, std::vector<Touch>& touches) {
    if (operand.cpu.sizes() == operand.given.sizes()) return;
    ENSURE(operand.given.numel() == 0);
    const at::Tensor ours = new_like(operand.cpu, *on_);
    as_cpu(ours).copy_(operand.cpu);
    auto* tensor = operand.given.unsafeGetTensorImpl();
    tensor->set_storage_keep_dtype(ours.storage());
    tensor->set_sizes_and_strides(ours.sizes(), ours.strides());
    touches.push_back(touch_of(ours, true));
  }

  const c10::OperatorHandle& op_;
  std::optional<c10::Device> on_;
  bool on_host_ = false;  // an operand that is no number
  std::vector<Operand> operands_;
};

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) { OnCpu(op).run(stack); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_memory);
  m.impl("empty_strided", &empty_strided);
  m.impl("copy_", &copy);
  m.impl("_local_scalar_dense", &number_of);
  m.impl("view", &view);
  m.impl("as_strided", &as_strided);
  // Of one kernel on GPUs; tensor by tensor where a device has none.
  m.impl("_foreach_add_.List", torch::CppFunction::makeFromBoxedFunction<&fallback>());
  m.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&fallback>());
  m.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// Operators that have a kernel for CPUs and another for all devices without one of their own: here
// too, the CPU's is to be taken.
void prefer_kernels_of_cpu() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1,
                                __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!name.name.starts_with("aten::") || !op || !op->hasSchema()) continue;
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
        !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
      continue;
    }
    const std::string full =
        name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

void install() {
  static const bool installed = [] {
    c10::register_privateuse1_backend("fake");
    c10::SetAllocator(DeviceType::PrivateUse1, &g_device_memory);
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    prefer_kernels_of_cpu();
    return true;
  }();
  ENSURE(installed);
}

at::Device device(int index) {
  return {DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

void set_faults(const Faults& faults) { g_faults = faults; }

OrderChecker& checker() {
  static auto* made = new OrderChecker;
  return *made;
}

void forget_allocator() { g_device_memory.set_up(false); }

Counts counts() {
  const std::lock_guard lock(g_mutex);
  return g_counts;
}

void reset_counts() {
  const std::lock_guard lock(g_mutex);
  g_counts = {};
}

std::shared_ptr<Kernel> launch_kernel(void* native_stream) {
  auto kernel = std::make_shared<Kernel>();
  const std::lock_guard lock(g_mutex);
  g_kernels[native_stream].push_back(kernel);
  return kernel;
}

void before_pinned_memory(std::function<void(std::size_t bytes)> call) {
  g_before_pinned_memory = std::move(call);
}

void count_launch(const std::string& name, std::uint64_t bytes) {
  const std::lock_guard lock(g_mutex);
  ++g_counts.launches;
  ++g_counts.operators[name];
  g_counts.launched_bytes += bytes;
}

void use_current_device() { use_current(); }

void host_reads(const at::Tensor& value, const std::string& what) {
  checker().on_host(what, {touch_of(value, false)});
}

void host_writes(const at::Tensor& value, const std::string& what) {
  checker().on_host(what, {touch_of(value, true)});
}

}  // namespace heterog::comm::fake
