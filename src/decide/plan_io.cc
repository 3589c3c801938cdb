// Reads plan files (docs/formats.md).
#include "decide/plan_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "decide/check_strategy.h"

namespace heterog::decide {
namespace {

constexpr std::int64_t kMaxGroups = 1 << 20;

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
  cluster.skip("types");
  cluster.finish();
  header.batch = object.integer("batch", 1, graph::kMaxSamples);
  header.max_groups = static_cast<int>(object.integer("max_groups", 1, kMaxGroups));
  if (object.has("compression")) {
    const JsonValue value = object.required("compression");
    header.compression = cost::parse_compression(value.as_string(), value.where());
    VALIDATE(header.compression.any(), "{}: none, leave it out instead", value.where());
  }
  return header;
}

// What the names of a plan file stand for.
class Names {
 public:
  explicit Names(const cost::Problem& problem) : device_count_(problem.cluster->device_count()) {
    for (DeviceId id : problem.cluster->place_ids()) add_place(problem.cluster->device(id).name);
    add_parameters(*problem.graph);
  }
  // Of a cluster that is not at hand: what else has a name is a host that serves.
  Names(const graph::ModelGraph& graph, const std::vector<PlannedDevice>& devices)
      : device_count_(devices.size()), hosts_are_known_(false) {
    for (const PlannedDevice& device : devices) add_place(device.name);
    add_parameters(graph);
  }
  std::size_t device_count() const { return device_count_; }
  bool is_host(DeviceId id) const { return id.value() >= device_count_; }
  const std::vector<std::string>& places() const { return names_; }
  DeviceId device(const JsonValue& value) {
    const std::string name = value.as_string();
    const auto at = places_.find(name);
    if (at != places_.end()) return at->second;
    VALIDATE(!hosts_are_known_, "{}: no device '{}' in the cluster", value.where(),
             printable(name));
    return add_place(name);
  }
  TensorId parameter(const JsonValue& value) const {
    const auto at = parameters_.find(value.as_string());
    VALIDATE(at != parameters_.end(), "{}: no parameter '{}' in the graph", value.where(),
             printable(value.as_string()));
    return at->second;
  }

 private:
  DeviceId add_place(const std::string& name) {
    names_.push_back(name);
    return places_[name] = DeviceId(names_.size() - 1);
  }
  // Frozen weights stand among the buffers; check_strategy knows which these are.
  void add_parameters(const graph::ModelGraph& graph) {
    for (TensorId id : graph.tensor_ids()) {
      if (graph.tensor(id).role != graph::TensorRole::kBuffer) continue;
      parameters_[graph.tensor(id).name] = id;
    }
    for (TensorId id : graph.parameters()) parameters_[graph.tensor(id).name] = id;
  }

