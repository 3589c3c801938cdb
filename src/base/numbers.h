// Numbers out of words that somebody typed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heterog {

struct IntegerRange {
  std::int64_t least = 0;
  std::int64_t most = 0;
};
struct NumberRange {
  double least = 0;
  double most = 0;
};

// The whole word, in decimals, and in range; anything else is an input error that names option,
// word and range.
std::int64_t parse_integer(std::string_view option, std::string_view word, IntegerRange range);
double parse_number(std::string_view option, std::string_view word, NumberRange range);

}  // namespace heterog
