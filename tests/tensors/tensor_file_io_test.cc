// Tensor files come back as they were, and damage is an input error.
#include "tensors/tensor_file_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
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

// Read from a file as from memory; and a file larger than a graph or plan may be.
TEST(TensorIo, ReadsFilesOfAnySize) {
  const std::string path = testing::TempDir() + "heterog_tensors_" + std::to_string(getpid());
  write_file(path, pack_tensors(example()));
  EXPECT_EQ(pack_tensors(read_tensors(path)), pack_tensors(example()));
  const std::size_t count = kMaxFileBytes + 11;
  std::string header =
      fmt::format(R"({{"w":{{"dtype":"U8","shape":[{}],"data_offsets":[0,{}]}}}})", count, count);
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  write_file(path, bytes + header);
  // Zeros that take no room on the disk, and one 7 at the end.
  std::filesystem::resize_file(path, bytes.size() + header.size() + count - 1);
  append_file(path, "\7");
  const torch::Tensor read = read_tensors(path).tensors.at("w");
  ASSERT_EQ(read.numel(), static_cast<std::int64_t>(count));
  EXPECT_EQ(read[-1].item<int>(), 7);
  EXPECT_EQ(read[-2].item<int>(), 0);
  std::filesystem::resize_file(path, bytes.size() + header.size() + count - 1);
  EXPECT_THROW(read_tensors(path), Error) << "cut off";
  std::filesystem::remove(path);
  EXPECT_THROW(read_tensors(path), Error) << "not there";
  EXPECT_THROW(read_tensors(testing::TempDir()), Error) << "a folder";
}

// What a header says is held against the file before anything is made room for.
TEST(TensorIo, ABrokenHeaderTakesNoMemory) {
  const auto with_header = [](std::uint64_t length, const std::string& rest) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes + rest;
  };
  for (const std::uint64_t length : {std::uint64_t{1} << 62, std::uint64_t{0x4141414141414141},
                                     std::uint64_t{kMaxHeaderBytes + 1}, std::uint64_t{1}}) {
    EXPECT_THROW(unpack_tensors(with_header(length, std::string(64, 'A')), "length"), Error);
  }
  const std::string huge =
      R"({"w":{"dtype":"F64","shape":[1099511627776],"data_offsets":[0,8796093022208]}})";
  EXPECT_THROW(unpack_tensors(with_header(huge.size(), huge), "shape"), Error);
  // A thousand tensors of the same megabyte.
  std::string many = "{";
  for (int i = 0; i < 1000; ++i) {
    many += fmt::format(R"({}"w{}":{{"dtype":"U8","shape":[1048576],"data_offsets":[0,1048576]}})",
                        i > 0 ? "," : "", i);
  }
  many += "}";
  EXPECT_THROW(unpack_tensors(with_header(many.size(), many + std::string(1 << 20, 'x')), "many"),
               Error);
}

// One bit anywhere: in a name, a shape, the metadata, the checksum itself, a value. Without the key
// the file is one without a checksum, and says so.
TEST(TensorIo, AFlippedBitIsFound) {
  const std::string whole = pack_tensors(example());
  EXPECT_TRUE(unpack_tensors(whole, "test").checked);
  const std::size_t key = whole.find("\"checksum\"") + 1;
  int unchecked = 0;
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const bool in_key = bit / 8 >= key && bit / 8 < key + std::strlen("checksum");
    try {
      const TensorFile file = unpack_tensors(bytes, "flipped");
      EXPECT_TRUE(in_key) << "bit " << bit;
      EXPECT_FALSE(file.checked) << "bit " << bit;
      ++unchecked;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    }
  }
  EXPECT_GT(unchecked, 0);
}

// Files of others have none, and load; one that is not XXH3 in the form that is written is refused.
TEST(TensorIo, ChecksumsOfOthersAreRefused) {
  const auto with_metadata = [](const std::string& metadata) {
    const std::string header = R"({"__metadata__":{)" + metadata +
                               R"(},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    return bytes + header + "x";
  };
  EXPECT_FALSE(unpack_tensors(with_metadata(R"("a":"b")"), "test").checked);
  for (const char* metadata :
       {R"("checksum":"crc32c:00000000")", R"("checksum":"xxh3:0")", R"("checksum":"")",
        R"("checksum": "xxh3:0000000000000000")", R"("checksum":"xxh3:0000000000000000")",
        R"("a\"checksum":"xxh3:0000000000000000","checksum":"xxh3:")"}) {
    try {
      unpack_tensors(with_metadata(metadata), "test");
      ADD_FAILURE() << metadata;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_THAT(error.what(), testing::HasSubstr("checksum")) << metadata;
    }
  }
}

// Strides are products of sizes, also of a tensor without elements.
TEST(TensorIo, ImpossibleShapesAreInputErrors) {
  const auto file_of = [](const std::string& shape, const std::string& dtype,
                          const std::string& data) {
    const std::string header =
        fmt::format(R"({{"w":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})", dtype, shape,
                    data.size());
    const std::uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes + header + data;
  };
  const std::string wide = "1099511627776";
  EXPECT_THROW(unpack_tensors(file_of("0," + wide + "," + wide, "F32", ""), "wide"), Error);
  std::string many = "1";
  for (int i = 0; i < 1000; ++i) many += ",1";
  EXPECT_THROW(unpack_tensors(file_of(many, "U8", "x"), "many"), Error);
  EXPECT_THROW(unpack_tensors(file_of("2", "BOOL", std::string("\1\2")), "bool"), Error);
  EXPECT_EQ(unpack_tensors(file_of("0," + wide, "F32", ""), "none").tensors.at("w").numel(), 0);
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
