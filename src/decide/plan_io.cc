// Plan files: the decisions by name, what they refer to, and what was predicted (docs/formats.md).
#include "decide/plan_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/file.h"
#include "base/hash.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "decide/check_strategy.h"

namespace heterog::decide {
namespace {

// Those before had every micro-batch spelled out.
constexpr int kVersion = 3;
constexpr std::int64_t kMaxGroups = 1 << 20;

// ---- writing ----

Json decision_json(const UnitDecision& decision, const cluster::Cluster& cluster) {
  Json devices = Json::array();
  Json weights = Json::array();
  for (const Replica& replica : decision.replicas) {
    devices.push_back(cluster.device(replica.device).name);
    weights.push_back(replica.weight);
  }
  Json json = {
      {"devices", devices}, {"weights", weights}, {"sync", sync_method_name(decision.sync)}};
  if (decision.recompute) json["recompute"] = true;
  if (decision.in_turn) json["in_turn"] = true;
  return json;
}

// Ids in order, neighbours that are alike together: [id, how many], each a pair.
Json runs_json(const std::vector<UnitId>& ids) {
  Json runs = Json::array();
  for (std::size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    while (end < ids.size() && ids[end] == ids[begin]) ++end;
    runs.push_back({ids[begin].value(), end - begin});
  }
  return runs;
}

// Of several micro-batches; null of one.
Json micro_batches_json(const Strategy& strategy, const cluster::Cluster& cluster) {
  if (strategy.micro_batches == 1) return nullptr;
  Json json = {{"count", strategy.micro_batches},
               {"pattern", pattern_name(strategy.pattern)},
               {"strict", strategy.strict}};
  if (strategy.pipeline_of.empty()) return json;
  Json pipelines = Json::array();
  for (DeviceId device : cluster.device_ids()) {
    while (pipelines.size() <= strategy.pipeline_of[device]) pipelines.push_back(Json::array());
    pipelines[strategy.pipeline_of[device]].push_back(cluster.device(device).name);
  }
  json["pipelines"] = pipelines;
  return json;
}

// Distinct decisions once, and for each unit which one.
void add_units(const Strategy& strategy, const cluster::Cluster& cluster, Json& json) {
  std::vector<const UnitDecision*> distinct;
  Json decisions = Json::array();
  Json units = Json::array();
  for (const UnitDecision& decision : strategy.units) {
    auto known = std::find_if(distinct.begin(), distinct.end(),
                              [&](const UnitDecision* d) { return *d == decision; });
    if (known == distinct.end()) {
      decisions.push_back(decision_json(decision, cluster));
      distinct.push_back(&decision);
      known = distinct.end() - 1;
    }
    units.push_back(known - distinct.begin());
  }
  json["decisions"] = decisions;
  json["units"] = units;
  if (!strategy.unit_of_op.empty()) {
    json["unit_of_op"] = runs_json(strategy.unit_of_op.raw());
  }
}

Json row_weights_json(const Strategy& strategy, const cluster::Cluster& cluster) {
  Json weights = Json::object();
  for (DeviceId device : cluster.device_ids()) {
    weights[cluster.device(device).name] = strategy.row_weights[device];
  }
  return weights;
}

Json sync_json(const Strategy& strategy, const cost::Problem& problem) {
  Json list = Json::array();
  for (const ParameterSync& sync : strategy.sync) {
    Json item = {{"parameter", problem.graph->tensor(sync.parameter).name},
                 {"method", sync_method_name(sync.method)}};
    if (sync.server.valid()) item["server"] = problem.cluster->device(sync.server).name;
    for (const Replica& server : sync.servers) {
      item["servers"].push_back(problem.cluster->device(server.device).name);
      item["weights"].push_back(server.weight);
    }
    list.push_back(item);
  }
  return list;
}

Json predicted_json(const PlanRecord& record, const cluster::Cluster& cluster) {
  Json devices = Json::array();
  for (std::size_t i = 0; i < record.peak_bytes.size(); ++i) {
    devices.push_back(
        {{"name", cluster.device(DeviceId(i)).name}, {"peak_bytes", record.peak_bytes[i]}});
  }
  return {
      {"step_seconds", record.step_seconds}, {"feasible", record.feasible}, {"devices", devices}};
}

// ---- reading ----

std::uint64_t read_hash(const JsonValue& value) {
  const std::string text = value.as_string();
  VALIDATE(text.size() == 16 && text.find_first_not_of("0123456789abcdef") == text.npos,
           "{}: expected 16 hexadecimal digits", value.where());
  return std::stoull(text, nullptr, 16);
}

PlanHeader read_header(JsonObject& object) {
  PlanHeader header;
  JsonObject graph(object.required("graph"));
  header.graph_hash = read_hash(graph.required("hash"));
  graph.skip("name");
  graph.finish();
  JsonObject cluster(object.required("cluster"));
  header.cluster_hash = read_hash(cluster.required("hash"));
  cluster.skip("name");
  cluster.finish();
  header.batch = object.integer("batch", 1, graph::kMaxSamples);
  header.max_groups = static_cast<int>(object.integer("max_groups", 1, kMaxGroups));
  return header;
}

class Names {
 public:
  explicit Names(const cost::Problem& problem) {
    for (DeviceId id : problem.cluster->place_ids()) {
      devices_[problem.cluster->device(id).name] = id;
    }
    for (TensorId id : problem.graph->parameters())
      parameters_[problem.graph->tensor(id).name] = id;
  }
  DeviceId device(const JsonValue& value) const {
    const auto at = devices_.find(value.as_string());
    VALIDATE(at != devices_.end(), "{}: no device '{}' in the cluster", value.where(),
             printable(value.as_string()));
    return at->second;
  }
  TensorId parameter(const JsonValue& value) const {
    const auto at = parameters_.find(value.as_string());
    VALIDATE(at != parameters_.end(), "{}: no parameter '{}' in the graph", value.where(),
             printable(value.as_string()));
    return at->second;
  }

