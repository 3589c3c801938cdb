// Words for shells.
#pragma once

#include <string>
#include <string_view>

namespace heterog {

// One word of a POSIX shell, in quotes where it needs them.
std::string shell_word(std::string_view text);

}  // namespace heterog
