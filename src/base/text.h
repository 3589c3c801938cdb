// Text for messages: whatever the bytes, one printable line of bounded length.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heterog {

// Control characters and bytes that are not UTF-8 become '?'; what is longer than `limit` bytes is
// cut and ends in "...".
std::string printable(std::string_view text, std::size_t limit = 80);

}  // namespace heterog
