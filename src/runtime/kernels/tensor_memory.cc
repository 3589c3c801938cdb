// PyTorch's allocator for CPUs, with a count of what it has given out.
#include "runtime/kernels/tensor_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>

#include <atomic>
#include <cstring>
#include <mutex>

namespace heterog::runtime {
namespace {

std::atomic<Bytes> g_now{0};
std::atomic<Bytes> most{0};

void add(Bytes bytes) {
  const Bytes held = g_now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  Bytes known = most.load(std::memory_order_relaxed);
  while (held > known && !most.compare_exchange_weak(known, held, std::memory_order_relaxed)) {
  }
}

// What malloc has set aside: the size that was asked for is known to nobody when a tensor ends.
void give_back(void* data) {
  g_now.fetch_sub(static_cast<Bytes>(malloc_usable_size(data)), std::memory_order_relaxed);
  c10::free_cpu(data);
}

class CountingAllocator final : public at::Allocator {
 public:
  at::DataPtr allocate(std::size_t bytes) override {
    void* data = c10::alloc_cpu(bytes);
    if (data != nullptr) add(static_cast<Bytes>(malloc_usable_size(data)));
    return {data, data, &give_back, at::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

void count_tensor_memory(at::Device device) {
  if (!device.is_cpu()) return;
  static std::once_flag once;
  std::call_once(once, [] {
    constexpr std::uint8_t kAboveTheDefault = 100;
    c10::SetCPUAllocator(new CountingAllocator, kAboveTheDefault);  // which takes it
  });
}

TensorMemory tensor_memory(at::Device device) {
  if (device.is_cpu()) return {.now = g_now.load(), .most = most.load()};
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device.type());
  if (!allocator->initialized()) return {};
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const c10::CachingDeviceAllocator::DeviceStats stats = allocator->getDeviceStats(device.index());
  return {.now = stats.allocated_bytes[all].current,
          .most = stats.allocated_bytes[all].peak,
          .reserved = stats.reserved_bytes[all].peak};
}

// An allocator that has allocated nothing knows no device, and throws.
void begin_most(at::Device device) {
  if (device.is_cpu()) return most.store(g_now.load());
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device.type());
  if (allocator->initialized()) allocator->resetPeakStats(device.index());
}

}  // namespace heterog::runtime
