// Reading of files, whole (plain or gzip) or in pieces, and atomic writing.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace heterog {

// Throws that a file cannot be written, with exit code 4: the arguments may be right and the disk
// full.
template <class... Args>
[[noreturn]] void fail_output(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::kVerification, fmt::format(format, std::forward<Args>(args)...));
}

// The most that is read or decompressed: 17 times the largest graph of the zoo.
inline constexpr std::size_t kMaxFileBytes = std::size_t{128} << 20;
// Once it has given kFreeRatioBytes, a gzip may unfold to so many times its own size. Graphs do to
// 19 times theirs; deflate can to 1032.
inline constexpr std::size_t kMaxGzipRatio = 200;
inline constexpr std::size_t kFreeRatioBytes = std::size_t{4} << 20;

// Throws an input error if the file is missing, a folder, unreadable, too large, or a damaged gzip.
std::string read_file(const std::string& path);

// A file of any size that is read in pieces. Input errors as of read_file, and if it ends early.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::size_t size() const { return size_; }
  void read(void* to, std::size_t begin, std::size_t count) const;

 private:
  const std::string path_;
  const int descriptor_;
  std::size_t size_ = 0;
};

// Writes to a temporary name in the same folder, syncs, renames: readers see the old file or the
// new one, whole. Throws an output error naming the path if it cannot be written. A file that is
// replaced leaves its mode and, where that is allowed, its owner to the new one. A link is kept and
// its target replaced; a device or pipe is written in place.
void write_file(const std::string& path, std::string_view content);
// Throws what write_file would before it wrote anything: asked before long work, whose result would
// have nowhere to go. Pipes and devices are not touched.
void expect_writable(const std::string& path);
// With the folders that lead to it; an output error naming it if it cannot be made.
void make_folder(const std::string& path);

// The same in pieces: what `path` leads to is replaced by commit(), and by nothing before. Errors
// as of write_file, from any of its calls; what comes after one is undefined but for the
// destructor.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();  // leaves nothing behind that was not committed
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void append(std::string_view content);
  // In place of as many bytes from `begin` on, all of which have been appended.
  void overwrite(std::size_t begin, std::string_view content);
  void commit();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Adds to the end of a file, or makes it, and syncs. Interrupted, it may leave a part.
void append_file(const std::string& path, std::string_view content);
void write_gzip_file(const std::string& path, std::string_view content);

// The same on bytes in memory; `source` names them in messages.
bool is_gzip(std::string_view bytes);
std::string gunzip(std::string_view bytes, const std::string& source);
std::string gzip(std::string_view content);

}  // namespace heterog
