// Writes and reads the safetensors format.
#include "tensors/tensor_file_io.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <optional>

#include "base/checksum.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace heterog::tensors {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kAlignment = 8;        // of the first tensor
constexpr std::size_t kMostDimensions = 64;  // of LibTorch's own operators
constexpr const char* kMetadata = "__metadata__";

const std::string kChecksum = "checksum";  // of metadata
constexpr std::string_view kAlgorithm = "xxh3:";
constexpr std::size_t kDigits = 16;
const std::string kNoDigits(kDigits, '0');

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

// Where the digits of the checksum stand in the text of a header, if they do: as compact JSON, in
// which an unescaped quote is never part of a string.
std::optional<std::size_t> find_digits(std::string_view header) {
  const std::string field = fmt::format("\"{}\":\"{}", kChecksum, kAlgorithm);
  for (std::size_t at = header.find(field); at != header.npos; at = header.find(field, at + 1)) {
    const std::size_t digits = at + field.size();
    const bool is_field = at > 0 && header[at - 1] != '\\';
    if (is_field && header.size() - digits > kDigits && header[digits + kDigits] == '"') {
      return digits;
    }
  }
  return std::nullopt;
}

// What a header says of a tensor.
struct Described {
  std::string name;
  std::string where;  // for messages
  torch::ScalarType type;
  std::vector<std::int64_t> shape;
  std::size_t first = 0;  // bytes of the data
  std::size_t last = 0;
};

Described describe(const JsonValue& value, const std::string& name, std::size_t data_bytes) {
  JsonObject object(value);
  Described tensor{.name = name, .where = value.where(), .type = type_of(object.required("dtype"))};
  std::size_t bytes = c10::elementSize(tensor.type);
  std::size_t extent = 1;  // with 1 in place of 0: strides are made of it
  const std::vector<JsonValue> sizes = object.list("shape");
  VALIDATE(sizes.size() <= kMostDimensions, "{}: shape: {} sizes, at most {} are read",
           value.where(), sizes.size(), kMostDimensions);
  for (const JsonValue& size : sizes) {
    tensor.shape.push_back(size.as_int(0, std::int64_t{1} << 40));
    const auto factor = static_cast<std::size_t>(tensor.shape.back());
    const std::size_t wide = std::max<std::size_t>(factor, 1);
    VALIDATE(
        (factor == 0 || bytes <= data_bytes / factor) && extent <= (std::size_t{1} << 60) / wide,
        "{}: larger than the file", value.where());
    bytes *= factor;
    extent *= wide;
  }
  const auto limit = static_cast<std::int64_t>(data_bytes);
  const std::vector<JsonValue> offsets = object.list("data_offsets");
  VALIDATE(offsets.size() == 2, "{}: data_offsets: expected two", value.where());
  tensor.first = static_cast<std::size_t>(offsets[0].as_int(0, limit));
  tensor.last = static_cast<std::size_t>(offsets[1].as_int(0, limit));
  object.finish();
  VALIDATE(tensor.first <= tensor.last && tensor.last - tensor.first == bytes,
           "{}: data_offsets: {} to {}, the shape needs {} bytes", value.where(), tensor.first,
           tensor.last, bytes);
  return tensor;
}

// All tensors in the order of their bytes, which they share out among them without a gap: the sum
// of what is made room for is what the file holds.
std::vector<Described> describe_all(const Json& header, const std::string& source,
                                    std::size_t data_bytes) {
  std::vector<Described> all;
  for (const auto& [name, description] : header.items()) {
    if (name == kMetadata) continue;
    all.push_back(describe(JsonValue(description, source, printable(name)), name, data_bytes));
  }
  std::sort(all.begin(), all.end(), [](const Described& a, const Described& b) {
    return std::pair(a.first, a.last) < std::pair(b.first, b.last);
  });
  std::size_t end = 0;
  for (const Described& tensor : all) {
    VALIDATE(tensor.first == end, "{}: data_offsets: begins at {}, the tensor before it ends at {}",
             tensor.where, tensor.first, end);
    end = tensor.last;
  }
  VALIDATE(end == data_bytes, "{}: {} bytes of tensors, the header describes {}", source,
           data_bytes, end);
  return all;
}

std::map<std::string, std::string> read_metadata(const Json& header, const std::string& source) {
  std::map<std::string, std::string> texts;
  if (!header.contains(kMetadata)) return texts;
  const JsonValue metadata(header.at(kMetadata), source, kMetadata);
  VALIDATE(metadata.json().is_object(), "{}: expected an object", metadata.where());
  for (const auto& [key, value] : metadata.json().items()) {
    texts[key] =
        JsonValue(value, source, fmt::format("{}.{}", kMetadata, printable(key))).as_string();
  }
  return texts;
}

TensorFile unpack(const Contents& contents, const std::string& source) {
  std::uint64_t length = 0;
  if (contents.size >= kLengthBytes) contents.fetch(&length, 0, kLengthBytes);
  VALIDATE(length >= 2 && length <= contents.size - kLengthBytes && length <= kMaxHeaderBytes,
           "{}: not a file of tensors, or cut off", source);
  std::string text(length, '\0');
  contents.fetch(text.data(), kLengthBytes, length);
  const std::size_t begin = kLengthBytes + length;
  TensorFile file;
  std::vector<Described> described;
  {
    const Json header = parse_json(text, source);
    VALIDATE(header.is_object(), "{}: the header is not a JSON object", source);
    file.metadata = read_metadata(header, source);
    described = describe_all(header, source, contents.size - begin);
  }

  const auto said = file.metadata.find(kChecksum);
  Checksum sum;
  if (said != file.metadata.end()) {
    const auto digits = find_digits(text);
    VALIDATE(digits && said->second == std::string(kAlgorithm) + text.substr(*digits, kDigits),
             "{}: metadata.checksum: \"{}\", expected \"{}\" and {} hexadecimal digits, in JSON "
             "without spaces",
             source, printable(said->second), kAlgorithm, kDigits);
    text.replace(*digits, kDigits, kNoDigits);
    sum.add(&length, kLengthBytes);
    sum.add(text);
  }
  for (const Described& tensor : described) {
    const std::size_t bytes = tensor.last - tensor.first;
    torch::Tensor value = torch::empty(tensor.shape, tensor.type);
    auto* data = static_cast<unsigned char*>(value.data_ptr());
    if (bytes > 0) contents.fetch(data, begin + tensor.first, bytes);
    VALIDATE(tensor.type != torch::kBool ||
                 std::all_of(data, data + bytes, [](unsigned char byte) { return byte <= 1; }),
             "{}: a BOOL that is neither 0 nor 1", tensor.where);
    if (said != file.metadata.end()) sum.add(data, bytes);
    file.tensors[tensor.name] = value;
  }
  if (said == file.metadata.end()) return file;
  const std::string found = std::string(kAlgorithm) + hash_text(sum.value());
  VALIDATE(found == said->second,
           "{}: checksum: the file's bytes give {}, its metadata says {}: it is damaged, or was "
           "changed without a new checksum",
           source, found, said->second);
  file.metadata.erase(said);
  file.checked = true;
  return file;
}

}  // namespace

std::string pack_tensors(const TensorFile& file) {
  ENSURE(!file.metadata.contains(kChecksum));
  nlohmann::ordered_json header;
  header[kMetadata] = file.metadata;
  header[kMetadata][kChecksum] = std::string(kAlgorithm) + kNoDigits;
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
  const auto digits = find_digits(text);
  ENSURE(digits);
  bytes.replace(kLengthBytes + *digits, kDigits, hash_text(checksum(bytes.data(), bytes.size())));
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
