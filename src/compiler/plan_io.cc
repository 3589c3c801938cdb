// Plan files: the decisions by name, what they refer to, and what was predicted (docs/formats.md).
#include "compiler/plan_io.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "compiler/check_strategy.h"

namespace heterog::compiler {
namespace {

// The first had neither recomputation nor turns, and is read as one that has none.
constexpr int kVersion = 2;
constexpr int kOldestVersion = 1;
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
  if (decision.instances != Instances::kPerDevice) {
    json["instances"] = instances_name(decision.instances);
  }
  if (decision.recompute) json["recompute"] = true;
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
    Json of_op = Json::array();
    for (UnitId unit : strategy.unit_of_op) of_op.push_back(unit.value());
    json["unit_of_op"] = of_op;
  }
}

Json sync_json(const Strategy& strategy, const cost::Problem& problem) {
  Json list = Json::array();
  for (const ParameterSync& sync : strategy.sync) {
    Json item = {{"parameter", problem.graph->tensor(sync.parameter).name},
                 {"method", sync_method_name(sync.method)}};
    if (sync.server.valid()) item["server"] = problem.cluster->device(sync.server).name;
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
  if (text == "ps") return SyncMethod::kParameterServer;
  VALIDATE(text == "all-reduce", "{}: '{}', expected ps or all-reduce", value.where(),
           printable(text));
  return SyncMethod::kAllReduce;
}

OrderPolicy read_order(const JsonValue& value) {
  const std::string text = value.as_string();
  const auto policy = find_order_policy(text);
  VALIDATE(policy, "{}: '{}', expected priority, {}", value.where(), printable(text), kPlainOrders);
  return *policy;
}

Instances read_instances(const JsonValue& value) {
  const std::string text = value.as_string();
  if (text == "per-device") return Instances::kPerDevice;
  VALIDATE(text == "per-entry", "{}: '{}', expected per-device or per-entry", value.where(),
           printable(text));
  return Instances::kPerEntry;
}

UnitDecision read_decision(const JsonValue& value, const Names& names) {
  JsonObject object(value);
  UnitDecision decision;
  const auto devices = object.list("devices");
  const auto weights = object.list("weights");
  VALIDATE(!devices.empty() && devices.size() == weights.size(),
           "{}: {} devices and {} weights, expected as many of both, at least one", value.where(),
           devices.size(), weights.size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    decision.replicas.push_back({names.device(devices[i]), weights[i].as_positive()});
  }
  decision.sync = read_method(object.required("sync"));
  if (object.has("instances")) decision.instances = read_instances(object.required("instances"));
  if (object.has("recompute")) decision.recompute = object.required("recompute").as_bool();
  object.finish();
  return decision;
}

void read_units(JsonObject& object, const Names& names, Strategy& strategy) {
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
      strategy.unit_of_op.push_back(UnitId(static_cast<std::size_t>(item.as_int(0, units))));
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

// Of each device that takes turns: [first unit, behind the last, entry], each a triple.
void read_sequence(JsonObject& object, const cost::Problem& problem, const Names& names,
                   Strategy& strategy) {
  if (!object.has("sequence")) return;
  strategy.sequence.assign(problem.cluster->device_count(), {});
  for (const JsonValue& item : object.list("sequence")) {
    JsonObject entry(item);
    const DeviceId device = names.device(entry.required("device"));
    VALIDATE(!problem.cluster->is_host(device),
             "{}: '{}' is a host that serves parameters, which takes no turns; expected a device",
             item.where(), problem.cluster->device(device).name);
    auto& turns = strategy.sequence[device];
    VALIDATE(turns.empty(), "{}: device '{}' stands twice, expected one entry", item.where(),
             problem.cluster->device(device).name);
    for (const JsonValue& one : entry.list("turns")) {
      const std::vector<JsonValue> parts = one.as_list();
      VALIDATE(parts.size() == 3, "{}: {} values, expected [unit, unit behind, entry]", one.where(),
               parts.size());
      const auto number = [&](std::size_t i) {
        return static_cast<std::size_t>(parts[i].as_int(0, 0xfffffffe));
      };
      turns.push_back(
          {UnitId(number(0)), UnitId(number(1)), static_cast<std::uint32_t>(number(2))});
    }
    VALIDATE(!turns.empty(), "{}: no turns, leave the device out instead", item.where());
    entry.finish();
  }
}

Json sequence_json(const Strategy& strategy, const cost::Problem& problem) {
  Json list = Json::array();
  for (DeviceId device : problem.cluster->device_ids()) {
    if (strategy.sequence[device].empty()) continue;
    Json turns = Json::array();
    for (const Turn& turn : strategy.sequence[device]) {
      turns.push_back({turn.begin.value(), turn.end.value(), turn.entry});
    }
    list.push_back({{"device", problem.cluster->device(device).name}, {"turns", turns}});
  }
  return list;
}

// Every task at most once; which tasks there are is known once the plan is compiled.
void read_dispatch(JsonObject& object, PlanRecord& record) {
  std::set<std::int64_t> seen;
  for (const JsonValue& item : object.list("dispatch")) {
    const std::int64_t task = item.as_int(0, 0xfffffffe);
    VALIDATE(seen.insert(task).second, "{}: task {} stands twice", item.where(), task);
    record.dispatch.push_back(TaskId(static_cast<std::size_t>(task)));
  }
}

PlanRecord read_record(const Json& json, const std::string& source, const cost::Problem& problem) {
  JsonObject object(JsonValue(json, source));
  check_format(object, "heterog-plan", kOldestVersion, kVersion);
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
  read_units(object, names, record.strategy);
  check_grouping(object, source, problem, record.strategy);
  read_sync(object, names, record.strategy);
  read_priorities(object, problem, record.strategy);
  read_sequence(object, problem, names, record.strategy);
  read_predicted(object.required("predicted"), record);
  read_dispatch(object, record);
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
  json["bucket_bytes"] = record.strategy.bucket_bytes;
  json["sync"] = sync_json(record.strategy, problem);
  if (!record.strategy.priorities.empty()) {
    json["priorities"] = priorities_json(record.strategy, problem);
  }
  if (!record.strategy.sequence.empty()) json["sequence"] = sequence_json(record.strategy, problem);
  Json decided;
  add_units(record.strategy, *problem.cluster, decided);
  for (const auto& [key, value] : decided.items()) json[key] = value;
  Json dispatch = Json::array();
  for (TaskId task : record.dispatch) dispatch.push_back(task.value());
  json["dispatch"] = dispatch;
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
  check_format(object, "heterog-plan", kOldestVersion, kVersion);
  return read_header(object);
}

PlanRecord read_plan(const std::string& path, const cost::Problem& problem) {
  return read_record(read_json_file(path), path, problem);
}

PlanRecord parse_plan(const std::string& text, const std::string& source,
                      const cost::Problem& problem) {
  return read_record(parse_json(text, source), source, problem);
}

}  // namespace heterog::compiler
