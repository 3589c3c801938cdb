// Strict reading of JSON: every error names the file and the field, unknown keys are errors.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace heterog {

using Json = nlohmann::json;

// A value inside a document, which has to outlive it, with the file and the path to it for
// messages. All values of a document share the name of the file; a copy copies the path.
class JsonValue {
 public:
  JsonValue(const Json& json, std::string file, std::string path = "")
      : JsonValue(json, std::make_shared<const std::string>(std::move(file)), std::move(path)) {}

  const Json& json() const { return *json_; }
  const std::string& file() const { return *file_; }
  // "file: machines[2].nic", the beginning of every message.
  std::string where() const;

  std::string as_string() const;
  bool as_bool() const;
  std::int64_t as_int(std::int64_t min, std::int64_t max) const;
  double as_number(double min, double max) const;  // finite, min ≤ x ≤ max
  double as_positive() const;                      // finite, > 0
  std::vector<JsonValue> as_list() const;

 private:
  friend class JsonObject;
  JsonValue(const Json& json, std::shared_ptr<const std::string> file, std::string path)
      : json_(&json), file_(std::move(file)), path_(std::move(path)) {}

  const Json* json_;
  std::shared_ptr<const std::string> file_;
  std::string path_;
};

// An object whose fields are taken one by one; `finish` refuses the fields that nobody took.
class JsonObject {
 public:
  explicit JsonObject(const JsonValue& value);

  bool has(std::string_view key) const;
  JsonValue required(std::string_view key);
  std::string string(std::string_view key);
  std::string string_or(std::string_view key, std::string otherwise);
  std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max);
  std::int64_t integer_or(std::string_view key, std::int64_t min, std::int64_t max,
                          std::int64_t otherwise);
  double positive(std::string_view key);
  double number(std::string_view key, double min, double max);
  double number_or(std::string_view key, double min, double max, double otherwise);
  bool boolean_or(std::string_view key, bool otherwise);
  std::vector<JsonValue> list(std::string_view key);
  void skip(std::string_view key);
  // Throws if a key was not taken, naming the key and the ones that exist.
  void finish() const;
  std::string where() const { return value_.where(); }

 private:
  JsonValue value_;
  std::set<std::string, std::less<>> taken_;
};

// Checks {"format": name, "version": v}; throws unless the format is `name` and v == version.
void check_format(JsonObject& object, std::string_view name, int version);
// The same, of any version from the oldest to the newest.
void check_format(JsonObject& object, std::string_view name, int oldest, int newest);

// The most memory that the values of a document may take: ten times what the largest graph of the
// zoo does. Counted while it is read, before the memory is taken.
inline constexpr std::size_t kMaxJsonBytes = std::size_t{576} << 20;
// A string, a number, a comment: bytes in the file.
inline constexpr std::size_t kMaxTokenBytes = std::size_t{16} << 20;
// Entries of a list of which each is looked at by its path.
inline constexpr std::size_t kMaxListEntries = std::size_t{1} << 22;

// Parses text (comments allowed). Throws with file, line and column; on duplicate keys; beyond the
// bounds above; and where it is nested deeper than any file of ours, so that reading by recursion
// is safe.
Json parse_json(const std::string& text, const std::string& file);
Json read_json_file(const std::string& path);  // plain or gzip

}  // namespace heterog
