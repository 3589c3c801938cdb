// Writes and reads the safetensors format.
#include "tensors/tensor_file_io.h"

#include <ATen/ATen.h>

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
constexpr std::size_t kChunk = std::size_t{1} << 20;  // that is checked at a time

const std::string kChecksum = "checksum";  // of metadata
constexpr std::string_view kAlgorithm = "xxh3:";
constexpr std::size_t kDigits = 16;
const std::string kNoDigits(kDigits, '0');

struct NamedType {
  const char* name;
  at::ScalarType type;
};
constexpr std::array kTypes = {
    NamedType{"F32", at::kFloat},     NamedType{"F64", at::kDouble}, NamedType{"F16", at::kHalf},
    NamedType{"BF16", at::kBFloat16}, NamedType{"I64", at::kLong},   NamedType{"I32", at::kInt},
    NamedType{"U8", at::kByte},       NamedType{"BOOL", at::kBool},
};

std::string name_of(at::ScalarType type) {
  for (const NamedType& known : kTypes) {
    if (known.type == type) return known.name;
  }
  throw Error(ErrorKind::kBug, fmt::format("no name for tensors of {}", c10::toString(type)));
}

at::ScalarType type_of(const JsonValue& value) {
  const std::string name = value.as_string();
  for (const NamedType& known : kTypes) {
    if (name == known.name) return known.type;
  }
  fail_input("{}: type '{}' is not supported", value.where(), printable(name));
}

