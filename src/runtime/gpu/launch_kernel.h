// A launch of one of our kernels (dropout.cu), where this build has them and the GPU can run them.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace heterog::runtime {

inline constexpr unsigned kThreadsOfBlock = 256;
inline constexpr std::int64_t kMostBlocks = 65535;  // along each dimension of a grid

struct Grid {
  unsigned x = 1, y = 1;  // blocks of kThreadsOfBlock along x
};

// For `elements` along x, and `rows` of them. Kernels go on where a grid ends.
inline Grid grid_of(std::int64_t elements, std::int64_t rows) {
  const auto blocks = [](std::int64_t count) {
    return static_cast<unsigned>(std::clamp<std::int64_t>(count, 1, kMostBlocks));
  };
  return {blocks((elements + kThreadsOfBlock - 1) / kThreadsOfBlock), blocks(rows)};
}

// The kernel's arguments are where its tensors lie (undefined: null), then what `more` points to.
// All tensors are on the device of the first.
struct KernelCall {
  std::string name;
  std::span<const at::Tensor> tensors;
  std::span<void* const> more;
  Grid grid;
};

// Launches it on the stream of the calling thread. False where there is no such kernel: nothing is
// done. An error of the device is one of c10's.
bool launch_kernel(const KernelCall& call);

// The same, with the arguments as they are.
template <class... More>
bool launch(const std::string& name, Grid grid, std::initializer_list<at::Tensor> tensors,
            More... more) {
  const std::array<void*, sizeof...(More)> places = {&more...};
  return launch_kernel({name, std::span(tensors.begin(), tensors.size()), places, grid});
}

// What a kernel's name ends with; empty: it has no form for the type.
inline std::string name_of_type(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "_float64";
    case at::kFloat:
      return "_float32";
    case at::kHalf:
      return "_float16";
    case at::kBFloat16:
      return "_bfloat16";
    default:
      return "";
  }
}

}  // namespace heterog::runtime
