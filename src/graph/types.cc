// Names of the vocabulary, and the text form of sizes.
#include "graph/types.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace heterog::graph {
namespace {

constexpr std::array<std::string_view, 10> kDTypes = {"float16", "bfloat16", "float32", "float64",
                                                      "int8",    "uint8",    "int16",   "int32",
                                                      "int64",   "bool"};
constexpr std::array<Bytes, 10> kElementBytes = {2, 2, 4, 8, 1, 1, 2, 4, 8, 1};
constexpr std::array<std::string_view, 3> kPhases = {"forward", "backward", "update"};
constexpr std::array<std::string_view, 7> kRoles = {
    "input", "parameter", "buffer", "optimizer_state", "activation", "gradient", "output"};

template <class Enum, std::size_t size>
std::optional<Enum> find(const std::array<std::string_view, size>& names, std::string_view name) {
  for (std::size_t i = 0; i < size; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

// Takes an integer of at most kMaxCoefficient from the front of `text`; nothing if there is none.
std::optional<std::int64_t> take_integer(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value > kMaxCoefficient || value < -kMaxCoefficient) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

}  // namespace

Bytes element_bytes(DType dtype) { return kElementBytes[static_cast<std::size_t>(dtype)]; }
std::string_view dtype_name(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }
std::optional<DType> find_dtype(std::string_view name) { return find<DType>(kDTypes, name); }

std::string_view phase_name(Phase phase) { return kPhases[static_cast<std::size_t>(phase)]; }
std::optional<Phase> find_phase(std::string_view name) { return find<Phase>(kPhases, name); }

std::string_view role_name(TensorRole role) { return kRoles[static_cast<std::size_t>(role)]; }
std::optional<TensorRole> find_role(std::string_view name) {
  return find<TensorRole>(kRoles, name);
}

std::string affine_text(const Affine& affine) {
  if (affine.a == 0) return fmt::format("{}", affine.c);
  const std::string head = affine.a == 1    ? "B"
                           : affine.a == -1 ? "-B"
                                            : fmt::format("{}B", affine.a);
  return affine.c == 0 ? head : fmt::format("{}{:+}", head, affine.c);
}

std::optional<Affine> parse_affine(std::string_view text) {
  Affine result{1, 0};
  if (text.starts_with("-B")) {
    result.a = -1;
    text.remove_prefix(1);
  } else if (!text.starts_with('B')) {
    const auto a = take_integer(text);
    if (!a) return std::nullopt;
    result.a = *a;
  }
  if (!text.starts_with('B')) return std::nullopt;
  text.remove_prefix(1);
  if (text.empty()) return result;
  const bool plus = text.starts_with('+');
  if (!plus && !text.starts_with('-')) return std::nullopt;
  if (plus) text.remove_prefix(1);
  if (plus && text.starts_with('-')) return std::nullopt;
  const auto c = take_integer(text);
  if (!c || !text.empty()) return std::nullopt;
  result.c = *c;
  return result;
}

}  // namespace heterog::graph
