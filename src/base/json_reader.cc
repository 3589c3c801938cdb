// Strict JSON: a bounded DOM without duplicate keys, and typed access whose errors name the field.
#include "base/json_reader.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "base/file.h"
#include "base/nearest.h"
#include "base/text.h"

namespace heterog {
namespace {

// Deeper than any file of ours; keeps recursive readers off the end of the stack.
constexpr std::size_t kMaxDepth = 100;
constexpr double kMaxExactInteger = 9007199254740992.0;  // 2^53

// What values take in memory, blocks of the allocator included: measured with glibc's.
constexpr std::size_t kEntryBytes = 32;   // of a list that grows by doubling
constexpr std::size_t kMemberBytes = 96;  // of an object: a node of a tree
constexpr std::size_t kStringBytes = 48;
constexpr std::size_t kListBytes = 32;
constexpr std::size_t kObjectBytes = 64;

std::size_t string_bytes(std::size_t length) {
  return length < 16 ? 0 : length + 24;  // short ones lie in the string itself
}

// Where the parser is in the text, shared by all copies of a cursor.
struct Progress {
  std::size_t at = 0;
  std::size_t event = 0;  // where the last value, key, or begin or end of one was
};

// Walks the text for the parser, which keeps a copy of what it has read since the last event: that
// must not become long.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(std::string_view text, Progress& progress, const std::string& file)
      : text_(text), progress_(&progress), file_(&file) {}
  // One at the end.
  explicit Cursor(std::string_view text) : text_(text) {}

  reference operator*() const { return text_[progress_->at]; }
  Cursor& operator++() {
    ++progress_->at;
    VALIDATE(progress_->at - progress_->event <= kMaxTokenBytes,
             "{}: a string, number or comment of more than {} bytes", printable(*file_, 400),
             kMaxTokenBytes);
    return *this;
  }
  friend bool operator==(const Cursor& a, const Cursor& b) { return a.at() == b.at(); }
  friend bool operator!=(const Cursor& a, const Cursor& b) { return !(a == b); }

 private:
  std::size_t at() const { return progress_ ? progress_->at : text_.size(); }

  std::string_view text_;
  Progress* progress_ = nullptr;
  const std::string* file_ = nullptr;
};

// Builds the DOM from parse events, and refuses what nlohmann's own DOM accepts: duplicate keys,
// unbounded depth, and as many values as memory holds.
class StrictDom {
 public:
  StrictDom(std::string file, Progress& progress) : file_(std::move(file)), progress_(progress) {}
  Json take() { return std::move(root_); }

  bool null() { return put(Json()); }
  bool boolean(bool value) { return put(Json(value)); }
  bool number_integer(std::int64_t value) { return put(Json(value)); }
  bool number_unsigned(std::uint64_t value) { return put(Json(value)); }
  bool number_float(double value, const std::string&) { return put(Json(value)); }
  bool string(std::string& value) {
    spend(kStringBytes + string_bytes(value.size()));
    return put(Json(std::move(value)));
  }
  bool binary(Json::binary_t&) { return false; }  // not in text
  bool start_object(std::size_t) {
    spend(kObjectBytes);
    return open(Json::object());
  }
  bool start_array(std::size_t) {
    spend(kListBytes);
    return open(Json::array());
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    spend(kMemberBytes + string_bytes(name.size()));
    const auto [slot, is_new] = open_.back()->emplace(std::move(name), nullptr);
    VALIDATE(is_new, "{}: the key \"{}\" occurs twice in one object", printable(file_, 400),
             printable(slot.key()));
    slot_ = &*slot;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at …"
    if (const auto end = what.find("] "); what.starts_with('[') && end != what.npos) {
      what.remove_prefix(end + 2);
    }
    fail_input("{}: {}", printable(file_, 400), printable(what, 300));
  }

