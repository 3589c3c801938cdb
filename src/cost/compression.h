// Compression of gradients on their way between devices, where the user allows it: it is lossy, and
// no planner decides it (decision 22).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cluster/cluster.h"
#include "graph/model_graph.h"

namespace heterog::cost {

enum class Compressor : std::uint8_t {
  kNone,
  kHalf,      // fp16: cast, added up in that type, cast back
  kBfloat16,  // bf16: the same
  // Of a gradient as a matrix, two thin factors (PowerSGD, Vogels et al. 2019,
  // https://arxiv.org/abs/1905.13727), each added up over all devices.
  kPowerSgd,
};
std::string_view compressor_name(Compressor compressor);  // "none", "fp16", "bf16", "powersgd"

inline constexpr std::int32_t kMaxCompressionRank = 1024;

// What the user allows for all gradients, and, on a value of a plan, what becomes of that one.
struct Compression {
  Compressor compressor = Compressor::kNone;
  std::int32_t rank = 0;  // kPowerSgd: columns of the factors; else 0
  // Every device adds to its next gradient what compression lost of this one. PowerSGD always does.
  bool feedback = false;

  bool any() const { return compressor != Compressor::kNone; }
  bool is_cast() const {
    return compressor == Compressor::kHalf || compressor == Compressor::kBfloat16;
  }
  friend bool operator==(const Compression&, const Compression&) = default;
};

// "none", "fp16", "bf16,feedback", "powersgd:rank=4"; of rank 2 if it names none. Throws an input
// error that begins with `where`.
Compression parse_compression(const std::string& text, const std::string& where);
std::string compression_text(const Compression& compression);

// What becomes of a gradient that is all-reduced, where `allowed` is allowed. Nothing of integers,
// of numbers, and of what would not get smaller:
// - A cast takes floating-point types wider than two bytes.
// - PowerSGD takes those whose shape is n × …, seen as a matrix n × m with (n + m) r < n m.
Compression compression_of(const Compression& allowed, const graph::ModelGraph& graph,
                           TensorId gradient);
// The same of one that is scattered to those who have the rows, or pushed to a server: casts alone.
Compression cast_of(const Compression& allowed, const graph::ModelGraph& graph, TensorId gradient);

// Throws an input error, which begins with `where`, if no gradient of the graph would get smaller.
void check_compression(const Compression& allowed, const graph::ModelGraph& graph,
                       const std::string& where);

// Bytes that an all-reduce of a value adds up, in two of them one after the other: the second is 0
// but for PowerSGD, which needs the sum of the first factor to make the second.
struct CompressedBytes {
  Bytes first = 0;
  Bytes second = 0;
  Bytes total() const { return first + second; }
  CompressedBytes& operator+=(const CompressedBytes& other) {
    first += other.first;
    second += other.second;
    return *this;
  }
};
// Of the value itself where `compression` is none. The value has no samples.
CompressedBytes compressed_bytes(const Compression& compression, const graph::ModelGraph& graph,
                                 TensorId tensor);
// Of `elements` of a type of `element_bytes`, by a cast or as they are.
Bytes cast_bytes(const Compression& compression, std::int64_t elements, Bytes element_bytes);

// Bytes that a device keeps for a gradient from step to step: what was lost, and PowerSGD's second
// factor, where the next step begins.
Bytes compression_state(const Compression& compression, const graph::ModelGraph& graph,
                        TensorId gradient);

// What a device reads and writes to make a value's compressed form and, of the sum, the value
// again, and how many kernels that takes.
struct CompressionWork {
  double bytes = 0;
  double launches = 0;
  CompressionWork& operator+=(const CompressionWork& other) {
    bytes += other.bytes;
    launches += other.launches;
    return *this;
  }
};
// Of `elements` that are cast, w bytes each, 2 in the compressed form:
//   there      read w, write 2
//   back       read 2, write w
//   feedback   read w and w, write w (the sum with what was lost); read w and 2, write w (what is
//              lost now), read w, write w (what is not finite is not kept)
CompressionWork cast_work(const Compression& compression, std::int64_t elements,
                          Bytes element_bytes);
// Of an all-reduced value. PowerSGD, of N = n m elements and rank r, w bytes each:
//   M + lost        3 N
//   P = M Q         N + (n + m) r
//   orthogonal P    n r (2 r + 8): column by column, twice against those before it
//   Q = M' P        N + (n + m) r
//   lost = M - P Q' 4 N, with what is not finite
//   P Q'            N + (n + m) r
CompressionWork compression_work(const Compression& compression, const graph::ModelGraph& graph,
                                 TensorId gradient);
// All of it at the rate at which the device's memory feeds elementwise operators, each kernel after
// its launch.
Nanoseconds compression_duration(const cluster::DeviceType& type, const CompressionWork& work);

}  // namespace heterog::cost
