// Reads numbers with std::from_chars, which takes no signs, spaces or locales beside them.
#include "base/numbers.h"

#include <charconv>
#include <optional>

#include "base/check.h"
#include "base/text.h"

namespace heterog {

namespace {

template <class Number>
std::optional<Number> whole_word(std::string_view word) {
  Number number{};
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace

std::int64_t parse_integer(std::string_view option, std::string_view word, IntegerRange range) {
  const auto number = whole_word<std::int64_t>(word);
  VALIDATE(number && *number >= range.least && *number <= range.most,
           "{}: \"{}\" given; it is an integer from {} to {}", option, printable(word), range.least,
           range.most);
  return *number;
}

double parse_number(std::string_view option, std::string_view word, NumberRange range) {
  const auto number = whole_word<double>(word);
  // Not a number compares with nothing.
  VALIDATE(number && *number >= range.least && *number <= range.most,
           "{}: \"{}\" given; it is a number from {:g} to {:g}", option, printable(word),
           range.least, range.most);
  return *number;
}

}  // namespace heterog
