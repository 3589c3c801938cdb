// Named tensors and texts in one file: the safetensors format, which other tools read as well.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <map>
#include <string>

namespace heterog::tensors {

struct TensorFile {
  std::map<std::string, std::string> metadata;   // without the checksum
  std::map<std::string, torch::Tensor> tensors;  // on the CPU, contiguous once read
  bool checked = false;                          // read, and a checksum held
};

// The most that a header may hold, as in the format's own library: tensors have no limit.
inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;

// An 8-byte little-endian length, a JSON header, the bytes of the tensors in the order of their
// names: the same contents give the same bytes. Metadata `checksum` is XXH3 of the whole file with
// zeros in place of its own digits, so that it covers names, shapes and metadata too.
std::string pack_tensors(const TensorFile& file);
// Throws an input error naming `source` on anything that is not such a file, whole, and where the
// checksum, if there is one, does not hold.
TensorFile unpack_tensors(const std::string& bytes, const std::string& source);
// The same of a file of any size, whose tensors are read one after another to where they stay.
TensorFile read_tensors(const std::string& path);

}  // namespace heterog::tensors
