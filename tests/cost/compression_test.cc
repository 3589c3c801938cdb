// What compressors are called, and what they make of a gradient.
#include "cost/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/check.h"
#include "cluster/builders.h"
#include "graph/graph_io.h"

namespace heterog::cost {
namespace {

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

std::string refused(const std::string& text) {
  return refusal([&] { parse_compression(text, "--compress"); });
}

TEST(Compression, ReadsWhatItWrites) {
  for (const char* text : {"none", "fp16", "bf16", "fp16,feedback", "bf16,feedback",
                           "powersgd:rank=1", "powersgd:rank=1024"}) {
    EXPECT_EQ(compression_text(parse_compression(text, "x")), text);
  }
  const Compression low = parse_compression("powersgd,feedback", "x");
  EXPECT_EQ(low, (Compression{Compressor::kPowerSgd, 2, true}));
  EXPECT_EQ(low, parse_compression("powersgd", "x"));
  EXPECT_EQ(parse_compression("bf16", "x"), (Compression{Compressor::kBfloat16, 0, false}));
}

TEST(Compression, RefusesInOneLine) {
  EXPECT_EQ(refused("fp61"),
            "--compress: \"fp61\" given (did you mean fp16?); it is none, fp16, bf16 or "
            "powersgd[:rank=R], each but none with ,feedback behind it");
  EXPECT_THAT(refused("powerSDG:rank=2"), testing::HasSubstr("did you mean powersgd?"));
  EXPECT_THAT(refused(std::string(5000, 'x')), testing::SizeIs(testing::Lt(250u)));
  EXPECT_THAT(refused(""), testing::HasSubstr("it is none, fp16"));
  EXPECT_EQ(refused("none,feedback"),
            "--compress: \"none,feedback\" given; without compression nothing is lost that could "
            "be fed back");
  EXPECT_EQ(refused("fp16:rank=2"), "--compress: \"fp16:rank=2\" given; powersgd alone has a rank");
  EXPECT_EQ(refused("powersgd:rank=0"),
            "--compress: rank: \"0\" given; it is an integer from 1 to 1024");
  EXPECT_THAT(refused("powersgd:rank=1025"), testing::HasSubstr("an integer from 1 to 1024"));
  EXPECT_THAT(refused("powersgd:rank="), testing::HasSubstr("--compress: rank"));
  EXPECT_THAT(refused("powersgd:rank=2x"), testing::HasSubstr("--compress: rank"));
}

// The largest weight, of 16 × 8, and the largest bias, in float32.
class OfAnMlp : public testing::Test {
 protected:
  const graph::ModelGraph graph_ = graph::read_graph("tests/data/mlp_sgd.json.gz");
  TensorId weight() const { return largest(2); }
  TensorId bias() const { return largest(1); }
  TensorId largest(std::size_t dimensions) const {
    TensorId found;
    for (TensorId tensor : graph_.tensor_ids()) {
      const graph::Tensor& info = graph_.tensor(tensor);
      if (info.role != graph::TensorRole::kGradient) continue;
      if (graph_.shape(tensor).size() != dimensions) continue;
      if (!found.valid() || graph_.bytes(tensor, 1) > graph_.bytes(found, 1)) found = tensor;
    }
    return found;
  }
};

TEST_F(OfAnMlp, BytesAndStateByHand) {
  const std::int64_t n = graph_.shape(weight())[0].c, m = graph_.shape(weight())[1].c;
  ASSERT_GT(n * m, n + m);
  const auto parsed = [](const char* text) { return parse_compression(text, "x"); };
  const auto bytes = [&](const char* text, TensorId tensor) {
    const Compression own = compression_of(parsed(text), graph_, tensor);
    const CompressedBytes moved = compressed_bytes(own, graph_, tensor);
    return std::tuple(moved.first, moved.second, compression_state(own, graph_, tensor));
  };
  using Found = std::tuple<Bytes, Bytes, Bytes>;
  EXPECT_EQ(bytes("none", weight()), Found(4 * n * m, 0, 0));
  EXPECT_EQ(bytes("fp16", weight()), Found(2 * n * m, 0, 0));
  EXPECT_EQ(bytes("bf16,feedback", weight()), Found(2 * n * m, 0, 4 * n * m));
  EXPECT_EQ(bytes("powersgd:rank=1", weight()), Found(4 * n, 4 * m, 4 * n * m + 4 * m));
  // A vector is no matrix; a cast takes it.
  const std::int64_t k = graph_.elements(bias(), 1);
  EXPECT_EQ(bytes("powersgd:rank=1", bias()), Found(4 * k, 0, 0));
  EXPECT_EQ(bytes("fp16", bias()), Found(2 * k, 0, 0));
  // Of the least rank at which the factors are not smaller it travels as it is.
  const auto least = static_cast<std::int32_t>((n * m + n + m - 1) / (n + m));
  const Compression low{Compressor::kPowerSgd, least, true};
  EXPECT_FALSE(compression_of(low, graph_, weight()).any());
  EXPECT_TRUE(compression_of({Compressor::kPowerSgd, least - 1, true}, graph_, weight()).any());
  // What is scattered or pushed is cast, or goes as it is.
  EXPECT_TRUE(cast_of(parsed("fp16"), graph_, weight()).any());
  EXPECT_FALSE(cast_of(parsed("powersgd:rank=1"), graph_, weight()).any());
}

TEST_F(OfAnMlp, TimeByHand) {
  cluster::DeviceType type = cluster::test_type();
  type.memory_bytes_per_second = 1e9;
  type.launch_seconds = 1e-6;
  for (double& share : type.efficiency) share = 0.5;  // 2 ns a byte
  const std::int64_t n = graph_.shape(weight())[0].c, m = graph_.shape(weight())[1].c;
  const auto duration = [&](const char* text) {
    return compression_duration(type,
                                compression_work(parse_compression(text, "x"), graph_, weight()));
  };
  EXPECT_EQ(duration("none"), 0);
  // There 4 + 2, back 2 + 4; with feedback 12 + 10 + 8 more.
  EXPECT_EQ(duration("fp16"), 2000 + 2 * 12 * n * m);
  EXPECT_EQ(duration("bf16,feedback"), 5000 + 2 * 42 * n * m);
  EXPECT_EQ(duration("powersgd:rank=2"),
            26000 + 2 * 4 * (10 * n * m + 3 * 2 * (n + m) + 2 * 12 * n));
}

TEST_F(OfAnMlp, WhatWouldCompressNothingIsRefused) {
  const auto refused = [&](const graph::ModelGraph& graph, const Compression& allowed) {
    return refusal([&] { check_compression(allowed, graph, "--compress"); });
  };
  EXPECT_EQ(refused(graph_, {Compressor::kHalf}), "accepted");
  EXPECT_EQ(refused(graph_, {Compressor::kPowerSgd, 1, true}), "accepted");
  const std::string line = refused(graph_, {Compressor::kPowerSgd, 1000, true});
  EXPECT_THAT(line, testing::HasSubstr("--compress: of rank 1000 no gradient of "));
  // The rank that it names is one that does.
  const auto at = line.find_last_of(' ');
  const int largest = std::stoi(line.substr(at));
  EXPECT_EQ(refused(graph_, {Compressor::kPowerSgd, largest, true}), "accepted");
  EXPECT_NE(refused(graph_, {Compressor::kPowerSgd, largest + 1, true}), "accepted");
}

}  // namespace
}  // namespace heterog::cost
