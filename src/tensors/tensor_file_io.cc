// Writes and reads the safetensors format.
#include "tensors/tensor_file_io.h"

#include <torch/torch.h>

#include <array>
#include <bit>
#include <cstring>

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

torch::Tensor read_tensor(const JsonValue& value, std::string_view data) {
  JsonObject object(value);
  const torch::ScalarType type = type_of(object.required("dtype"));
  std::vector<std::int64_t> shape;
  std::size_t bytes = c10::elementSize(type);
  for (const JsonValue& size : object.list("shape")) {
    shape.push_back(size.as_int(0, std::int64_t{1} << 40));
    const auto factor = static_cast<std::size_t>(shape.back());
    VALIDATE(factor == 0 || bytes <= data.size() / factor, "{}: larger than the file",
             value.where());
    bytes *= factor;
  }
  const auto limit = static_cast<std::int64_t>(data.size());
  const std::vector<JsonValue> offsets = object.list("data_offsets");
  VALIDATE(offsets.size() == 2, "{}: data_offsets: expected two", value.where());
  const auto first = static_cast<std::size_t>(offsets[0].as_int(0, limit));
  const auto last = static_cast<std::size_t>(offsets[1].as_int(0, limit));
  object.finish();
  VALIDATE(first <= last && last - first == bytes,
           "{}: data_offsets: {} to {}, the shape needs {} bytes", value.where(), first, last,
           bytes);
  torch::Tensor tensor = torch::empty(shape, type);
  if (bytes > 0) std::memcpy(tensor.data_ptr(), data.data() + first, bytes);
  return tensor;
}

}  // namespace

std::string pack_tensors(const TensorFile& file) {
  nlohmann::ordered_json header;
  header[kMetadata] = file.metadata;
  std::string data;
  for (const auto& [name, tensor] : file.tensors) {
    const torch::Tensor whole = tensor.detach().cpu().contiguous();
    const std::size_t begin = data.size();
    data.append(static_cast<const char*>(whole.data_ptr()), whole.nbytes());
    header[name] = {{"dtype", name_of(whole.scalar_type())},
                    {"shape", whole.sizes().vec()},
                    {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.append((kAlignment - (kLengthBytes + text.size()) % kAlignment) % kAlignment, ' ');
  std::string bytes(kLengthBytes, '\0');
  const std::uint64_t length = text.size();
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes + text + data;
}

TensorFile unpack_tensors(const std::string& bytes, const std::string& source) {
  std::uint64_t length = 0;
  if (bytes.size() >= kLengthBytes) std::memcpy(&length, bytes.data(), kLengthBytes);
  VALIDATE(length >= 2 && length <= bytes.size() - kLengthBytes,
           "{}: not a file of tensors, or cut off", source);
  const Json header = parse_json(bytes.substr(kLengthBytes, length), source);
  VALIDATE(header.is_object(), "{}: the header is not a JSON object", source);
  const std::string_view data = std::string_view(bytes).substr(kLengthBytes + length);

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
    file.tensors[name] = read_tensor(JsonValue(description, source, printable(name)), data);
    total += file.tensors[name].nbytes();
  }
  VALIDATE(total == data.size(), "{}: {} bytes of tensors, the header describes {}", source,
           data.size(), total);
  return file;
}

}  // namespace heterog::tensors
