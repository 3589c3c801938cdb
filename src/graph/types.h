// The vocabulary of model graphs: ids, element types, roles, phases, sizes affine in the batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/units.h"

namespace heterog {

using OpId = Id<struct OpTag>;
using TensorId = Id<struct TensorTag>;
using GroupId = Id<struct GroupTag>;

namespace graph {

using OpTypeId = Id<struct OpTypeTag>;  // an ATen overload name, interned per graph

enum class DType : std::uint8_t {
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kInt8,
  kUInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool
};
Bytes element_bytes(DType dtype);
std::string_view dtype_name(DType dtype);  // "float32"
std::optional<DType> find_dtype(std::string_view name);

enum class Phase : std::uint8_t { kForward, kBackward, kUpdate };
std::string_view phase_name(Phase phase);
std::optional<Phase> find_phase(std::string_view name);

enum class TensorRole : std::uint8_t {
  kInput,
  kParameter,
  kBuffer,
  kOptimizerState,
  kActivation,
  kGradient,
  kOutput
};
std::string_view role_name(TensorRole role);
std::optional<TensorRole> find_role(std::string_view name);

// The largest batch: up to it, no size of a graph that was accepted overflows.
inline constexpr std::int64_t kMaxSamples = std::int64_t{1} << 20;
// The largest |a| and |c| of a size.
inline constexpr std::int64_t kMaxCoefficient = std::int64_t{1} << 40;
inline constexpr std::size_t kMaxRank = 64;  // dimensions of a tensor, as in PyTorch

// a·B + c, B the number of samples.
struct Affine {
  std::int64_t a = 0;
  std::int64_t c = 0;
  constexpr std::int64_t at(std::int64_t samples) const { return a * samples + c; }
  constexpr bool constant() const { return a == 0; }
  friend constexpr bool operator==(const Affine&, const Affine&) = default;
};
// "B", "4B", "4B+1", "B-1", "7".
std::string affine_text(const Affine& affine);
// The text of an affine that depends on B; nothing if it is malformed or out of range.
std::optional<Affine> parse_affine(std::string_view text);

}  // namespace graph
}  // namespace heterog
