// Writes and reads the safetensors format.
#include "tensors/tensor_file_io.h"

#include <torch/torch.h>

#include <array>
#include <bit>
#include <cstring>
#include <functional>

#include "base/file.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace heterog::tensors {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kAlignment = 8;  // of the first tensor
constexpr const char* kMetadata = "__metadata__";

struct NamedType {
  const char* name;
  torch::ScalarType type;
};
constexpr std::array kTypes = {
    NamedType{"F32", torch::kFloat32}, NamedType{"F64", torch::kFloat64},
    NamedType{"F16", torch::kFloat16}, NamedType{"BF16", torch::kBFloat16},
    NamedType{"I64", torch::kInt64},   NamedType{"I32", torch::kInt32},
    NamedType{"U8", torch::kUInt8},    NamedType{"BOOL", torch::kBool},
};

std::string name_of(torch::ScalarType type) {
  for (const NamedType& known : kTypes) {
    if (known.type == type) return known.name;
  }
  throw Error(ErrorKind::kBug, fmt::format("no name for tensors of {}", c10::toString(type)));
}

torch::ScalarType type_of(const JsonValue& value) {
  const std::string name = value.as_string();
  for (const NamedType& known : kTypes) {
    if (name == known.name) return known.type;
  }
  fail_input("{}: type '{}' is not supported", value.where(), printable(name));
}

// Bytes that are fetched piece by piece.
struct Contents {
  std::size_t size = 0;
  std::function<void(void* to, std::size_t begin, std::size_t count)> fetch;
};

// `begin`: of the data.
torch::Tensor read_tensor(const JsonValue& value, const Contents& contents, std::size_t begin) {
  const std::size_t data_bytes = contents.size - begin;
  JsonObject object(value);
  const torch::ScalarType type = type_of(object.required("dtype"));
  std::vector<std::int64_t> shape;
  std::size_t bytes = c10::elementSize(type);
  for (const JsonValue& size : object.list("shape")) {
    shape.push_back(size.as_int(0, std::int64_t{1} << 40));
    const auto factor = static_cast<std::size_t>(shape.back());
    VALIDATE(factor == 0 || bytes <= data_bytes / factor, "{}: larger than the file",
             value.where());
    bytes *= factor;
  }
  const auto limit = static_cast<std::int64_t>(data_bytes);
  const std::vector<JsonValue> offsets = object.list("data_offsets");
  VALIDATE(offsets.size() == 2, "{}: data_offsets: expected two", value.where());
  const auto first = static_cast<std::size_t>(offsets[0].as_int(0, limit));
  const auto last = static_cast<std::size_t>(offsets[1].as_int(0, limit));
  object.finish();
  VALIDATE(first <= last && last - first == bytes,
           "{}: data_offsets: {} to {}, the shape needs {} bytes", value.where(), first, last,
           bytes);
  torch::Tensor tensor = torch::empty(shape, type);
  if (bytes > 0) contents.fetch(tensor.data_ptr(), begin + first, bytes);
  return tensor;
}

TensorFile unpack(const Contents& contents, const std::string& source) {
  std::uint64_t length = 0;
  if (contents.size >= kLengthBytes) contents.fetch(&length, 0, kLengthBytes);
  VALIDATE(length >= 2 && length <= contents.size - kLengthBytes && length <= kMaxHeaderBytes,
           "{}: not a file of tensors, or cut off", source);
  std::string text(length, '\0');
  contents.fetch(text.data(), kLengthBytes, length);
  const Json header = parse_json(text, source);
  VALIDATE(header.is_object(), "{}: the header is not a JSON object", source);
  const std::size_t begin = kLengthBytes + length;

  TensorFile file;
  if (header.contains(kMetadata)) {
    const JsonValue metadata(header.at(kMetadata), source, kMetadata);
    VALIDATE(metadata.json().is_object(), "{}: expected an object", metadata.where());
    for (const auto& [key, value] : metadata.json().items()) {
      file.metadata[key] =
          JsonValue(value, source, fmt::format("{}.{}", kMetadata, printable(key))).as_string();
    }
  }
  std::size_t total = 0;
  for (const auto& [name, description] : header.items()) {
    if (name == kMetadata) continue;
    const JsonValue value(description, source, printable(name));
    const torch::Tensor tensor = read_tensor(value, contents, begin);
    file.tensors[name] = tensor;
    total += tensor.nbytes();
    // Of tensors that share bytes, the sum may pass what memory holds.
    VALIDATE(total <= contents.size - begin, "{}: describes more than the file holds",
             value.where());
  }
  VALIDATE(total == contents.size - begin, "{}: {} bytes of tensors, the header describes {}",
           source, contents.size - begin, total);
  return file;
}

}  // namespace

std::string pack_tensors(const TensorFile& file) {
  nlohmann::ordered_json header;
  header[kMetadata] = file.metadata;
  std::size_t data_bytes = 0;
  for (const auto& [name, tensor] : file.tensors) {
    const std::size_t end = data_bytes + tensor.nbytes();
    header[name] = {{"dtype", name_of(tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {data_bytes, end}}};
    data_bytes = end;
  }
  std::string text = header.dump();
  text.append((kAlignment - (kLengthBytes + text.size()) % kAlignment) % kAlignment, ' ');
  const std::uint64_t length = text.size();
  std::string bytes;
  bytes.reserve(kLengthBytes + text.size() + data_bytes);
  bytes.append(reinterpret_cast<const char*>(&length), kLengthBytes);
  bytes += text;
  for (const auto& [name, tensor] : file.tensors) {
    const torch::Tensor whole = tensor.detach().cpu().contiguous();
    bytes.append(static_cast<const char*>(whole.data_ptr()), whole.nbytes());
  }
  return bytes;
}

TensorFile unpack_tensors(const std::string& bytes, const std::string& source) {
  return unpack({.size = bytes.size(),
                 .fetch = [&](void* to, std::size_t begin,
                              std::size_t count) { std::memcpy(to, bytes.data() + begin, count); }},
                source);
}

TensorFile read_tensors(const std::string& path) {
  const InputFile file(path);
  return unpack({.size = file.size(),
                 .fetch = [&](void* to, std::size_t begin,
                              std::size_t count) { file.read(to, begin, count); }},
                path);
}

}  // namespace heterog::tensors