  std::size_t device_count_;
  bool hosts_are_known_ = true;
  std::vector<std::string> names_;  // of devices, then of hosts
  std::map<std::string, DeviceId> places_;
  std::map<std::string, TensorId> parameters_;
};

SyncMethod read_method(const JsonValue& value) {
  const std::string text = value.as_string();
  const auto found = std::ranges::find(kSyncMethods, text, sync_method_name);
  VALIDATE(found != kSyncMethods.end(), "{}: '{}', expected ps, all-reduce, sharded or gathered",
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
std::vector<Replica> read_replicas(JsonObject& object, const char* of, Names& names) {
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

UnitDecision read_decision(const JsonValue& value, Names& names) {
  JsonObject object(value);
  UnitDecision decision;
  decision.replicas = read_replicas(object, "devices", names);
  decision.sync = read_method(object.required("sync"));
  if (object.has("in_turn")) decision.in_turn = object.required("in_turn").as_bool();
  if (object.has("recompute")) decision.recompute = object.required("recompute").as_bool();
  object.finish();
  return decision;
}

// One of `count` for each op: [which, how many ops], each a pair. Takes no more than there are ops.
template <class Id>
IdVector<OpId, Id> read_runs(JsonObject& object, const char* key, const char* what,
                             std::size_t count, std::size_t ops) {
  IdVector<OpId, Id> of_op;
  for (const JsonValue& item : object.list(key)) {
    VALIDATE(count > 0, "{}: there are no {}s", item.where(), what);
    const std::vector<JsonValue> run = item.as_list();
    VALIDATE(run.size() == 2, "{}: {} values, expected [{}, how many ops]", item.where(),
             run.size(), what);
    const Id one(static_cast<std::size_t>(run[0].as_int(0, static_cast<std::int64_t>(count) - 1)));
    const auto left = static_cast<std::int64_t>(ops - of_op.size());
    VALIDATE(left > 0, "{}: the {} ops of the graph have {}s already", item.where(), ops, what);
    for (std::int64_t i = run[1].as_int(1, left); i > 0; --i) of_op.push_back(one);
  }
  VALIDATE(!of_op.empty(), "{}: {} is empty, leave it out instead", object.where(), key);
  return of_op;
}

std::vector<UnitDecision> read_decisions(JsonObject& object, Names& names) {
  std::vector<UnitDecision> decisions;
  for (const JsonValue& item : object.list("decisions")) {
    decisions.push_back(read_decision(item, names));
  }
  return decisions;
}

void read_units(JsonObject& object, const std::vector<UnitDecision>& decisions, std::size_t ops,
                Strategy& strategy) {
  const std::int64_t last = static_cast<std::int64_t>(decisions.size()) - 1;
  for (const JsonValue& item : object.list("units")) {
    VALIDATE(last >= 0, "{}: there are no decisions", item.where());
    strategy.units.push_back(decisions[static_cast<std::size_t>(item.as_int(0, last))]);
  }
  if (object.has("unit_of_op")) {
    strategy.unit_of_op =
        read_runs<UnitId>(object, "unit_of_op", "unit", strategy.units.size(), ops);
  }
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

void read_sync(JsonObject& object, Names& names, Strategy& strategy) {
  for (const JsonValue& item : object.list("sync")) {
    JsonObject entry(item);
    ParameterSync sync;
    sync.parameter = names.parameter(entry.required("parameter"));
    sync.method = read_method(entry.required("method"));
    if (entry.has("server")) sync.server = names.device(entry.required("server"));
    if (entry.has("servers")) sync.servers = read_replicas(entry, "servers", names);
    if (entry.has("group")) {
      sync.group = static_cast<std::uint32_t>(entry.integer("group", 1, kMostGroups));
    }
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

Pattern read_pattern(const JsonValue& value) {
  const std::string text = value.as_string();
  const auto pattern = find_pattern(text);
  VALIDATE(pattern,
           "{}: '{}', expected none, depth-first, forward-first, 1f1b, listed or zero-bubble",
           value.where(), printable(text));
  return *pattern;
}

// Every device in one of them.
void read_pipelines(const JsonValue& list, Names& names, Strategy& strategy) {
  constexpr std::uint32_t kNone = 0xffffffff;
  strategy.pipeline_of.assign(names.device_count(), kNone);
  std::uint32_t pipeline = 0;
  for (const JsonValue& devices : list.as_list()) {
    for (const JsonValue& item : devices.as_list()) {
      const DeviceId device = names.device(item);
      const std::string& name = names.places()[device.value()];
      VALIDATE(!names.is_host(device),
               "{}: '{}' is a host that serves parameters; expected a device", item.where(),
               printable(name));
      VALIDATE(strategy.pipeline_of[device] == kNone, "{}: device '{}' stands twice", item.where(),
               name);
      strategy.pipeline_of[device] = pipeline;
    }
    ++pipeline;
  }
  for (DeviceId device : id_range<DeviceId>(names.device_count())) {
    VALIDATE(strategy.pipeline_of[device] != kNone, "{}: device '{}' is in none of them",
             list.where(), names.places()[device.value()]);
  }
}

// By the names of all devices.
void read_row_weights(JsonObject& object, const Names& names, Strategy& strategy) {
  if (!object.has("row_weights")) return;
  JsonObject weights(object.required("row_weights"));
  for (DeviceId device : id_range<DeviceId>(names.device_count())) {
    strategy.row_weights.push_back(weights.positive(names.places()[device.value()]));
  }
  weights.finish();
}

void read_micro_batches(JsonObject& object, std::int64_t batch, Names& names, Strategy& strategy) {
  if (!object.has("micro_batches")) return;
  JsonObject of(object.required("micro_batches"));
  strategy.micro_batches = of.integer("count", 1, batch);
  strategy.pattern = read_pattern(of.required("pattern"));
  strategy.strict = of.required("strict").as_bool();
  if (of.has("pipelines")) read_pipelines(of.required("pipelines"), names, strategy);
  of.finish();
}

void read_order_rounds(JsonObject& object, Strategy& strategy) {
  if (!object.has("order_rounds")) return;
  strategy.order_rounds = static_cast<int>(object.integer("order_rounds", 1, kMostOrderRounds));
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
                        number("version") < kPlanVersion;
  VALIDATE(!is_older,
           "{}: version: expected {}, found {}; make it anew: heterog plan --graph {} --cluster {} "
           "--batch {} --planner {} --out FILE",
           object.where(), kPlanVersion, number("version"),
           json.contains("graph") ? text(json["graph"], "name") : "GRAPH",
           json.contains("cluster") ? text(json["cluster"], "name") : "CLUSTER", number("batch"),
           text(json, "planner"));
  check_format(object, "heterog-plan", kPlanVersion);
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
  VALIDATE(header.compression == problem.compression, "{}: compression: made for {}, asked for {}",
           source, cost::compression_text(header.compression),
           cost::compression_text(problem.compression));
  VALIDATE(header.batch == problem.batch, "{}: batch: made for batch {}, asked for {}", source,
           header.batch, problem.batch);
  Names names(problem);
  PlanRecord record;
  record.max_groups = header.max_groups;
  record.planner = object.string("planner");
  record.strategy.order = read_order(object.required("order"));
  record.strategy.bucket_bytes = object.integer("bucket_bytes", 0, std::int64_t{1} << 50);
  read_row_weights(object, names, record.strategy);
  read_units(object, read_decisions(object, names), problem.graph->op_count(), record.strategy);
  if (object.has("decision_of_op")) object.skip("decision_of_op");
  check_grouping(object, source, problem, record.strategy);
  read_sync(object, names, record.strategy);
  read_priorities(object, problem, record.strategy);
  read_order_rounds(object, record.strategy);
  read_micro_batches(object, problem.batch, names, record.strategy);
  read_predicted(object.required("predicted"), record);
  object.finish();
  check_strategy(problem, record.strategy, source);
  return record;
}

// Every device of the cluster that the plan was made for, once.
std::vector<PlannedDevice> read_types(const JsonValue& value) {
  JsonObject cluster(value);
  VALIDATE(cluster.has("types"),
           "{}: has no types, by which a plan is carried over to other devices; make it anew",
           cluster.where());
  cluster.skip("name");
  cluster.skip("hash");
  const JsonValue types = cluster.required("types");
  JsonObject of(types);
  std::vector<PlannedDevice> devices;
  std::set<std::string> seen;
  for (const auto& [type, names] : types.json().items()) {
    for (const JsonValue& name : of.list(type)) {
      devices.push_back({name.as_string(), type});
      VALIDATE(seen.insert(devices.back().name).second, "{}: device '{}' stands twice",
               name.where(), printable(devices.back().name));
    }
  }
  VALIDATE(!devices.empty(), "{}: types: empty, expected every device", cluster.where());
  return devices;
}

}  // namespace

OtherPlan read_other_plan(const std::string& path, const graph::ModelGraph& graph) {
  const Json json = read_json_file(path);
  JsonObject object(JsonValue(json, path));
  check_version(object, json);
  const PlanHeader header = read_header(object);
  VALIDATE(header.graph_hash == graph.hash(),
           "{}: graph.hash: made for graph {}, this graph is {} ({})", path,
           hash_text(header.graph_hash), hash_text(graph.hash()), graph.name());
  OtherPlan plan{.batch = header.batch, .devices = read_types(object.required("cluster"))};
  Names names(graph, plan.devices);
  plan.planner = object.string("planner");
  plan.strategy.order = read_order(object.required("order"));
  plan.strategy.bucket_bytes = object.integer("bucket_bytes", 0, std::int64_t{1} << 50);
  read_row_weights(object, names, plan.strategy);
  plan.decisions = read_decisions(object, names);
  read_units(object, plan.decisions, graph.op_count(), plan.strategy);
  if (object.has("grouping")) plan.grouping_hash = read_hash(object.required("grouping"));
  if (object.has("decision_of_op")) {
    plan.decision_of_op = read_runs<UnitId>(object, "decision_of_op", "decision",
                                            plan.decisions.size(), graph.op_count());
    VALIDATE(plan.decision_of_op.size() == graph.op_count(),
             "{}: decision_of_op: of {} ops, the graph has {}", path, plan.decision_of_op.size(),
             graph.op_count());
  }
  read_sync(object, names, plan.strategy);
  if (object.has("priorities")) object.skip("priorities");
  read_order_rounds(object, plan.strategy);
  read_micro_batches(object, header.batch, names, plan.strategy);
  object.skip("predicted");
  object.finish();
  const std::vector<std::string>& places = names.places();
  plan.hosts.assign(places.begin() + static_cast<std::ptrdiff_t>(plan.devices.size()),
                    places.end());
  for (const UnitDecision& decision : plan.decisions) {
    for (const Replica& replica : decision.replicas) {
      VALIDATE(!names.is_host(replica.device), "{}: decisions: no device '{}' in cluster.types",
               path, printable(places[replica.device.value()]));
    }
  }
  return plan;
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
