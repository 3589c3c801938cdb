// Named tensors and texts in one file: the safetensors format, which other tools read as well.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace heterog::tensors {

using Metadata = std::map<std::string, std::string>;  // without the checksum

struct TensorFile {
  Metadata metadata;
  std::map<std::string, at::Tensor> tensors;  // on the CPU, contiguous once read
  bool checked = false;                       // read, and a checksum held
};

// The form of a tensor, as a header says it.
struct TensorForm {
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> shape;
};
using TensorForms = std::map<std::string, TensorForm>;

// The most that a header may hold, as in the format's own library: tensors have no limit.
inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;

// An 8-byte little-endian length, a JSON header, the bytes of the tensors in the order of their
// names: the same contents give the same bytes. Metadata `checksum` is XXH3 of the whole file with
// zeros in place of its own digits, so that it covers names, shapes and metadata too.
std::string pack_tensors(const TensorFile& file);
// The same bytes, to a file that is replaced whole (base/file.h). Each tensor is asked for once, in
// the order of names, when it is about to be written, and let go before the next: of all tensors,
// one at a time is in memory. Throws what `value_of` throws, and input errors that name the path.
void write_tensors(const std::string& path, const Metadata& metadata, const TensorForms& forms,
                   const std::function<at::Tensor(const std::string& name)>& value_of);
void write_tensors(const std::string& path, const TensorFile& file);

// Throws an input error naming `source` on anything that is not such a file, whole, and where the
// checksum, if there is one, does not hold.
TensorFile unpack_tensors(const std::string& bytes, const std::string& source);
TensorFile read_tensors(const std::string& path);

// The same of a file whose tensors are read when they are wanted. All of it is gone through when it
// is opened, with all checks, so nothing is taken from a file that is damaged anywhere; what stays
// in memory is the header.
class TensorReader {
 public:
  explicit TensorReader(const std::string& path);
  ~TensorReader();
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  const Metadata& metadata() const;
  bool checked() const;  // there was a checksum, and it held
  const TensorForms& forms() const;
  // One of `forms`, on the CPU and contiguous, in memory of the reader: as large as the largest
  // tensor, and overwritten by the next call. From one thread.
  at::Tensor read(const std::string& name) const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace heterog::tensors
