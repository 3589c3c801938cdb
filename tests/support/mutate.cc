// Random damage to texts.
#include "support/mutate.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

namespace heterog::support {
namespace {

// Tokens that readers of JSON have tripped over.
constexpr std::string_view kTokens[] = {"null",
                                        "true",
                                        "{}",
                                        "[]",
                                        "[[",
                                        "]]",
                                        "{",
                                        "}",
                                        "\"",
                                        "\"\"",
                                        ",",
                                        ":",
                                        "-1",
                                        "0",
                                        "1e999",
                                        "-0.0",
                                        "0.5",
                                        "1e-320",
                                        "4294967295",
                                        "4294967294",
                                        "4294967296",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "-9223372036854775808",
                                        "18446744073709551616",
                                        "\"%4294967295\"",
                                        "\"%999999\"",
                                        "\"#999999999999999999B\"",
                                        "\"-B\"",
                                        "\"1099511627776B\"",
                                        "\"$1/0B\"",
                                        "\"$nan\"",
                                        "\"\\u0000\"",
                                        "\"\\ud800\"",
                                        "\"\xff\xfe\"",
                                        "/*",
                                        "//",
                                        "\"output\"",
                                        "\"parameter\"",
                                        "\"backward\"",
                                        "\"aten.view.default\""};

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' ||
         c == '"' || c == '%' || c == '#';
}

// A run of word characters around a random place: [begin, end).
std::pair<std::size_t, std::size_t> random_token(const std::string& text, Rng& rng) {
  std::size_t begin = rng.below(text.size());
  std::size_t end = begin + 1;
  while (begin > 0 && is_word(text[begin]) && is_word(text[begin - 1])) --begin;
  while (end < text.size() && is_word(text[end - 1]) && is_word(text[end])) ++end;
  return {begin, end - begin};
}

void mutate_once(std::string& text, Rng& rng) {
  if (text.empty()) {
    text.push_back(static_cast<char>(rng.below(256)));
    return;
  }
  const std::size_t at = rng.below(text.size());
  const std::size_t length = 1 + rng.below(std::min<std::size_t>(text.size() - at, 64));
  switch (rng.below(8)) {
    case 0:
      text[at] = static_cast<char>(text[at] ^ (1 << rng.below(8)));
      break;
    case 1:
      text[at] = static_cast<char>(rng.below(256));
      break;
    case 2:
      text.erase(at, length);
      break;
    case 3:
      text.insert(rng.below(text.size()), text.substr(at, length));
      break;
    case 4:
      text.resize(at);
      break;
    case 5: {
      const auto [begin, size] = random_token(text, rng);
      text.replace(begin, size, kTokens[rng.below(std::size(kTokens))]);
      break;
    }
    default: {  // two tokens change places: numbers and names stay plausible
      const auto [first, first_size] = random_token(text, rng);
      const auto [second, second_size] = random_token(text, rng);
      if (second < first + first_size) break;
      const std::string token = text.substr(second, second_size);
      text.replace(second, second_size, text.substr(first, first_size));
      text.replace(first, first_size, token);
    }
  }
}

}  // namespace

std::string mutate(const std::string& text, Rng& rng) {
  std::string result = text;
  const std::uint64_t times = 1 + rng.below(1 + rng.below(4));  // often one alone
  for (std::uint64_t i = 0; i < times || result == text; ++i) mutate_once(result, rng);
  return result;
}

}  // namespace heterog::support
