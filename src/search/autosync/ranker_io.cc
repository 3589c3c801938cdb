// Reads and writes rankers.
#include "search/autosync/ranker_io.h"

#include <array>

#include "base/file.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace heterog::search {
namespace {

constexpr std::size_t kNumbers = kSyncFeatures.size();

std::array<double, kNumbers> read_numbers(JsonObject& object, const char* field) {
  const auto list = object.list(field);
  VALIDATE(list.size() == kNumbers, "{}: {}: {} numbers, expected {}", object.where(), field,
           list.size(), kNumbers);
  std::array<double, kNumbers> numbers{};
  for (std::size_t f = 0; f < kNumbers; ++f) numbers[f] = list[f].as_number(-1e30, 1e30);
  return numbers;
}

}  // namespace

LinearRanker read_ranker(const std::string& path) {
  const Json json = read_json_file(path);
  JsonObject object(JsonValue(json, path));
  check_format(object, "heterog-sync-ranker", 1);
  const auto names = object.list("features");
  bool same = names.size() == kNumbers;
  for (std::size_t f = 0; same && f < kNumbers; ++f)
    same = names[f].as_string() == kSyncFeatures[f];
  VALIDATE(same,
           "{}: features: of another version of heterog; teach it again (heterog autosync-data)",
           printable(path));
  LinearRanker ranker;
  ranker.mean = read_numbers(object, "mean");
  ranker.scale = read_numbers(object, "scale");
  ranker.weights = read_numbers(object, "weights");
  object.finish();
  return ranker;
}

void write_ranker(const std::string& path, const LinearRanker& ranker) {
  Json json = {{"format", "heterog-sync-ranker"}, {"version", 1},
               {"features", kSyncFeatures},       {"mean", ranker.mean},
               {"scale", ranker.scale},           {"weights", ranker.weights}};
  write_file(path, json.dump() + "\n");
}

}  // namespace heterog::search
