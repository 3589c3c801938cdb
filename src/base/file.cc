// Whole files in and out: gzip by its first bytes, atomic replacement by rename.
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/nearest_file.h"
#include "base/text.h"

namespace heterog {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 18;
constexpr std::size_t kPathLimit = 400;  // of a path in a message

std::string shown(const std::string& path) { return printable(path, kPathLimit); }

// Names that another program left behind, or one that wants to be written through, are passed over.
constexpr int kTemporaryNames = 100;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool close() {
    const int fd = fd_;
    fd_ = -1;
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

// By the errno of the call that failed.
[[noreturn]] void fail_written(const std::string& path) {
  fail_output("{}: cannot write: {}", shown(path), std::strerror(errno));
}

void write_all(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t wrote = ::write(fd, content.data(), content.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail_written(path);
    content.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

std::string read_bytes(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (const int why = errno; file.get() < 0) {
    fail_input("{}: cannot open: {}{}", shown(path), std::strerror(why),
               why == ENOENT ? did_you_mean_file(path) : "");
  }
  struct stat status = {};
  VALIDATE(::fstat(file.get(), &status) == 0, "{}: cannot open: {}", shown(path),
           std::strerror(errno));
  VALIDATE(!S_ISDIR(status.st_mode), "{}: is a folder, expected a file", shown(path));
  const auto expected = static_cast<std::size_t>(std::max<off_t>(status.st_size, 0));
  VALIDATE(expected <= kMaxFileBytes, "{}: {} bytes, the most that is read is {}", shown(path),
           expected, kMaxFileBytes);
  std::string bytes;
  std::size_t size = 0;
  while (true) {
    VALIDATE(size <= kMaxFileBytes, "{}: larger than {} bytes, the most that is read", shown(path),
             kMaxFileBytes);
    if (bytes.size() - size < kChunk) {
      bytes.resize(std::max(
          {size + kChunk, expected + kChunk, std::min(size + size / 2, kMaxFileBytes + kChunk)}));
    }
    const ssize_t got = ::read(file.get(), bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    VALIDATE(got >= 0, "{}: cannot read: {}", shown(path), std::strerror(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  bytes.resize(size);
  return bytes;
}

struct Temporary {
  std::string name;
  int descriptor = -1;
};

// A new file beside `target`, never one that is there: whoever may write to the folder could have
// put a link in its place. It is as closed as can be until it has the mode of what it replaces.
Temporary open_temporary(const std::string& target, bool replaces) {
  static std::atomic<unsigned> counter{0};  // names differ between threads of one process
  Temporary result;
  for (int i = 0; i < kTemporaryNames; ++i) {
    result.name = fmt::format("{}.{}-{}.tmp", target, ::getpid(), counter++);
    result.descriptor =
        ::open(result.name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
               replaces ? 0600 : 0666);
    if (result.descriptor >= 0 || errno != EEXIST) break;
  }
  return result;
}

// Gives a new file the owner, where we may, and the mode of the one that it replaces. False if the
// mode cannot be set. A file that stays ours must not run as its owner or group: they are others.
bool inherit(int descriptor, const struct stat& replaced) {
  struct stat own = {};
  if (::fstat(descriptor, &own) != 0) return false;
  mode_t mode = replaced.st_mode & 07777;
  const bool same = own.st_uid == replaced.st_uid && own.st_gid == replaced.st_gid;
  if (!same && ::fchown(descriptor, replaced.st_uid, replaced.st_gid) != 0) mode &= 01777;
  return ::fchmod(descriptor, mode) == 0;
}

// Where `path` really leads, so that a link is kept and its target replaced.
std::string resolved(const std::string& path) {
  std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : path;
}

// The last four bytes tell the size before compression, modulo 2^32 and unless they lie: so much is
// taken at first, and no more than may come out.
std::size_t size_hint(std::string_view bytes) {
  if (bytes.size() < 4) return kChunk;
  std::size_t size = 0;
  for (std::size_t i = 1; i <= 4; ++i) {
    size = size << 8 | static_cast<unsigned char>(bytes[bytes.size() - i]);
  }
  const std::size_t most = std::max(kFreeRatioBytes, bytes.size() * kMaxGzipRatio);
  return std::min({size, most, kMaxFileBytes}) + kChunk;
}

}  // namespace

bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

std::string gunzip(std::string_view bytes, const std::string& source) {
  z_stream stream = {};
  ENSURE(inflateInit2(&stream, 15 + 16) == Z_OK);  // 32 KiB window, gzip header
  std::unique_ptr<z_stream, decltype(&inflateEnd)> guard(&stream, &inflateEnd);
  std::string text(size_hint(bytes), '\0');
  std::size_t size = 0;
  std::size_t consumed = 0;
  while (true) {
    if (text.size() - size < kChunk) {
      text.resize(std::min(size + std::max(kChunk, size / 2), kMaxFileBytes + 2 * kChunk));
    }
    // zlib counts in 32 bits, and inputs are at most kMaxFileBytes.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + consumed));
    stream.avail_in = static_cast<uInt>(bytes.size() - consumed);
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + size);
    stream.avail_out = static_cast<uInt>(text.size() - size);
    const int status = inflate(&stream, Z_NO_FLUSH);
    consumed = bytes.size() - stream.avail_in;
    size = text.size() - stream.avail_out;
    VALIDATE(size <= kMaxFileBytes, "{}: holds more than {} bytes once decompressed", shown(source),
             kMaxFileBytes);
    VALIDATE(size <= kFreeRatioBytes || size / kMaxGzipRatio <= bytes.size(),
             "{}: unfolds to more than {} times its size, as no file of ours does", shown(source),
             kMaxGzipRatio);
    if (status == Z_STREAM_END) {
      if (consumed == bytes.size()) break;
      const std::string_view rest = bytes.substr(consumed);
      if (rest.find_first_not_of('\0') == rest.npos) break;  // padding, as on tapes
      VALIDATE(is_gzip(rest), "{}: damaged gzip: {} bytes follow its end", shown(source),
               rest.size());
      inflateReset(&stream);
      continue;
    }
    VALIDATE(status == Z_OK || status == Z_BUF_ERROR, "{}: damaged gzip: {}", shown(source),
             stream.msg ? stream.msg : "not a deflate stream");
    VALIDATE(stream.avail_in > 0 || stream.avail_out == 0,
             "{}: damaged gzip: it ends early, as if cut off", shown(source));
  }
  text.resize(size);
  return text;
}

std::string gzip(std::string_view content) {
  ENSURE(content.size() < std::size_t{1} << 32);  // zlib counts in 32 bits
  z_stream stream = {};
  // A gzip header without name or time: equal contents give equal files.
  ENSURE(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::unique_ptr<z_stream, decltype(&deflateEnd)> guard(&stream, &deflateEnd);
  std::string bytes(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  ENSURE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  bytes.resize(stream.total_out);
  return bytes;
}

std::string read_file(const std::string& path) {
  std::string bytes = read_bytes(path);
  return is_gzip(bytes) ? gunzip(bytes, path) : bytes;
}

InputFile::InputFile(const std::string& path)
    : path_(shown(path)), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  VALIDATE(descriptor_ >= 0, "{}: cannot open: {}", path_, std::strerror(errno));
  struct stat status = {};
  const bool plain = ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  if (!plain) ::close(descriptor_);
  VALIDATE(plain, "{}: is no file that can be read in pieces", path_);
  size_ = static_cast<std::size_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(void* to, std::size_t begin, std::size_t count) const {
  char* at = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, at, count, static_cast<off_t>(begin));
    if (got < 0 && errno == EINTR) continue;
    VALIDATE(got >= 0, "{}: cannot read: {}", path_, std::strerror(errno));
    VALIDATE(got > 0, "{}: ends early, as if it was cut while it was read", path_);
    at += got;
    begin += static_cast<std::size_t>(got);
    count -= static_cast<std::size_t>(got);
  }
}

struct OutputFile::State {
  explicit State(const std::string& given) : path(given), target(resolved(given)) {}
  ~State() {
    if (!temporary.empty()) ::unlink(temporary.c_str());
  }

  const std::string path;    // as given, for messages
  const std::string target;  // where it leads
  std::optional<struct stat> replaced;
  bool in_place = false;  // a pipe or /dev/null is written, never replaced
  std::string kept;       // for those, which cannot go back in what they were given
  std::string temporary;  // empty once it has the target's name
  std::optional<Descriptor> file;
};

OutputFile::OutputFile(const std::string& path) : state_(std::make_unique<State>(path)) {
  State& state = *state_;
  struct stat status = {};
  if (::stat(state.target.c_str(), &status) == 0) state.replaced = status;
  if (state.replaced && S_ISDIR(status.st_mode)) {
    fail_output("{}: is a folder, expected a file name", shown(path));
  }
  state.in_place = state.replaced && !S_ISREG(status.st_mode);
  if (state.in_place) {
    state.file.emplace(::open(state.target.c_str(), O_WRONLY | O_CLOEXEC));
  } else {
    const Temporary temporary = open_temporary(state.target, state.replaced.has_value());
    state.file.emplace(temporary.descriptor);
    if (temporary.descriptor >= 0) state.temporary = temporary.name;
  }
  if (state.file->get() < 0) fail_written(path);
}

OutputFile::~OutputFile() = default;

void OutputFile::append(std::string_view content) {
  if (state_->in_place) {
    state_->kept += content;
  } else {
    write_all(state_->file->get(), content, state_->path);
  }
}

void OutputFile::overwrite(std::size_t begin, std::string_view content) {
  if (state_->in_place) {
    state_->kept.replace(begin, content.size(), content);
    return;
  }
  while (!content.empty()) {
    const ssize_t wrote =
        ::pwrite(state_->file->get(), content.data(), content.size(), static_cast<off_t>(begin));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail_written(state_->path);
    begin += static_cast<std::size_t>(wrote);
    content.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

void OutputFile::commit() {
  State& state = *state_;
  if (state.in_place) return write_all(state.file->get(), state.kept, state.path);
  const bool placed = (!state.replaced || inherit(state.file->get(), *state.replaced)) &&
                      ::fsync(state.file->get()) == 0 && state.file->close() &&
                      ::rename(state.temporary.c_str(), state.target.c_str()) == 0;
  if (!placed) fail_written(state.path);
  state.temporary.clear();
  // The new name is on disk once the folder is.
  const auto slash = state.target.rfind('/');
  const std::string folder = slash == state.target.npos ? "." : state.target.substr(0, slash + 1);
  Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) ::fsync(directory.get());
}

void write_file(const std::string& path, std::string_view content) {
  OutputFile file(path);
  file.append(content);
  file.commit();
}

void append_file(const std::string& path, std::string_view content) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file.get() < 0) fail_written(path);
  write_all(file.get(), content, path);
  if (::fsync(file.get()) != 0 || !file.close()) fail_written(path);
}

void expect_writable(const std::string& path) {
  struct stat status = {};
  // Opening a pipe and closing it again would end whoever reads there.
  const bool there = ::stat(path.c_str(), &status) == 0;
  if (there && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return;
  const OutputFile file(path);
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    fail_output("{}: cannot be made: {}; name a folder that can be written", shown(path),
                error.message());
  }
}

void write_gzip_file(const std::string& path, std::string_view content) {
  write_file(path, gzip(content));
}

}  // namespace heterog
