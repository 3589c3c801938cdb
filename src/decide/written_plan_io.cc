// Writes plan files: the decisions by name, what they refer to, and what was predicted
// (docs/formats.md).
#include <algorithm>

#include "base/file.h"
#include "base/hash.h"
#include "base/json_reader.h"
#include "decide/check_strategy.h"
#include "decide/plan_io.h"

namespace heterog::decide {
namespace {

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

// The decision of each op, where units are groups, which other costs or another batch make anew,
// and decide differently: neighbours that decide alike together, [decision, how many].
void add_decision_of_op(const Strategy& strategy, const cost::Problem& problem, Json& json) {
  if (!strategy.unit_of_op.empty() || json["decisions"].size() < 2) return;
  Json runs = Json::array();
  for (OpId op : problem.graph->op_ids()) {
    const Json& decision = json["units"][problem.grouping.group_of[op].value()];
    if (runs.empty() || runs.back()[0] != decision) runs.push_back({decision, 0});
    runs.back()[1] = runs.back()[1].get<std::int64_t>() + 1;
  }
  json["decision_of_op"] = runs;
}

// By the names of their types, for who plans for other machines.
Json types_json(const cluster::Cluster& cluster) {
  Json types = Json::object();
  for (DeviceId device : cluster.device_ids()) {
    types[cluster.type_of(device).name].push_back(cluster.device(device).name);
  }
  return types;
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
    if (sync.group != 0) item["group"] = sync.group;
    list.push_back(item);
  }
  return list;
}

Json priorities_json(const Strategy& strategy, const cost::Problem& problem) {
  Json list = Json::array();
  for (const OpPriority& one : strategy.priorities) {
    list.push_back({problem.graph->op(one.op).name, one.instance, one.priority});
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

}  // namespace

std::uint64_t grouping_hash(const cost::Problem& problem) {
  Hasher hasher;
  for (GroupId group : problem.grouping.group_of) hasher.add(group.value());
  return hasher.value();
}

void write_plan(const std::string& path, const PlanRecord& record, const cost::Problem& problem) {
  check_strategy(problem, record.strategy, path);
  nlohmann::ordered_json json;
  json["format"] = "heterog-plan";
  json["version"] = kPlanVersion;
  json["planner"] = record.planner;
  json["graph"] = {{"name", problem.graph->name()}, {"hash", hash_text(problem.graph->hash())}};
  json["cluster"] = {{"name", problem.cluster->name()},
                     {"hash", hash_text(problem.cluster->hash())},
                     {"types", types_json(*problem.cluster)}};
  json["batch"] = problem.batch;
  json["max_groups"] = record.max_groups;
  if (problem.compression.any()) {
    json["compression"] = cost::compression_text(problem.compression);
  }
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
  add_decision_of_op(record.strategy, problem, decided);
  for (const auto& [key, value] : decided.items()) json[key] = value;
  // One field a line: long lists stay on their line, so that the decisions can be read.
  std::string text = "{\n";
  for (const auto& [key, value] : json.items()) {
    if (text.size() > 2) text += ",\n";
    text += Json(key).dump() + ": " + value.dump();
  }
  write_file(path, text + "\n}\n");
}

}  // namespace heterog::decide
