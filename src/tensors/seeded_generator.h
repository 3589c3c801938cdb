// PyTorch's generator of random numbers, from a seed of ours and for a while.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace heterog::tensors {

// While it lives, the CPU's default generator draws what follows from the seed; then it goes on as
// if nothing had been: it belongs to the whole process, and so to whoever has loaded the library.
class SeededGenerator {
 public:
  explicit SeededGenerator(std::uint64_t seed);
  ~SeededGenerator();
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

 private:
  at::Tensor before_;
};

}  // namespace heterog::tensors
