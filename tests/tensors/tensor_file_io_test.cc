// Tensor files come back as they were, and damage is an input error.
#include "tensors/tensor_file_io.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/check.h"
#include "base/checksum.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"

namespace heterog::tensors {
namespace {

TensorFile example() {
  return {.metadata = {{"format", "example"}, {"quote", "a \"b\"\n"}},
          .tensors = {{"a", at::arange(6, at::kFloat).reshape({2, 3})},
                      {"empty", at::empty({0, 4})},
                      {"flag", at::arange(3).ne(1)},
                      {"scalar", at::scalar_tensor(2.5, at::kDouble)},
                      {"transposed", at::arange(6, at::kLong).reshape({2, 3}).t()}}};
}

TEST(TensorIo, ComesBackAsItWas) {
  const TensorFile file = example();
  const std::string bytes = pack_tensors(file);
  EXPECT_EQ(bytes, pack_tensors(example()));
  const TensorFile back = unpack_tensors(bytes, "test");
  EXPECT_EQ(back.metadata, file.metadata);
  ASSERT_EQ(back.tensors.size(), file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    const at::Tensor& read = back.tensors.at(name);
    EXPECT_EQ(read.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(read, tensor)) << name;
  }
}

// Of the bytes that the first version of this code wrote: files do not change.
TEST(TensorIo, WritesTheSameBytesAsEver) {
  const std::string bytes = pack_tensors(example());
  EXPECT_EQ(bytes.size(), 491u);
  EXPECT_EQ(hash_text(checksum(bytes.data(), bytes.size())), "da7f6ff81bb07059");
  const std::string path = testing::TempDir() + "heterog_same_" + std::to_string(getpid());
  write_tensors(path, example());
  EXPECT_EQ(read_file(path), bytes);
  std::filesystem::remove(path);
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
  EXPECT_TRUE(at::equal(file.tensors.at("b"), at::tensor({1.0f})));
  EXPECT_TRUE(at::equal(file.tensors.at("w"), at::tensor({2.0f, 3.0f})));
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
  const at::Tensor read = read_tensors(path).tensors.at("w");
  ASSERT_EQ(read.numel(), static_cast<std::int64_t>(count));
  EXPECT_EQ(read[-1].item<int>(), 7);
  EXPECT_EQ(read[-2].item<int>(), 0);
  std::filesystem::resize_file(path, bytes.size() + header.size() + count - 1);
  EXPECT_THROW(read_tensors(path), Error) << "cut off";
  std::filesystem::remove(path);
  EXPECT_THROW(read_tensors(path), Error) << "not there";
  EXPECT_THROW(read_tensors(testing::TempDir()), Error) << "a folder";
}

class StreamTest : public testing::Test {
 protected:
  ~StreamTest() override { std::filesystem::remove(path_); }
  const std::string path_ = testing::TempDir() + "heterog_stream_" + std::to_string(getpid());
};

TEST_F(StreamTest, GivesTensorsWhenTheyAreWanted) {
  write_tensors(path_, example());
  const TensorReader reader(path_);
  EXPECT_EQ(reader.metadata(), example().metadata);
  EXPECT_TRUE(reader.checked());
  ASSERT_EQ(reader.forms().size(), example().tensors.size());
  for (const auto& [name, tensor] : example().tensors) {
    EXPECT_EQ(reader.forms().at(name).type, tensor.scalar_type()) << name;
    EXPECT_EQ(reader.forms().at(name).shape, tensor.sizes().vec()) << name;
    EXPECT_TRUE(reader.read(name).equal(tensor)) << name;
    EXPECT_TRUE(reader.read(name).equal(tensor)) << name << ", again";
  }
}

// In any tensor, also one that nobody asks for: nothing is read of such a file.
TEST_F(StreamTest, RefusesDamageBeforeTheFirstTensor) {
  const std::string whole = pack_tensors(example());
  for (std::size_t byte = 0; byte < whole.size(); byte += 5) {
    std::string bytes = whole;
    bytes[byte] = static_cast<char>(bytes[byte] ^ 2);
    write_file(path_, bytes);
    std::string streamed = "none";
    std::string at_once = "none";
    try {
      EXPECT_FALSE(TensorReader(path_).checked());
    } catch (const Error& error) {
      streamed = error.what();
    }
    try {
      unpack_tensors(bytes, path_);
    } catch (const Error& error) {
      at_once = error.what();
    }
    EXPECT_EQ(streamed, at_once) << byte;
  }
}

// Longer than what is checked at a time, and not a multiple of it.
TEST_F(StreamTest, ChecksLongTensorsToTheirEnd) {
  const TensorFile file{.metadata = {},
                        .tensors = {{"long", at::arange(300'001, at::kLong)},
                                    {"flags", at::ones({(1 << 20) + 1}, at::kBool)}}};
  write_tensors(path_, file);
  EXPECT_EQ(read_file(path_), pack_tensors(file));
  EXPECT_TRUE(TensorReader(path_).read("long").equal(file.tensors.at("long")));
  std::string bytes = read_file(path_);
  bytes.back() ^= 1;
  write_file(path_, bytes);
  EXPECT_THROW(TensorReader reader(path_), Error);
}

// A rank is lost, or says what it should not: the file that was there stays, and nothing beside it.
TEST_F(StreamTest, AWriteThatFailsLeavesTheFile) {
  write_tensors(path_, example());
  const TensorForms forms{{"a", {at::kFloat, {2}}}, {"b", {at::kFloat, {2}}}};
  const auto fails = [](const std::string& name) {
    if (name == "b") throw Error(ErrorKind::kVerification, "lost");
    return at::ones({2});
  };
  EXPECT_THROW(write_tensors(path_, {}, forms, fails), Error);
  const auto other = [](const std::string&) { return at::ones({3}); };
  EXPECT_THROW(write_tensors(path_, {}, forms, other), Error);
  EXPECT_EQ(read_file(path_), pack_tensors(example()));
  for (const auto& entry : std::filesystem::directory_iterator(testing::TempDir())) {
    const std::string name = entry.path().string();
    EXPECT_FALSE(name.starts_with(path_) && name != path_) << name;
  }
}

// Peak of what this process has had in memory since `work` began, beyond what it had then.
std::size_t peak_bytes_of(const std::function<void()>& work) {
  const auto kilobytes = [](const std::string& field) {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line)) {
      if (line.starts_with(field)) return std::stoul(line.substr(field.size()));
    }
    return 0ul;
  };
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins at what there is now
  const std::size_t before = kilobytes("VmRSS:");
  work();
  return (kilobytes("VmHWM:") - before) * 1024;
}

// 64 MiB in 16 tensors: at once all of them are in memory a second time; in a stream one is, and
// what is read is let go as soon as it has been seen.
TEST_F(StreamTest, TakesTheMemoryOfOneTensor) {
  constexpr std::size_t kTensor = std::size_t{4} << 20;
  constexpr std::size_t kAll = 16 * kTensor;
  TensorFile file;
  for (int i = 0; i < 16; ++i) {
    file.tensors[fmt::format("w{:02}", i)] = at::full({kTensor}, i, at::kByte);
  }
  EXPECT_LT(peak_bytes_of([&] { write_tensors(path_, file); }), 2 * kTensor);
  EXPECT_GT(peak_bytes_of([&] { write_file(path_, pack_tensors(file)); }), kAll / 2);
  EXPECT_LT(peak_bytes_of([&] {
              const TensorReader reader(path_);
              for (const auto& [name, form] : reader.forms()) {
                EXPECT_TRUE(reader.read(name).equal(file.tensors.at(name)));
              }
            }),
            3 * kTensor);
  EXPECT_GT(peak_bytes_of([&] { read_tensors(path_); }), kAll / 2);
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
