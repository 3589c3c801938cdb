// Gradients of embeddings as rows: packed, added, the same as adding them whole.
#include "runtime/exec/rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace heterog::runtime {
namespace {

// A gradient of 9 rows of which `used` are not zero.
at::Tensor gradient(std::vector<std::int64_t> used) {
  at::Tensor value = at::zeros({9, 4}, at::kDouble);
  for (std::int64_t row : used) value[row] = at::randn({4}, at::kDouble);
  return value;
}

TEST(Rows, AddUpToTheWhole) {
  at::manual_seed(1);
  const at::Tensor own = gradient({0, 3, 8}), other = gradient({3, 4}), none = gradient({});
  const std::vector<at::Tensor> packed = {pack_rows(other, 5), pack_rows(none, 2)};
  EXPECT_EQ(packed[0].numel(), packed_bytes(own, 5));
  const at::Tensor before = own.clone();
  EXPECT_TRUE(add_rows(own, packed, {}).allclose(own + other, 0, 1e-15));
  EXPECT_TRUE(own.equal(before)) << "not in place";
  const at::Tensor sum = add_rows(own, packed, {.in_place = true});
  EXPECT_TRUE(sum.is_same(own));
}

// Every device adds the same rows in the same order, whichever are its own: the same bits.
TEST(Rows, AreTheSameBitsOnEveryDevice) {
  at::manual_seed(2);
  std::vector<at::Tensor> gradients, packed;
  for (int i = 0; i < 3; ++i) {
    gradients.push_back(gradient({0, 2, 5 + i}).to(at::kFloat));
    packed.push_back(pack_rows(gradients.back(), 4));
  }
  const at::Tensor first = add_rows(gradients[0], packed, {.own = 0});
  EXPECT_TRUE(first.allclose(gradients[0] + gradients[1] + gradients[2]));
  for (std::int64_t i = 1; i < 3; ++i) {
    EXPECT_TRUE(add_rows(gradients[static_cast<std::size_t>(i)], packed, {.own = i}).equal(first));
  }
}

}  // namespace
}  // namespace heterog::runtime
