// Profile files: one operator a line, every time with what the fit leaves of it.
#include "cost/profile_io.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace heterog::cost {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr double kMaxSeconds = 1e4;  // of one operator: nearly three hours
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;

// ---- writing ----

OrderedJson operator_json(const ProfiledOperator& op) {
  OrderedJson measured = OrderedJson::array();
  for (const Measurement& m : op.measured) {
    measured.push_back({{"samples", m.samples},
                        {"seconds", m.seconds},
                        {"spread_seconds", m.spread_seconds},
                        {"residual_seconds", m.seconds - op.fit.at(m.samples)}});
  }
  return {{"form", op.form},
          {"fixed_seconds", op.fit.fixed_seconds},
          {"seconds_per_sample", op.fit.seconds_per_sample},
          {"r2", op.fit.r2},
          {"measured", measured},
          {"ops", op.ops}};
}

OrderedJson link_json(const ProfiledLink& link) {
  OrderedJson measured = OrderedJson::array();
  for (const Transfer& t : link.measured) {
    const double predicted =
        link.latency_seconds + static_cast<double>(t.bytes) / link.bytes_per_second;
    measured.push_back({{"bytes", t.bytes},
                        {"seconds", t.seconds},
                        {"spread_seconds", t.spread_seconds},
                        {"residual_seconds", t.seconds - predicted}});
  }
  return {{"between", link.between},
          {"latency_seconds", link.latency_seconds},
          {"bandwidth_bytes_per_second", link.bytes_per_second},
          {"r2", link.r2},
          {"measured", measured}};
}

std::string lines(const std::vector<OrderedJson>& items) {
  std::string text = "[";
  for (std::size_t i = 0; i < items.size(); ++i) {
    text += (i ? ",\n " : "\n ") + items[i].dump();
  }
  return text + "]";
}

// ---- reading ----

constexpr double kLargest = std::numeric_limits<double>::max();

double read_r2(JsonObject& object) { return object.number("r2", -kLargest, 1); }

double read_cost(JsonObject& object, std::string_view key) {
  return object.number(key, 0, kMaxSeconds);
}

// A measured time: above 0, and bounded as costs are.
double read_time(JsonObject& object) {
  return object.number("seconds", std::numeric_limits<double>::min(), kMaxSeconds);
}

Measurement read_measurement(const JsonValue& value) {
  JsonObject object(value);
  Measurement m;
  m.samples = object.integer("samples", 1, graph::kMaxSamples);
  m.seconds = read_time(object);
  m.spread_seconds = read_cost(object, "spread_seconds");
  object.number("residual_seconds", -kMaxSeconds, kMaxSeconds);  // follows from the rest
  object.finish();
  return m;
}

ProfiledOperator read_operator(const JsonValue& value, std::set<std::string>& names) {
  JsonObject object(value);
  ProfiledOperator op;
  op.form = object.string("form");
  op.fit.fixed_seconds = read_cost(object, "fixed_seconds");
  op.fit.seconds_per_sample = read_cost(object, "seconds_per_sample");
  VALIDATE(op.fit.at(1) > 0,
           "{}: fixed_seconds and seconds_per_sample are both 0; every operator takes time",
           object.where());
  op.fit.r2 = read_r2(object);
  for (const JsonValue& item : object.list("measured")) {
    op.measured.push_back(read_measurement(item));
    for (std::size_t i = 0; i + 1 < op.measured.size(); ++i) {
      VALIDATE(op.measured[i].samples != op.measured.back().samples,
               "{}: {} samples were measured already; give each size once", item.where(),
               op.measured.back().samples);
    }
  }
  VALIDATE(!op.measured.empty(), "{}.measured is empty; expected at least one measurement",
           object.where());
  for (const JsonValue& item : object.list("ops")) {
    op.ops.push_back(item.as_string());
    VALIDATE(names.insert(op.ops.back()).second, "{}: op '{}' has a cost already; give each one",
             item.where(), printable(op.ops.back()));
  }
  object.finish();
  return op;
}