 private:
  void spend(std::size_t bytes) {
    progress_.event = progress_.at;
    spent_ += bytes;
    VALIDATE(spent_ <= kMaxJsonBytes,
             "{}: holds too much: its values would take more than {} bytes of memory",
             printable(file_, 400), kMaxJsonBytes);
  }
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      spend(kEntryBytes);
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    *slot_ = std::move(value);
    return slot_;
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    VALIDATE(open_.size() < kMaxDepth, "{}: nested more than {} levels deep", printable(file_, 400),
             kMaxDepth);
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    progress_.event = progress_.at;
    open_.pop_back();
    return true;
  }

  std::string file_;
  Progress& progress_;
  std::size_t spent_ = 0;
  Json root_;
  // A container moves only when its parent grows, which happens after it has been closed.
  std::vector<Json*> open_;
  Json* slot_ = nullptr;  // of the key just read
};

// What a message says was found.
std::string found(const Json& json) {
  switch (json.type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return json.empty() ? "an empty list" : "a list";
    case Json::value_t::string:
      return fmt::format("\"{}\"", printable(json.get_ref<const std::string&>()));
    case Json::value_t::number_float:
      return fmt::format("{:g}", json.get<double>());
    default:
      return json.dump();
  }
}

std::string number_range(double min, double max) {
  const bool from = min > -std::numeric_limits<double>::max();
  const bool to = max < std::numeric_limits<double>::max();
  if (from && to) return fmt::format("a number from {:g} to {:g}", min, max);
  if (from) return fmt::format("a number of at least {:g}", min);
  if (to) return fmt::format("a number of at most {:g}", max);
  return "a number";
}

std::string integer_range(std::int64_t min, std::int64_t max) {
  const bool from = min > std::numeric_limits<std::int64_t>::min();
  const bool to = max < std::numeric_limits<std::int64_t>::max();
  if (from && to) return fmt::format("an integer from {} to {}", min, max);
  if (from) return fmt::format("an integer of at least {}", min);
  if (to) return fmt::format("an integer of at most {}", max);
  return "an integer";
}

}  // namespace

std::string JsonValue::where() const {
  const std::string file = printable(*file_, 400);
  return path_.empty() ? file : fmt::format("{}: {}", file, printable(path_, 200));
}

std::string JsonValue::as_string() const {
  VALIDATE(json_->is_string(), "{}: expected a string, found {}", where(), found(*json_));
  return json_->get<std::string>();
}

bool JsonValue::as_bool() const {
  VALIDATE(json_->is_boolean(), "{}: expected true or false, found {}", where(), found(*json_));
  return json_->get<bool>();
}

std::int64_t JsonValue::as_int(std::int64_t min, std::int64_t max) const {
  bool fits = false;
  std::int64_t value = 0;
  if (json_->is_number_unsigned()) {
    const auto raw = json_->get<std::uint64_t>();
    fits = raw <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    value = static_cast<std::int64_t>(raw);
  } else if (json_->is_number_integer()) {
    fits = true;
    value = json_->get<std::int64_t>();
  } else if (json_->is_number_float()) {  // 16e9 is an integer to whoever wrote it
    const auto raw = json_->get<double>();
    fits = std::abs(raw) <= kMaxExactInteger && raw == std::floor(raw);
    if (fits) value = static_cast<std::int64_t>(raw);
  }
  VALIDATE(fits && value >= min && value <= max, "{}: expected {}, found {}", where(),
           integer_range(min, max), found(*json_));
  return value;
}

double JsonValue::as_number(double min, double max) const {
  const double value =
      json_->is_number() ? json_->get<double>() : std::numeric_limits<double>::quiet_NaN();
  VALIDATE(std::isfinite(value) && value >= min && value <= max, "{}: expected {}, found {}",
           where(), number_range(min, max), found(*json_));
  return value;
}

double JsonValue::as_positive() const {
  const double value = json_->is_number() ? json_->get<double>() : 0.0;
  VALIDATE(std::isfinite(value) && value > 0, "{}: expected a positive number, found {}", where(),
           found(*json_));
  return value;
}