 private:
  std::map<std::string, DeviceId> devices_;
  std::map<std::string, TensorId> parameters_;
};

SyncMethod read_method(const JsonValue& value) {
  const std::string text = value.as_string();
  const auto found = std::ranges::find(kSyncMethods, text, sync_method_name);
  VALIDATE(found != kSyncMethods.end(), "{}: '{}', expected ps, all-reduce or sharded",
           value.where(), printable(text));
  return *found;
}

OrderPolicy read_order(const JsonValue& value) {
  const std::string text = value.as_string();
  const auto policy = find_order_policy(text);
  VALIDATE(policy, "{}: '{}', expected priority, {}", value.where(), printable(text), kPlainOrders);
  return *policy;
}

// Devices and their weights, in two lists.
std::vector<Replica> read_replicas(JsonObject& object, const char* of, const Names& names) {
  const auto devices = object.list(of);
  const auto weights = object.list("weights");
  VALIDATE(!devices.empty() && devices.size() == weights.size(),
           "{}: {} {} and {} weights, expected as many of both, at least one", object.where(),
           devices.size(), of, weights.size());
  std::vector<Replica> replicas;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    replicas.push_back({names.device(devices[i]), weights[i].as_positive()});
  }
  return replicas;
}

UnitDecision read_decision(const JsonValue& value, const Names& names) {
  JsonObject object(value);
  UnitDecision decision;
  decision.replicas = read_replicas(object, "devices", names);
  decision.sync = read_method(object.required("sync"));
  if (object.has("in_turn")) decision.in_turn = object.required("in_turn").as_bool();
  if (object.has("recompute")) decision.recompute = object.required("recompute").as_bool();
  object.finish();
  return decision;
}

void read_units(JsonObject& object, const Names& names, std::size_t ops, Strategy& strategy) {
  std::vector<UnitDecision> decisions;
  for (const JsonValue& item : object.list("decisions")) {
    decisions.push_back(read_decision(item, names));
  }
  const std::int64_t last = static_cast<std::int64_t>(decisions.size()) - 1;
  for (const JsonValue& item : object.list("units")) {
    VALIDATE(last >= 0, "{}: there are no decisions", item.where());
    strategy.units.push_back(decisions[static_cast<std::size_t>(item.as_int(0, last))]);
  }
  if (object.has("unit_of_op")) {
    const std::int64_t units = static_cast<std::int64_t>(strategy.units.size()) - 1;
    for (const JsonValue& item : object.list("unit_of_op")) {
      VALIDATE(units >= 0, "{}: there are no units", item.where());
      const std::vector<JsonValue> run = item.as_list();
      VALIDATE(run.size() == 2, "{}: {} values, expected [unit, how many ops]", item.where(),
               run.size());
      const UnitId unit(static_cast<std::size_t>(run[0].as_int(0, units)));
      const auto left = static_cast<std::int64_t>(ops - strategy.unit_of_op.size());
      VALIDATE(left > 0, "{}: the {} ops of the graph have units already", item.where(), ops);
      for (std::int64_t i = run[1].as_int(1, left); i > 0; --i) strategy.unit_of_op.push_back(unit);
    }
    VALIDATE(!strategy.unit_of_op.empty(), "{}: unit_of_op is empty, leave it out instead",
             object.where());
  }
}

// Of the groups that the units are: they depend on the costs of the operators.
std::uint64_t grouping_hash(const cost::Problem& problem) {
  Hasher hasher;
  for (GroupId group : problem.grouping.group_of) hasher.add(group.value());
  return hasher.value();
}

// Under other costs the same units are other groups. That makes no difference where all units
// decide alike.
void check_grouping(JsonObject& object, const std::string& source, const cost::Problem& problem,
                    Strategy& strategy) {
  if (!object.has("grouping")) return;
  const std::uint64_t theirs = read_hash(object.required("grouping"));
  if (theirs == grouping_hash(problem) || !strategy.unit_of_op.empty()) return;
  const auto& units = strategy.units.raw();
  VALIDATE(std::all_of(units.begin(), units.end(),
                       [&](const UnitDecision& unit) { return unit == units.front(); }),
           "{}: grouping: made with other costs, which make other groups of operators; give the "
           "--profile files that it was planned with, or none if there were none",
           source);
  if (!units.empty()) {
    strategy.units.assign(problem.grouping.count(), UnitDecision(units.front()));
  }
}

void read_sync(JsonObject& object, const Names& names, Strategy& strategy) {
  for (const JsonValue& item : object.list("sync")) {
    JsonObject entry(item);
    ParameterSync sync;
    sync.parameter = names.parameter(entry.required("parameter"));
    sync.method = read_method(entry.required("method"));
    if (entry.has("server")) sync.server = names.device(entry.required("server"));
    if (entry.has("servers")) sync.servers = read_replicas(entry, "servers", names);
    entry.finish();
    strategy.sync.push_back(sync);
  }
}

void read_predicted(const JsonValue& value, PlanRecord& record) {
  JsonObject object(value);
  record.step_seconds = object.number("step_seconds", 0, 1e12);
  record.feasible = object.required("feasible").as_bool();
  for (const JsonValue& item : object.list("devices")) {
    JsonObject device(item);
    device.skip("name");
    record.peak_bytes.push_back(device.integer("peak_bytes", 0, std::int64_t{1} << 60));
    device.finish();
  }
  object.finish();
}

// [op, instance, priority], each a triple.
void read_priorities(JsonObject& object, const cost::Problem& problem, Strategy& strategy) {
  if (!object.has("priorities")) return;
  std::map<std::string_view, OpId> ops;
  for (OpId op : problem.graph->op_ids()) ops.emplace(problem.graph->op(op).name, op);
  for (const JsonValue& item : object.list("priorities")) {
    const std::vector<JsonValue> parts = item.as_list();
    VALIDATE(parts.size() == 3, "{}: {} values, expected [op, instance, priority]", item.where(),
             parts.size());
    const std::string name = parts[0].as_string();
    const auto op = ops.find(name);
    VALIDATE(op != ops.end(), "{}: the graph has no op '{}'", parts[0].where(), printable(name));
    strategy.priorities.push_back(
        {op->second, static_cast<std::uint32_t>(parts[1].as_int(0, 0xfffffffe)),
         parts[2].as_int(-(std::int64_t{1} << 53), std::int64_t{1} << 53)});
  }
}

Json priorities_json(const Strategy& strategy, const cost::Problem& problem) {
  Json list = Json::array();
  for (const OpPriority& one : strategy.priorities) {
    list.push_back({problem.graph->op(one.op).name, one.instance, one.priority});
  }
  return list;
}

Pattern read_pattern(const JsonValue& value) {
  const std::string text = value.as_string();
  const auto pattern = find_pattern(text);
  VALIDATE(pattern,
           "{}: '{}', expected none, depth-first, forward-first, 1f1b, listed or zero-bubble",
           value.where(), printable(text));
  return *pattern;
}

// Every device in one of them.
void read_pipelines(const JsonValue& list, const cost::Problem& problem, const Names& names,
                    Strategy& strategy) {
  constexpr std::uint32_t kNone = 0xffffffff;
  strategy.pipeline_of.assign(problem.cluster->device_count(), kNone);
  std::uint32_t pipeline = 0;
  for (const JsonValue& devices : list.as_list()) {
    for (const JsonValue& item : devices.as_list()) {
      const DeviceId device = names.device(item);
      VALIDATE(!problem.cluster->is_host(device),
               "{}: '{}' is a host that serves parameters; expected a device", item.where(),
               problem.cluster->device(device).name);
      VALIDATE(strategy.pipeline_of[device] == kNone, "{}: device '{}' stands twice", item.where(),
               problem.cluster->device(device).name);
      strategy.pipeline_of[device] = pipeline;
    }
    ++pipeline;
  }
  for (DeviceId device : problem.cluster->device_ids()) {
    VALIDATE(strategy.pipeline_of[device] != kNone, "{}: device '{}' is in none of them",
             list.where(), problem.cluster->device(device).name);
  }
}

// By the names of all devices.
void read_row_weights(const JsonValue& value, const cost::Problem& problem, Strategy& strategy) {
  JsonObject weights(value);
  for (DeviceId device : problem.cluster->device_ids()) {
    strategy.row_weights.push_back(weights.positive(problem.cluster->device(device).name));
  }
  weights.finish();
}

void read_micro_batches(JsonObject& object, const cost::Problem& problem, const Names& names,
                        Strategy& strategy) {
  if (!object.has("micro_batches")) return;
  JsonObject of(object.required("micro_batches"));
  strategy.micro_batches = of.integer("count", 1, problem.batch);
  strategy.pattern = read_pattern(of.required("pattern"));
  strategy.strict = of.required("strict").as_bool();
  if (of.has("pipelines")) read_pipelines(of.required("pipelines"), problem, names, strategy);
  of.finish();
}

// Of an older plan, what makes it anew.
void check_version(JsonObject& object, const Json& json) {
  const auto text = [](const Json& in, const char* key) {
    const bool there = in.is_object() && in.contains(key) && in[key].is_string();
    return there ? printable(in[key].get<std::string>()) : std::string("…");
  };
  const auto number = [&](const char* key) -> std::int64_t {
    const bool there = json.is_object() && json.contains(key) && json[key].is_number_integer();
    return there ? json[key].get<std::int64_t>() : 0;
  };
  const bool is_older = text(json, "format") == "heterog-plan" && number("version") >= 1 &&
                        number("version") < kVersion;
  VALIDATE(!is_older,
           "{}: version: expected {}, found {}; make it anew: heterog plan --graph {} --cluster {} "
           "--batch {} --planner {} --out FILE",
           object.where(), kVersion, number("version"),
           json.contains("graph") ? text(json["graph"], "name") : "GRAPH",
           json.contains("cluster") ? text(json["cluster"], "name") : "CLUSTER", number("batch"),
           text(json, "planner"));
  check_format(object, "heterog-plan", kVersion);
}

PlanRecord read_record(const Json& json, const std::string& source, const cost::Problem& problem) {
  JsonObject object(JsonValue(json, source));
  check_version(object, json);
  const PlanHeader header = read_header(object);
  VALIDATE(header.graph_hash == problem.graph->hash(),
           "{}: graph.hash: made for graph {}, this graph is {} ({})", source,
           hash_text(header.graph_hash), hash_text(problem.graph->hash()), problem.graph->name());
  VALIDATE(header.cluster_hash == problem.cluster->hash(),
           "{}: cluster.hash: made for cluster {}, this cluster is {} ({})", source,
           hash_text(header.cluster_hash), hash_text(problem.cluster->hash()),
           problem.cluster->name());
  VALIDATE(header.batch == problem.batch, "{}: batch: made for batch {}, asked for {}", source,
           header.batch, problem.batch);
  const Names names(problem);
  PlanRecord record;
  record.max_groups = header.max_groups;
  record.planner = object.string("planner");
  record.strategy.order = read_order(object.required("order"));
  record.strategy.bucket_bytes = object.integer("bucket_bytes", 0, std::int64_t{1} << 50);
  if (object.has("row_weights")) {
    read_row_weights(object.required("row_weights"), problem, record.strategy);
  }
  read_units(object, names, problem.graph->op_count(), record.strategy);
  check_grouping(object, source, problem, record.strategy);
  read_sync(object, names, record.strategy);
  read_priorities(object, problem, record.strategy);
  if (object.has("order_rounds")) {
    record.strategy.order_rounds =
        static_cast<int>(object.integer("order_rounds", 1, kMostOrderRounds));
  }
  read_micro_batches(object, problem, names, record.strategy);
  read_predicted(object.required("predicted"), record);
  object.finish();
  check_strategy(problem, record.strategy, source);
  return record;
}

}  // namespace

