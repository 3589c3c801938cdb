// What hosts and files may be called where others name them; python/heterog/base/values.py has the
// same (tests/data/names.json is the table that both are tested with).
#pragma once

#include <string_view>

namespace heterog {

// "[USER@]NAME", up to 255 characters: ASCII letters, digits and ._:%[]- alone, so that no shell
// takes it for more than a word, and neither part begins with '-', so that ssh takes it for no
// option. IPv6 addresses are among them, with or without brackets and zone.
bool is_host_name(std::string_view text);

// What becomes the name of a file or a part of one: a printable line of UTF-8 of 1 to 100 bytes,
// without slashes, and with no dot in front. It leads to no other folder, and hides nothing.
bool is_file_name(std::string_view text);

}  // namespace heterog
