// Whole-file reading (plain or gzip) and atomic writing.
#pragma once

#include <string>
#include <string_view>

namespace heterog {

// Throws an input error if the file is missing, a folder, unreadable, or a damaged gzip.
std::string read_file(const std::string& path);

// Writes to a temporary name in the same folder, syncs, renames: readers see the old file or the
// new one, whole. Throws an input error naming the path if it cannot be written.
void write_file(const std::string& path, std::string_view content);
void write_gzip_file(const std::string& path, std::string_view content);

}  // namespace heterog