std::size_t bytes_of(const TensorForm& form) {
  std::size_t bytes = c10::elementSize(form.type);
  for (const std::int64_t size : form.shape) bytes *= static_cast<std::size_t>(size);
  return bytes;
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

struct Described {
  std::string name;
  std::string where;  // for messages
  TensorForm form;
  std::size_t first = 0;  // bytes of the data
  std::size_t last = 0;
};

Described describe(const JsonValue& value, const std::string& name, std::size_t data_bytes) {
  JsonObject object(value);
  Described tensor{.name = name, .where = value.where(), .form = {}};
  tensor.form.type = type_of(object.required("dtype"));
  std::size_t bytes = c10::elementSize(tensor.form.type);
  std::size_t extent = 1;  // with 1 in place of 0: strides are made of it
  const std::vector<JsonValue> sizes = object.list("shape");
  VALIDATE(sizes.size() <= kMostDimensions, "{}: shape: {} sizes, at most {} are read",
           value.where(), sizes.size(), kMostDimensions);
  for (const JsonValue& size : sizes) {
    const std::int64_t said = size.as_int(0, std::int64_t{1} << 40);
    tensor.form.shape.push_back(said);
    const auto factor = static_cast<std::size_t>(said);
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

Metadata read_metadata(const Json& header, const std::string& source) {
  Metadata texts;
  if (!header.contains(kMetadata)) return texts;
  const JsonValue metadata(header.at(kMetadata), source, kMetadata);
  VALIDATE(metadata.json().is_object(), "{}: expected an object", metadata.where());
  for (const auto& [key, value] : metadata.json().items()) {
    texts[key] =
        JsonValue(value, source, fmt::format("{}.{}", kMetadata, printable(key))).as_string();
  }
  return texts;
}

void check_bools(const Described& tensor, const unsigned char* data, std::size_t count) {
  VALIDATE(tensor.form.type != at::kBool ||
               std::all_of(data, data + count, [](unsigned char byte) { return byte <= 1; }),
           "{}: a BOOL that is neither 0 nor 1", tensor.where);
}

// A file whose header has been read.
struct Opened {
  Contents contents;
  std::string source;     // for messages
  std::size_t begin = 0;  // of the data
  std::string said;       // checksum, empty if there is none
  Checksum sum;           // of all before the data, if there is
  Metadata metadata;
  std::vector<Described> tensors;  // in the order of their bytes

  Opened(Contents given, std::string name);
  void check_data();
  // Into memory of the tensor's size.
  void read(const Described& tensor, void* to) const;
};

Opened::Opened(Contents given, std::string name)
    : contents(std::move(given)), source(std::move(name)) {
  std::uint64_t length = 0;
  if (contents.size >= kLengthBytes) contents.fetch(&length, 0, kLengthBytes);
  VALIDATE(length >= 2 && length <= contents.size - kLengthBytes && length <= kMaxHeaderBytes,
           "{}: not a file of tensors, or cut off", source);
  std::string text(length, '\0');
  contents.fetch(text.data(), kLengthBytes, length);
  begin = kLengthBytes + length;
  {
    const Json header = parse_json(text, source);
    VALIDATE(header.is_object(), "{}: the header is not a JSON object", source);
    metadata = read_metadata(header, source);
    tensors = describe_all(header, source, contents.size - begin);
  }
  const auto field = metadata.find(kChecksum);
  if (field == metadata.end()) return;
  said = field->second;
  metadata.erase(field);
  const auto digits = find_digits(text);
  VALIDATE(digits && said == std::string(kAlgorithm) + text.substr(*digits, kDigits),
           "{}: metadata.checksum: \"{}\", expected \"{}\" and {} hexadecimal digits, in JSON "
           "without spaces",
           source, printable(said), kAlgorithm, kDigits);
  text.replace(*digits, kDigits, kNoDigits);
  sum.add(&length, kLengthBytes);
  sum.add(text);
}

// Goes through all bytes, a chunk at a time. Once.
void Opened::check_data() {
  std::vector<unsigned char> chunk(std::min(kChunk, contents.size));
  for (const Described& tensor : tensors) {
    if (said.empty() && tensor.form.type != at::kBool) continue;
    for (std::size_t at = tensor.first; at < tensor.last; at += chunk.size()) {
      const std::size_t count = std::min(chunk.size(), tensor.last - at);
      contents.fetch(chunk.data(), begin + at, count);
      check_bools(tensor, chunk.data(), count);
      sum.add(chunk.data(), count);
    }
  }
  if (said.empty()) return;
  const std::string found = std::string(kAlgorithm) + hash_text(sum.value());
  VALIDATE(found == said,
           "{}: checksum: the file's bytes give {}, its metadata says {}: it is damaged, or was "
           "changed without a new checksum",
           source, found, said);
}

void Opened::read(const Described& tensor, void* to) const {
  const std::size_t bytes = tensor.last - tensor.first;
  if (bytes > 0) contents.fetch(to, begin + tensor.first, bytes);
  // Whoever may write to the file may have done so since.
  check_bools(tensor, static_cast<const unsigned char*>(to), bytes);
}

Contents contents_of(const std::string& path) {
  const auto file = std::make_shared<InputFile>(path);
  return {.size = file->size(), .fetch = [file](void* to, std::size_t begin, std::size_t count) {
            file->read(to, begin, count);
          }};
}

TensorFile whole(Opened opened) {
  opened.check_data();
  TensorFile file{.metadata = opened.metadata, .tensors = {}, .checked = !opened.said.empty()};
  for (const Described& tensor : opened.tensors) {
    at::Tensor& value = file.tensors[tensor.name];
    value = at::empty(tensor.form.shape, tensor.form.type);
    opened.read(tensor, value.data_ptr());
  }
  return file;
}

// Where a file goes, piece by piece.
struct Sink {
  std::function<void(std::string_view)> append;
  std::function<void(std::size_t begin, std::string_view)> overwrite;
};

using ValueOf = std::function<at::Tensor(const std::string& name)>;

void write(const Sink& sink, const Metadata& metadata, const TensorForms& forms,
           const ValueOf& value_of) {
  ENSURE(!metadata.contains(kChecksum));
  nlohmann::ordered_json header;
  header[kMetadata] = metadata;
  header[kMetadata][kChecksum] = std::string(kAlgorithm) + kNoDigits;
  std::size_t data_bytes = 0;
  for (const auto& [name, form] : forms) {
    const std::size_t end = data_bytes + bytes_of(form);
    header[name] = {
        {"dtype", name_of(form.type)}, {"shape", form.shape}, {"data_offsets", {data_bytes, end}}};
    data_bytes = end;
  }
  std::string text = header.dump();
  text.append((kAlignment - (kLengthBytes + text.size()) % kAlignment) % kAlignment, ' ');
  const std::uint64_t length = text.size();
  Checksum sum;
  const auto append = [&](std::string_view bytes) {
    sum.add(bytes);
    sink.append(bytes);
  };
  append({reinterpret_cast<const char*>(&length), kLengthBytes});
  append(text);
  for (const auto& [name, form] : forms) {
    const at::Tensor value = value_of(name).detach().cpu().contiguous();
    ENSURE(value.scalar_type() == form.type && value.sizes() == at::IntArrayRef(form.shape));
    append({static_cast<const char*>(value.const_data_ptr()), value.nbytes()});
  }
  const auto digits = find_digits(text);
  ENSURE(digits);
  sink.overwrite(kLengthBytes + *digits, hash_text(sum.value()));
}

TensorForms forms_of(const TensorFile& file) {
  TensorForms forms;
  for (const auto& [name, tensor] : file.tensors) {
    forms[name] = {.type = tensor.scalar_type(), .shape = tensor.sizes().vec()};
  }
  return forms;
}

ValueOf values_of(const TensorFile& file) {
  return [&file](const std::string& name) { return file.tensors.at(name); };
}

}  // namespace

std::string pack_tensors(const TensorFile& file) {
  const TensorForms forms = forms_of(file);
  std::size_t data_bytes = 0;
  for (const auto& [name, form] : forms) data_bytes += bytes_of(form);
  std::string bytes;
  bytes.reserve(data_bytes + data_bytes / 64 + 4096);  // with the header of most files
  const Sink sink{
      .append = [&](std::string_view piece) { bytes += piece; },
      .overwrite = [&](std::size_t begin,
                       std::string_view piece) { bytes.replace(begin, piece.size(), piece); }};
  write(sink, file.metadata, forms, values_of(file));
  return bytes;
}

void write_tensors(const std::string& path, const Metadata& metadata, const TensorForms& forms,
                   const ValueOf& value_of) {
  OutputFile file(path);
  const Sink sink{.append = [&](std::string_view piece) { file.append(piece); },
                  .overwrite = [&](std::size_t begin,
                                   std::string_view piece) { file.overwrite(begin, piece); }};
  write(sink, metadata, forms, value_of);
  file.commit();
}

void write_tensors(const std::string& path, const TensorFile& file) {
  write_tensors(path, file.metadata, forms_of(file), values_of(file));
}

TensorFile unpack_tensors(const std::string& bytes, const std::string& source) {
  const auto fetch = [&](void* to, std::size_t begin, std::size_t count) {
    std::memcpy(to, bytes.data() + begin, count);
  };
  return whole({{.size = bytes.size(), .fetch = fetch}, source});
}

TensorFile read_tensors(const std::string& path) { return whole({contents_of(path), path}); }

struct TensorReader::State {
  Opened opened;
  TensorForms forms;
  std::map<std::string, const Described*> places;
  at::Tensor memory;  // of the largest tensor, once one has been read
};

TensorReader::TensorReader(const std::string& path)
    : state_(
          new State{.opened = {contents_of(path), path}, .forms = {}, .places = {}, .memory = {}}) {
  state_->opened.check_data();
  for (const Described& tensor : state_->opened.tensors) {
    state_->forms[tensor.name] = tensor.form;
    state_->places[tensor.name] = &tensor;
  }
}

TensorReader::~TensorReader() = default;
const Metadata& TensorReader::metadata() const { return state_->opened.metadata; }
bool TensorReader::checked() const { return !state_->opened.said.empty(); }
const TensorForms& TensorReader::forms() const { return state_->forms; }

at::Tensor TensorReader::read(const std::string& name) const {
  if (!state_->memory.defined()) {
    std::size_t most = 1;
    for (const Described& tensor : state_->opened.tensors) {
      most = std::max(most, tensor.last - tensor.first);
    }
    state_->memory = at::empty({static_cast<std::int64_t>(most)}, at::kByte);
  }
  const Described& tensor = *state_->places.at(name);
  void* to = state_->memory.data_ptr();
  state_->opened.read(tensor, to);
  return at::from_blob(to, tensor.form.shape, tensor.form.type);
}

}  // namespace heterog::tensors