ProfiledLink read_link(const JsonValue& value) {
  JsonObject object(value);
  ProfiledLink link;
  link.between = object.string("between");
  link.latency_seconds = read_cost(object, "latency_seconds");
  link.bytes_per_second = object.positive("bandwidth_bytes_per_second");
  link.r2 = read_r2(object);
  for (const JsonValue& item : object.list("measured")) {
    JsonObject transfer(item);
    Transfer t;
    t.bytes = transfer.integer("bytes", 0, kMaxBytes);
    t.seconds = read_time(transfer);
    t.spread_seconds = read_cost(transfer, "spread_seconds");
    transfer.number("residual_seconds", -kMaxSeconds, kMaxSeconds);
    transfer.finish();
    link.measured.push_back(t);
  }
  object.finish();
  return link;
}

std::uint64_t read_hash(const JsonValue& value) {
  const std::string text = value.as_string();
  VALIDATE(text.size() == 16 && text.find_first_not_of("0123456789abcdef") == text.npos,
           "{}: expected 16 hexadecimal digits, found '{}'", value.where(), printable(text));
  return std::stoull(text, nullptr, 16);
}

Profile profile_from_json(const Json& json, const std::string& source) {
  JsonObject object(JsonValue(json, source));
  check_format(object, "heterog-profile", kVersion);
  Profile profile;
  JsonObject graph(object.required("graph"));
  profile.graph_name = graph.string("name");
  profile.graph_hash = read_hash(graph.required("hash"));
  graph.finish();
  profile.device = object.string("device");
  profile.machine = object.string("machine");
  profile.torch = object.string("torch");
  profile.threads = static_cast<int>(object.integer("threads", 1, 1 << 20));
  profile.repeat = static_cast<int>(object.integer("repeat", 1, 1 << 20));
  for (const JsonValue& item : object.list("slices")) {
    profile.slices.push_back(item.as_int(1, graph::kMaxSamples));
  }
  const std::string between = object.string_or("between", "line");
  VALIDATE(between == "line" || between == "model",
           "{}: between: \"{}\" given; it is line or model", source, printable(between));
  if (between == "model") profile.between = Between::kModel;
  profile.finished = object.required("finished").as_bool();
  for (const JsonValue& item : object.list("links")) profile.links.push_back(read_link(item));
  std::set<std::string> names;
  for (const JsonValue& item : object.list("operators")) {
    profile.operators.push_back(read_operator(item, names));
  }
  object.finish();
  return profile;
}

}  // namespace

Profile parse_profile(const std::string& text, const std::string& source) {
  return profile_from_json(parse_json(text, source), source);
}

Profile read_profile(const std::string& path) { return parse_profile(read_file(path), path); }

std::string profile_text(const Profile& profile) {
  OrderedJson head = {
      {"format", "heterog-profile"},
      {"version", kVersion},
      {"graph", {{"name", profile.graph_name}, {"hash", hash_text(profile.graph_hash)}}},
      {"device", profile.device},
      {"machine", profile.machine},
      {"torch", profile.torch},
      {"threads", profile.threads},
      {"repeat", profile.repeat},
      {"slices", profile.slices},
      {"finished", profile.finished}};
  if (profile.between == Between::kModel) head["between"] = "model";
  std::vector<OrderedJson> links, operators;
  for (const ProfiledLink& link : profile.links) links.push_back(link_json(link));
  for (const ProfiledOperator& op : profile.operators) operators.push_back(operator_json(op));
  std::string text = "{\n";
  for (const auto& [key, value] : head.items()) {
    text += OrderedJson(key).dump() + ": " + value.dump() + ",\n";
  }
  return text + "\"links\": " + lines(links) + ",\n\"operators\": " + lines(operators) + "\n}\n";
}

void write_profile(const std::string& path, const Profile& profile) {
  write_file(path, profile_text(profile));
}

}  // namespace heterog::cost