std::vector<JsonValue> JsonValue::as_list() const {
  VALIDATE(json_->is_array(), "{}: expected a list, found {}", where(), found(*json_));
  VALIDATE(json_->size() <= kMaxListEntries, "{}: {} entries, expected at most {}", where(),
           json_->size(), kMaxListEntries);
  std::vector<JsonValue> items;
  items.reserve(json_->size());
  for (std::size_t i = 0; i < json_->size(); ++i) {
    items.push_back(JsonValue((*json_)[i], file_, fmt::format("{}[{}]", path_, i)));
  }
  return items;
}

JsonObject::JsonObject(const JsonValue& value) : value_(value) {
  VALIDATE(value.json().is_object(), "{}: expected an object, found {}", value.where(),
           found(value.json()));
}

bool JsonObject::has(std::string_view key) const { return value_.json().contains(key); }

JsonValue JsonObject::required(std::string_view key) {
  taken_.emplace(key);
  const auto at = value_.json().find(key);
  VALIDATE(at != value_.json().end(), "{}: the field \"{}\" is missing", where(), key);
  return JsonValue(
      *at, value_.file_,
      value_.path_.empty() ? std::string(key) : fmt::format("{}.{}", value_.path_, key));
}

std::string JsonObject::string(std::string_view key) { return required(key).as_string(); }

std::string JsonObject::string_or(std::string_view key, std::string otherwise) {
  skip(key);
  return has(key) ? string(key) : std::move(otherwise);
}

std::int64_t JsonObject::integer(std::string_view key, std::int64_t min, std::int64_t max) {
  return required(key).as_int(min, max);
}

std::int64_t JsonObject::integer_or(std::string_view key, std::int64_t min, std::int64_t max,
                                    std::int64_t otherwise) {
  skip(key);
  return has(key) ? integer(key, min, max) : otherwise;
}

double JsonObject::positive(std::string_view key) { return required(key).as_positive(); }

double JsonObject::number(std::string_view key, double min, double max) {
  return required(key).as_number(min, max);
}

double JsonObject::number_or(std::string_view key, double min, double max, double otherwise) {
  skip(key);
  return has(key) ? number(key, min, max) : otherwise;
}

bool JsonObject::boolean_or(std::string_view key, bool otherwise) {
  skip(key);
  return has(key) ? required(key).as_bool() : otherwise;
}

std::vector<JsonValue> JsonObject::list(std::string_view key) { return required(key).as_list(); }

void JsonObject::skip(std::string_view key) { taken_.emplace(key); }

void JsonObject::finish() const {
  for (const auto& [key, unused] : value_.json().items()) {
    VALIDATE(taken_.contains(key), "{}: unknown key \"{}\"{}, expected one of {}", where(),
             printable(key),
             did_you_mean(key, std::vector<std::string>(taken_.begin(), taken_.end())),
             fmt::join(taken_, ", "));
  }
}

void check_format(JsonObject& object, std::string_view name, int version) {
  check_format(object, name, version, version);
}

void check_format(JsonObject& object, std::string_view name, int oldest, int newest) {
  const std::string format = object.string("format");
  VALIDATE(format == name, "{}: format: expected \"{}\", found \"{}\"", object.where(), name,
           printable(format));
  const std::int64_t found_version = object.integer("version", 1, 1'000'000);
  const std::string expected =
      oldest == newest ? std::to_string(newest) : fmt::format("{} to {}", oldest, newest);
  VALIDATE(oldest <= found_version && found_version <= newest, "{}: version: expected {}, found {}",
           object.where(), expected, found_version);
}

Json parse_json(const std::string& text, const std::string& file) {
  Progress progress;
  StrictDom dom(file, progress);
  const bool complete =
      Json::sax_parse(Cursor(text, progress, file), Cursor(text), &dom, Json::input_format_t::json,
                      /*strict=*/true, /*ignore_comments=*/true);
  ENSURE(complete);  // every failure has thrown
  return dom.take();
}

Json read_json_file(const std::string& path) { return parse_json(read_file(path), path); }

}  // namespace heterog
