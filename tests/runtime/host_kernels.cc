// Compiles dropout.cu as C++, with a table of its kernels by name.
#include "runtime/host_kernels.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/fake_device.h"
#include "runtime/gpu/kernel_arguments.h"

#define __global__ inline
#define __device__

namespace heterog::runtime::on_gpu {
namespace {

struct Shape {
  unsigned x = 1, y = 1;
};
thread_local Shape gridDim, blockDim, blockIdx, threadIdx;

#include "runtime/gpu/dropout.cu"

struct Kernel {
  std::size_t written = 0;  // so many of its first tensors
  std::function<void(void* const*)> run;
};

template <class... Arguments>
Kernel kernel(std::size_t written, void (*function)(Arguments...)) {
  return {written, [function](void* const* places) {
            [&]<std::size_t... I>(std::index_sequence<I...>) {
              function(*static_cast<std::remove_reference_t<Arguments>*>(places[I])...);
            }
            (std::index_sequence_for<Arguments...>());
          }};
}

#define KERNELS(type)                                                       \
  {"drop_" #type, kernel(2, drop_##type)},                                  \
      {"drop_weights_" #type, kernel(2, drop_weights_##type)}, {            \
    "drop_weights_backward_" #type, kernel(2, drop_weights_backward_##type) \
  }

const std::map<std::string, Kernel>& kernels() {
  static const std::map<std::string, Kernel> all = {{"keep_mask", kernel(1, keep_mask)},
                                                    {"drop_float64", kernel(2, drop_float64)},
                                                    KERNELS(float32),
                                                    KERNELS(float16),
                                                    KERNELS(bfloat16)};
  return all;
}

std::atomic<bool> g_on = false;
std::optional<Grid> g_grid;
std::mutex g_kernels_mutex;
std::map<std::string, int> g_launches;

// What the fake device would know of a kernel of its own.
void note(const KernelCall& call, std::size_t written) {
  std::vector<comm::fake::Touch> touches;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    const at::Tensor& tensor = call.tensors[i];
    if (!tensor.defined()) continue;
    bytes += tensor.nbytes();
    touches.push_back({tensor.data_ptr(), tensor.nbytes(), i < written});
  }
  {
    const std::lock_guard lock(g_kernels_mutex);
    ++g_launches[call.name];
  }
  const at::Device device = call.tensors.front().device();
  if (device.is_cpu()) return;
  comm::fake::count_launch(call.name, bytes);
  comm::fake::checker().launch(c10::impl::VirtualGuardImpl(device.type()).getStream(device),
                               call.name, touches);
}

}  // namespace

HostKernels::HostKernels() {
  g_launches.clear();
  g_on = true;
}
HostKernels::~HostKernels() {
  g_on = false;
  g_grid.reset();
}

int launches_of(const std::string& name) {
  const std::lock_guard lock(g_kernels_mutex);
  const auto found = g_launches.find(name);
  return found == g_launches.end() ? 0 : found->second;
}

void set_grid(std::optional<Grid> grid) { g_grid = grid; }

float wide_of(at::ScalarType half, unsigned short bits) {
  return half == at::kHalf ? wide(Half{bits}) : wide(BFloat16{bits});
}

unsigned short bits_of(at::ScalarType half, float value) {
  Half one{0};
  BFloat16 other{0};
  set(one, value);
  set(other, value);
  return half == at::kHalf ? one.bits : other.bits;
}

}  // namespace heterog::runtime::on_gpu

namespace heterog::runtime {

bool launch_kernel(const KernelCall& call) {
  using namespace on_gpu;
  const auto found = kernels().find(call.name);
  if (!g_on || found == kernels().end()) return false;
  note(call, found->second.written);
  std::vector<void*> data, places;
  for (const at::Tensor& tensor : call.tensors) {
    data.push_back(tensor.defined() ? tensor.data_ptr() : nullptr);
  }
  for (void*& place : data) places.push_back(&place);
  places.insert(places.end(), call.more.begin(), call.more.end());
  const Grid grid = g_grid.value_or(call.grid);
  gridDim = {grid.x, grid.y}, blockDim = {kThreadsOfBlock, 1};
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
      for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) {
        found->second.run(places.data());
      }
    }
  }
  return true;
}

}  // namespace heterog::runtime
