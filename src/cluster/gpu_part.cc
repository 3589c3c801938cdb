// Names and figures of parts of GPUs.
#include "cluster/gpu_part.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/check.h"

namespace heterog::cluster {

std::string part_name(const GpuPart& part) {
  return fmt::format("{}:{}", part.gpu, part.multiprocessors);
}

std::optional<GpuPart> part_of(std::string_view type_name) {
  const std::size_t colon = type_name.rfind(':');
  if (colon == type_name.npos) return std::nullopt;
  GpuPart part{.gpu = std::string(type_name.substr(0, colon))};
  const char* end = type_name.data() + type_name.size();
  const auto read = std::from_chars(type_name.data() + colon + 1, end, part.multiprocessors);
  if (read.ec != std::errc() || read.ptr != end || part.multiprocessors < 1) return std::nullopt;
  return part;
}

DeviceType part_type(const DeviceType& gpu, int multiprocessors) {
  ENSURE(multiprocessors >= 1 && multiprocessors <= gpu.multiprocessors);
  const double share = static_cast<double>(multiprocessors) / gpu.multiprocessors;
  const auto bytes = [&](Bytes of_gpu) {
    return static_cast<Bytes>(std::floor(share * static_cast<double>(of_gpu)));
  };
  DeviceType part = gpu;
  part.name = part_name({gpu.name, multiprocessors});
  part.multiprocessors = multiprocessors;
  part.memory_bytes = bytes(gpu.memory_bytes);
  part.reserve_bytes = bytes(gpu.reserve_bytes);
  part.cache_bytes = bytes(gpu.cache_bytes);
  for (double* rate :
       {&part.fp32_flops_per_second, &part.tf32_flops_per_second, &part.half_flops_per_second,
        &part.fp64_flops_per_second, &part.memory_bytes_per_second, &part.half_efficiency_flop}) {
    *rate *= share;
  }
  if (part.bf16_flops_per_second) *part.bf16_flops_per_second *= share;
  return part;
}

bool OpenGpu::takes(const GpuPart& part, int multiprocessors) {
  const bool same = part.gpu == gpu_ && part.multiprocessors <= left_;
  if (!same) {
    gpu_ = part.gpu;
    left_ = multiprocessors;
  }
  left_ -= part.multiprocessors;
  return same;
}

}  // namespace heterog::cluster
