// A seed of ours, and then the generator of whoever was there before.
#include "tensors/seeded_generator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace heterog::tensors {
namespace {

TEST(SeededGenerator, DrawsByItsSeedAndPutsBackWhatWas) {
  at::manual_seed(11);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(5);
  const at::Tensor of_seed = at::rand({3});

  at::manual_seed(11);
  {
    const SeededGenerator seeded(5);
    EXPECT_TRUE(at::equal(at::rand({3}), of_seed)) << "as manual_seed(5)";
  }
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

}  // namespace
}  // namespace heterog::tensors
