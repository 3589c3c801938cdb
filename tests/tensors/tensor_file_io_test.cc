// Tensor files come back as they were, and damage is an input error.
#include "tensors/tensor_file_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/check.h"
#include "base/rng.h"

namespace heterog::tensors {
namespace {

TensorFile example() {
  return {.metadata = {{"format", "example"}, {"quote", "a \"b\"\n"}},
          .tensors = {{"a", torch::arange(6, torch::kFloat32).reshape({2, 3})},
                      {"empty", torch::empty({0, 4})},
                      {"flag", torch::tensor({true, false, true})},
                      {"scalar", torch::tensor(2.5, torch::kFloat64)},
                      {"transposed", torch::arange(6, torch::kInt64).reshape({2, 3}).t()}}};
}

TEST(TensorIo, ComesBackAsItWas) {
  const TensorFile file = example();
  const std::string bytes = pack_tensors(file);
  EXPECT_EQ(bytes, pack_tensors(example()));
  const TensorFile back = unpack_tensors(bytes, "test");
  EXPECT_EQ(back.metadata, file.metadata);
  ASSERT_EQ(back.tensors.size(), file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    const torch::Tensor& read = back.tensors.at(name);
    EXPECT_EQ(read.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(torch::equal(read, tensor)) << name;
  }
}

// The header as the format's description has it, written by hand.
TEST(TensorIo, ReadsFilesOfOthers) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  const float values[] = {1.0f, 2.0f, 3.0f};
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(values), sizeof(values));
  const TensorFile file = unpack_tensors(bytes, "test");
  EXPECT_TRUE(torch::equal(file.tensors.at("b"), torch::tensor({1.0f})));
  EXPECT_TRUE(torch::equal(file.tensors.at("w"), torch::tensor({2.0f, 3.0f})));
}

TEST(TensorIo, DamageIsAnInputError) {
  const std::string whole = pack_tensors(example());
  for (std::size_t length = 0; length < whole.size(); length += 7) {
    EXPECT_THROW(unpack_tensors(whole.substr(0, length), "cut"), Error) << length;
  }
  EXPECT_THROW(unpack_tensors(whole + "x", "longer"), Error);
  // Any change gives a file or an input error, never anything else.
  Rng rng(3);
  for (int round = 0; round < 10000; ++round) {
    std::string bytes = whole;
    for (std::uint64_t i = 0, n = 1 + rng.below(4); i < n; ++i) {
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
    }
    try {
      unpack_tensors(bytes, "changed");
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    }
  }
}

}  // namespace
}  // namespace heterog::tensors
