// The one configuration of training: network sizes, learning, and the cases that are trained on.
#include "learn/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "base/json_reader.h"
#include "base/own_file.h"
#include "base/text.h"
#include "cluster/cluster.h"
#include "graph/types.h"

namespace heterog::learn {
namespace {

constexpr std::int64_t kMaxSteps = 1'000'000'000'000;

// The one list of scalar fields: key, member, least and greatest value. `visit` is called with each
// in this order; loading, saving and printing are three visitors.
template <class Config, class Visitor>
void visit_fields(Config& c, Visitor&& visit) {
  visit("random_cases", c.random_cases, 0, 100000);
  visit("random_devices", c.random_devices, 2, static_cast<std::int64_t>(cluster::kMaxDevices));
  visit("random_costs", c.random_costs, 0.0, 2.0);
  visit("seed", c.seed, 0, std::numeric_limits<std::int64_t>::max());
  visit("steps", c.steps, 1, kMaxSteps);
  visit("cases_per_step", c.cases_per_step, 1, 1000);
  visit("samples", c.samples, 1, 10000);
  visit("settling_rounds", c.settling_rounds, 0, 10);
  visit("checkpoint_every", c.checkpoint_every, 1, kMaxSteps);
  visit("averaged_steps", c.averaged_steps, 0, kMaxSteps);
  visit("actions", c.actions);
  visit("max_groups", c.max_groups, 1, 2000);
  visit("gat_layers", c.gat_layers, 0, 64);
  visit("gat_heads", c.gat_heads, 1, 64);
  visit("gat_head_width", c.gat_head_width, 1, 4096);
  visit("txl_layers", c.txl_layers, 0, 64);
  visit("txl_heads", c.txl_heads, 1, 64);
  visit("txl_width", c.txl_width, 2, 8192);
  visit("txl_inner_width", c.txl_inner_width, 1, 32768);
  visit("txl_segment", c.txl_segment, 1, 100000);
  visit("head_width", c.head_width, 1, 8192);
  visit("fixed_devices", c.fixed_devices, 0, static_cast<std::int64_t>(cluster::kMaxDevices));
  visit("data_parallel_prior", c.data_parallel_prior, -20.0, 20.0);
  visit("learning_rate", c.learning_rate, 1e-9, 10.0);
  visit("entropy_weight", c.entropy_weight, 0.0, 1e3);
  visit("entropy_weight_end", c.entropy_weight_end, 0.0, 1e3);
  visit("normalize_advantage", c.normalize_advantage);
  visit("elite_weight", c.elite_weight, 0.0, 1e3);
  visit("finetune_entropy_floor", c.finetune_entropy_floor, 0.0, 10.0);
}

// Takes each field from a JSON object if it is there.
struct Reader {
  JsonObject& object;
  void operator()(const char* key, std::int64_t& value, std::int64_t min, std::int64_t max) {
    value = object.integer_or(key, min, max, value);
  }
  void operator()(const char* key, double& value, double min, double max) {
    value = object.number_or(key, min, max, value);
  }
  void operator()(const char* key, bool& value) { value = object.boolean_or(key, value); }
  void operator()(const char* key, std::string& value) { value = object.string_or(key, value); }
};

struct Writer {
  Json& json;
  template <class T, class... Range>
  void operator()(const char* key, const T& value, Range...) {
    json[key] = value;
  }
};

// A case that stands twice would be trained on twice in every round, and takes a step each time.
std::vector<TrainGraph> read_graphs(JsonObject& object) {
  std::vector<TrainGraph> graphs;
  std::set<std::pair<std::string, std::int64_t>> seen;
  for (const JsonValue& item : object.list("graphs")) {
    JsonObject entry(item);
    TrainGraph graph{.graph = entry.string("graph"), .batches = {}};
    for (const JsonValue& batch : entry.list("batches")) {
      graph.batches.push_back(batch.as_int(1, graph::kMaxSamples));
      VALIDATE(seen.emplace(graph.graph, graph.batches.back()).second,
               "{}: {} at batch {} stands twice, expected one entry", batch.where(),
               printable(graph.graph), graph.batches.back());
    }
    VALIDATE(!graph.batches.empty(), "{}: \"batches\" is empty; name at least one batch size",
             item.where());
    entry.finish();
    graphs.push_back(std::move(graph));
  }
  return graphs;
}

void check_config(const TrainConfig& c, const std::string& source) {
  VALIDATE(c.actions == "heterog" || c.actions == "formula",
           "{}: actions: is \"{}\", must be \"heterog\" or \"formula\"", source,
           printable(c.actions));
  VALIDATE(c.actions != "formula" || c.samples > 5,
           "{}: samples: is {}, must be at least 6 where actions is \"formula\": a draw is held "
           "against five others",
           source, c.samples);
  VALIDATE(c.fixed_devices == 0 || c.actions == "heterog",
           "{}: actions: must be \"heterog\" where fixed_devices is not 0", source);
  VALIDATE(c.txl_width % c.txl_heads == 0,
           "{}: txl_heads: {} does not divide txl_width {}; choose a divisor", source, c.txl_heads,
           c.txl_width);
  VALIDATE(parameter_count(c) <= kMaxParameters,
           "{}: layers, heads and widths make a network of {} parameters; the most is {}", source,
           parameter_count(c), kMaxParameters);
}

// Values as JSON, or else as text.
void lay_over(Json& json, const std::vector<std::pair<std::string, std::string>>& overrides) {
  for (const auto& [key, text] : overrides) {
    const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    json[key] = value.is_discarded() ? Json(text) : value;
  }
}

TrainConfig read_config(const Json& json, const std::string& source) {
  JsonObject object{JsonValue(json, source)};
  TrainConfig config;
  if (object.has("graphs")) config.graphs = read_graphs(object);
  if (object.has("clusters")) {
    for (const JsonValue& item : object.list("clusters")) {
      const std::string path = item.as_string();
      VALIDATE(std::ranges::find(config.clusters, path) == config.clusters.end(),
               "{}: {} stands twice, expected one entry", item.where(), printable(path));
      config.clusters.push_back(path);
    }
  }
  if (object.has("leave_out")) {
    for (const JsonValue& item : object.list("leave_out")) {
      config.leave_out.push_back(item.as_string());
    }
  }
  visit_fields(config, Reader{object});
  object.finish();
  check_config(config, source);
  return config;
}

}  // namespace

TrainConfig parse_train_config(const std::string& text, const std::string& source) {
  return read_config(parse_json(text, source), source);
}

TrainConfig read_train_config(const std::string& given,
                              const std::vector<std::pair<std::string, std::string>>& overrides) {
  const std::string path = here_or_shipped(given, "configs/train", ".json");
  Json json = read_json_file(path);
  VALIDATE(json.is_object(), "{}: must be an object of settings", path);
  lay_over(json, overrides);
  return read_config(json, path);
}

TrainConfig with_learning(const TrainConfig& config,
                          const std::vector<std::pair<std::string, std::string>>& overrides) {
  constexpr std::array<std::string_view, 4> kLearning = {"samples", "normalize_advantage",
                                                         "elite_weight", "finetune_entropy_floor"};
  for (const auto& [key, text] : overrides) {
    VALIDATE(std::ranges::find(kLearning, key) != kLearning.end(),
             "--set {}: is not for fine-tuning; what can be set is {}", printable(key),
             fmt::join(kLearning, ", "));
  }
  Json json = Json::parse(train_config_text(config));
  lay_over(json, overrides);
  return read_config(json, "--set");
}

std::string train_config_text(const TrainConfig& config) {
  Json json = Json::object();
  json["graphs"] = Json::array();
  for (const TrainGraph& graph : config.graphs) {
    json["graphs"].push_back({{"graph", graph.graph}, {"batches", graph.batches}});
  }
  json["clusters"] = config.clusters;
  if (!config.leave_out.empty()) json["leave_out"] = config.leave_out;
  visit_fields(config, Writer{json});
  return json.dump(2) + "\n";
}

}  // namespace heterog::learn
