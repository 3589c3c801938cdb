// Names of compressors, and what they make of a gradient: bytes, state and time.
#include "cost/compression.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/nearest.h"
#include "base/numbers.h"
#include "base/text.h"

namespace heterog::cost {
namespace {

constexpr std::int32_t kDefaultRank = 2;  // Vogels et al. 2019, image classification
constexpr Bytes kCastBytes = 2;
constexpr std::string_view kFeedback = ",feedback";
constexpr std::string_view kRank = ":rank=";
// Norms, two projections of two products, the factor, the column: of each column of P.
constexpr double kLaunchesPerColumn = 10;

bool is_wide_float(graph::DType dtype) {
  return dtype == graph::DType::kFloat32 || dtype == graph::DType::kFloat64;
}

// Of a gradient seen as a matrix: rows, and columns. Nothing if it is none.
std::optional<std::pair<std::int64_t, std::int64_t>> matrix_of(const graph::ModelGraph& graph,
                                                               TensorId tensor) {
  const auto shape = graph.shape(tensor);
  if (shape.size() < 2) return std::nullopt;
  for (const graph::Affine& size : shape) {
    if (!size.constant() || size.c < 1) return std::nullopt;
  }
  const std::int64_t rows = shape.front().c;
  return std::pair(rows, graph.elements(tensor, 1) / rows);
}

// Sizes are up to 2^40, so the product of the sizes may not fit: n m is known to.
bool gets_smaller(std::int64_t n, std::int64_t m, std::int64_t rank) {
  return static_cast<double>(n + m) * static_cast<double>(rank) <
         static_cast<double>(n) * static_cast<double>(m);
}

Bytes width(const graph::ModelGraph& graph, TensorId tensor) {
  return graph::element_bytes(graph.tensor(tensor).dtype);
}

}  // namespace

std::string_view compressor_name(Compressor compressor) {
  static constexpr std::array<std::string_view, 4> kNames = {"none", "fp16", "bf16", "powersgd"};
  return kNames[static_cast<std::size_t>(compressor)];
}

Compression parse_compression(const std::string& text, const std::string& where) {
  std::string name = text;
  Compression found;
  if (name.ends_with(kFeedback)) {
    found.feedback = true;
    name.resize(name.size() - kFeedback.size());
  }
  std::optional<std::string> rank;
  if (const auto at = name.find(kRank); at != std::string::npos) {
    rank = name.substr(at + kRank.size());
    name.resize(at);
  }
  static const std::vector<std::string> kNames = {"none", "fp16", "bf16", "powersgd"};
  const auto known = std::ranges::find(kNames, name);
  VALIDATE(known != kNames.end(),
           "{}: \"{}\" given{}; it is none, fp16, bf16 or powersgd[:rank=R], each but none with "
           ",feedback behind it",
           where, printable(text), did_you_mean(name, kNames));
  found.compressor = static_cast<Compressor>(known - kNames.begin());
  VALIDATE(found.any() || !found.feedback,
           "{}: \"{}\" given; without compression nothing is lost that could be fed back", where,
           printable(text));
  VALIDATE(!rank || found.compressor == Compressor::kPowerSgd,
           "{}: \"{}\" given; powersgd alone has a rank", where, printable(text));
  if (found.compressor == Compressor::kPowerSgd) {
    found.rank = kDefaultRank;
    found.feedback = true;
    if (rank) {
      found.rank = static_cast<std::int32_t>(
          parse_integer(where + ": rank", *rank, {1, kMaxCompressionRank}));
    }
  }
  return found;
}

std::string compression_text(const Compression& compression) {
  std::string text(compressor_name(compression.compressor));
  if (compression.compressor == Compressor::kPowerSgd) {
    return text + fmt::format("{}{}", kRank, compression.rank);
  }
  return compression.feedback ? text.append(kFeedback) : text;
}

Compression compression_of(const Compression& allowed, const graph::ModelGraph& graph,
                           TensorId gradient) {
  if (!allowed.any() || graph.shape(gradient).empty()) return {};
  if (!is_wide_float(graph.tensor(gradient).dtype) || graph.tensor(gradient).has_batch) return {};
  if (allowed.is_cast()) return allowed;
  const auto matrix = matrix_of(graph, gradient);
  return matrix && gets_smaller(matrix->first, matrix->second, allowed.rank) ? allowed
                                                                             : Compression{};
}

Compression cast_of(const Compression& allowed, const graph::ModelGraph& graph, TensorId gradient) {
  return allowed.is_cast() ? compression_of(allowed, graph, gradient) : Compression{};
}

void check_compression(const Compression& allowed, const graph::ModelGraph& graph,
                       const std::string& where) {
  if (!allowed.any()) return;
  std::int32_t largest = 0;  // rank by which any gets smaller
  for (TensorId tensor : graph.tensor_ids()) {
    if (graph.tensor(tensor).role != graph::TensorRole::kGradient) continue;
    if (compression_of(allowed, graph, tensor).any()) return;
    const auto matrix = matrix_of(graph, tensor);
    if (!matrix || !is_wide_float(graph.tensor(tensor).dtype)) continue;
    Compression higher = {Compressor::kPowerSgd, largest + 1, true};
    while (higher.rank < allowed.rank && compression_of(higher, graph, tensor).any()) {
      largest = higher.rank++;
    }
  }
  VALIDATE(allowed.is_cast(), "{}: of rank {} no gradient of {} gets smaller; {}", where,
           allowed.rank, graph.name(),
           largest > 0 ? fmt::format("the largest rank by which one does is {}", largest)
                       : "none is a matrix that could");
  fail_input("{}: {} makes no gradient of {} smaller: none has a type wider than 2 bytes", where,
             compression_text(allowed), graph.name());
}

Bytes cast_bytes(const Compression& compression, std::int64_t elements, Bytes element_bytes) {
  return elements * (compression.is_cast() ? kCastBytes : element_bytes);
}

CompressedBytes compressed_bytes(const Compression& compression, const graph::ModelGraph& graph,
                                 TensorId tensor) {
  if (compression.compressor != Compressor::kPowerSgd) {
    return {.first = cast_bytes(compression, graph.elements(tensor, 1), width(graph, tensor))};
  }
  const auto [n, m] = *matrix_of(graph, tensor);
  const Bytes column = compression.rank * width(graph, tensor);
  return {.first = n * column, .second = m * column};
}

Bytes compression_state(const Compression& compression, const graph::ModelGraph& graph,
                        TensorId gradient) {
  if (!compression.any()) return 0;
  Bytes state = compression.feedback ? graph.bytes(gradient, 1) : 0;
  if (compression.compressor == Compressor::kPowerSgd) {
    state += compressed_bytes(compression, graph, gradient).second;
  }
  return state;
}

CompressionWork cast_work(const Compression& compression, std::int64_t elements,
                          Bytes element_bytes) {
  if (!compression.is_cast()) return {};
  const auto w = static_cast<double>(element_bytes), half = static_cast<double>(kCastBytes);
  const double lost = compression.feedback ? 3 * w + (2 * w + half) + 2 * w : 0;
  return {.bytes = static_cast<double>(elements) * (2 * (w + half) + lost),
          .launches = compression.feedback ? 5.0 : 2.0};
}

CompressionWork compression_work(const Compression& compression, const graph::ModelGraph& graph,
                                 TensorId gradient) {
  const Bytes w = width(graph, gradient);
  if (compression.compressor != Compressor::kPowerSgd) {
    return cast_work(compression, graph.elements(gradient, 1), w);
  }
  const auto [rows, columns] = *matrix_of(graph, gradient);
  const auto n = static_cast<double>(rows), m = static_cast<double>(columns);
  const double r = compression.rank;
  const double elements = 10 * n * m + 3 * (n + m) * r + n * r * (2 * r + 8);
  return {.bytes = static_cast<double>(w) * elements, .launches = 6 + kLaunchesPerColumn * r};
}

Nanoseconds compression_duration(const cluster::DeviceType& type, const CompressionWork& work) {
  if (work.launches == 0) return 0;
  const double rate = type.memory_bytes_per_second *
                      type.efficiency[static_cast<int>(cluster::OpClass::kElementwise)];
  return to_nanoseconds(work.launches * type.launch_seconds + work.bytes / rate);
}

}  // namespace heterog::cost
