// Named tensors and texts in one file: the safetensors format, which other tools read as well.
#pragma once

#include <torch/types.h>

#include <map>
#include <string>

namespace heterog::tensors {

struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, torch::Tensor> tensors;  // on the CPU, contiguous once read
};

// An 8-byte little-endian length, a JSON header, the bytes of the tensors in the order of their
// names: the same contents give the same bytes.
std::string pack_tensors(const TensorFile& file);
// Throws an input error naming `source` on anything that is not such a file, whole.
TensorFile unpack_tensors(const std::string& bytes, const std::string& source);

}  // namespace heterog::tensors