void write_plan(const std::string& path, const PlanRecord& record, const cost::Problem& problem) {
  check_strategy(problem, record.strategy, path);
  nlohmann::ordered_json json;
  json["format"] = "heterog-plan";
  json["version"] = kVersion;
  json["planner"] = record.planner;
  json["graph"] = {{"name", problem.graph->name()}, {"hash", hash_text(problem.graph->hash())}};
  json["cluster"] = {{"name", problem.cluster->name()},
                     {"hash", hash_text(problem.cluster->hash())}};
  json["batch"] = problem.batch;
  json["max_groups"] = record.max_groups;
  if (record.strategy.unit_of_op.empty()) json["grouping"] = hash_text(grouping_hash(problem));
  json["predicted"] = predicted_json(record, *problem.cluster);
  json["order"] = order_policy_name(record.strategy.order);
  if (record.strategy.order_rounds > 0) json["order_rounds"] = record.strategy.order_rounds;
  json["bucket_bytes"] = record.strategy.bucket_bytes;
  if (!record.strategy.row_weights.empty()) {
    json["row_weights"] = row_weights_json(record.strategy, *problem.cluster);
  }
  json["sync"] = sync_json(record.strategy, problem);
  if (!record.strategy.priorities.empty()) {
    json["priorities"] = priorities_json(record.strategy, problem);
  }
  const Json micro_batches = micro_batches_json(record.strategy, *problem.cluster);
  if (!micro_batches.is_null()) json["micro_batches"] = micro_batches;
  Json decided;
  add_units(record.strategy, *problem.cluster, decided);
  for (const auto& [key, value] : decided.items()) json[key] = value;
  // One field a line: long lists stay on their line, so that the decisions can be read.
  std::string text = "{\n";
  for (const auto& [key, value] : json.items()) {
    if (text.size() > 2) text += ",\n";
    text += Json(key).dump() + ": " + value.dump();
  }
  write_file(path, text + "\n}\n");
}

PlanHeader read_plan_header(const std::string& path) {
  const Json json = read_json_file(path);
  JsonObject object(JsonValue(json, path));
  check_version(object, json);
  return read_header(object);
}

PlanRecord read_plan(const std::string& path, const cost::Problem& problem) {
  return read_record(read_json_file(path), path, problem);
}

PlanRecord parse_plan(const std::string& text, const std::string& source,
                      const cost::Problem& problem) {
  return read_record(parse_json(text, source), source, problem);
}

}  // namespace heterog::decide
