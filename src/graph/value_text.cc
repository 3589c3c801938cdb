// Parses and prints the string form of arguments.
#include "graph/value_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace heterog::graph {
namespace {

// Beside the names of dtypes.
constexpr std::string_view kSymbols[] = {"device",        "strided",          "contiguous_format",
                                         "channels_last", "channels_last_3d", "preserve_format"};

// number·B + offset with real coefficients.
struct RealAffine {
  double number = 1;
  double offset = 0;
};

// Takes a finite number from the front of `text`; nothing if there is none.
std::optional<double> take_number(std::string_view& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

// All of `text`, after a coefficient that has been read (if any): "B", "B+0.5", "B-3".
std::optional<RealAffine> rest_of_affine(std::string_view text, double number) {
  if (!take(text, 'B')) return std::nullopt;
  RealAffine result{number, 0};
  if (text.empty()) return result;
  if (take(text, '+') ? text.starts_with('-') : !text.starts_with('-')) return std::nullopt;
  const auto offset = take_number(text);
  if (!offset || !text.empty()) return std::nullopt;
  result.offset = *offset;
  return result;
}

std::optional<RealAffine> real_affine(std::string_view text) {
  if (text.starts_with('B')) return rest_of_affine(text, 1);
  if (text.starts_with("-B")) return rest_of_affine(text.substr(1), -1);
  const auto number = take_number(text);
  return number ? rest_of_affine(text, *number) : std::nullopt;
}

bool whole(double x) { return x == std::floor(x) && std::abs(x) <= kMaxCoefficient; }

std::optional<Value> parse_scalar(std::string_view text) {
  Value value;
  std::string_view rest = text;
  const auto number = take_number(rest);
  if (number && take(rest, '/')) {
    const auto over = real_affine(rest);
    if (!over || !whole(over->number) || !whole(over->offset)) return std::nullopt;
    value.kind = Value::Kind::kReciprocal;
    value.number = *number;
    value.integer = {static_cast<std::int64_t>(over->number),
                     static_cast<std::int64_t>(over->offset)};
    // B - 1, of a variance, is 0 at one batch alone, where PyTorch divides by 0 too.
    if (value.integer.a == 0 && value.integer.c == 0) return std::nullopt;
    return value;
  }
  const auto affine = real_affine(text);
  if (!affine) return std::nullopt;
  value.kind = Value::Kind::kScalar;
  value.number = affine->number;
  value.offset = affine->offset;
  if (const auto integer = parse_affine(text)) value.integer = *integer;
  return value;
}

std::optional<Value> parse_symbol(std::string_view text) {
  Value value;
  value.kind = Value::Kind::kFloat;
  if (text == "inf" || text == "-inf" || text == "nan") {
    value.number = text == "nan" ? std::numeric_limits<double>::quiet_NaN()
                                 : std::numeric_limits<double>::infinity();
    if (text == "-inf") value.number = -value.number;
    return value;
  }
  if (!find_dtype(text) && std::ranges::find(kSymbols, text) == std::end(kSymbols)) {
    return std::nullopt;
  }
  value.kind = Value::Kind::kSymbol;
  value.text = text;
  return value;
}

std::optional<Value> parse_tensor(std::string_view text) {
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  Value value;
  value.kind = Value::Kind::kTensor;
  value.tensor = TensorId(id);
  return value.tensor.valid() ? std::optional(value) : std::nullopt;
}

// Not of integers: the slope of 2 is written "2.0".
std::string real_affine_text(double number, double offset) {
  const std::string slope = fmt::format("{}{}B", number, whole(number) ? ".0" : "");
  return offset == 0 ? slope : fmt::format("{}{:+}", slope, offset);
}

}  // namespace

std::optional<Value> parse_value(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const std::string_view rest = text.substr(1);
  switch (text[0]) {
    case '%':
      return parse_tensor(rest);
    case '$':
      return parse_scalar(rest);
    case ':':
      return parse_symbol(rest);
    case '#': {
      const auto affine = parse_affine(rest);
      if (!affine) return std::nullopt;
      Value value;
      value.kind = Value::Kind::kSize;
      value.integer = *affine;
      return value;
    }
    case '\'': {
      Value value;
      value.kind = Value::Kind::kString;
      value.text = rest;
      return value;
    }
    default:
      return std::nullopt;
  }
}

std::string value_text(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kTensor:
      return fmt::format("%{}", value.tensor.value());
    case Value::Kind::kSize:
      return value.integer.constant() ? fmt::format("#0B{:+}", value.integer.c)
                                      : "#" + affine_text(value.integer);
    case Value::Kind::kScalar:
      return "$" + (value.integer.constant() ? real_affine_text(value.number, value.offset)
                                             : affine_text(value.integer));
    case Value::Kind::kReciprocal:
      return fmt::format("${}/{}", value.number,
                         value.integer.constant() ? fmt::format("0B{:+}", value.integer.c)
                                                  : affine_text(value.integer));
    case Value::Kind::kSymbol:
      return ":" + value.text;
    case Value::Kind::kString:
      return "'" + value.text;
    case Value::Kind::kFloat:
      if (std::isnan(value.number)) return ":nan";
      if (std::isinf(value.number)) return value.number > 0 ? ":inf" : ":-inf";
      break;
    default:
      break;
  }
  ENSURE(!"an argument that JSON writes as itself");
  return {};
}

}  // namespace heterog::graph
