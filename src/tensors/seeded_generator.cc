// Keeps the generator's state in a tensor, which is the form in which PyTorch gives it.
#include "tensors/seeded_generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace heterog::tensors {

SeededGenerator::SeededGenerator(std::uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  before_ = generator.get_state();
  generator.set_current_seed(seed);
}

SeededGenerator::~SeededGenerator() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(before_);
}

}  // namespace heterog::tensors
