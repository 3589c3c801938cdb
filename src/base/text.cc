// Makes printable lines of arbitrary bytes.
#include "base/text.h"

#include <cstdint>

namespace heterog {
namespace {

// Bytes of the well-formed UTF-8 character at the start of `text`, 0 if there is none. Overlong
// forms and surrogates count as ill-formed (RFC 3629).
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    const auto first = static_cast<std::uint8_t>(text[0]);
    const auto second = length == 2 ? static_cast<std::uint8_t>(text[1]) : std::uint8_t{0};
    const bool control = length == 1 ? first < 0x20 || first == 0x7f
                                     : first == 0xc2 && second < 0xa0;  // C1 controls
    const std::string_view piece =
        length == 0 || control ? std::string_view("?") : text.substr(0, length);
    if (result.size() + piece.size() > limit) return result + "...";
    result += piece;
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

}  // namespace heterog
