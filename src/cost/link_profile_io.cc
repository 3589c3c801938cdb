// Bandwidths by the names of links.
#include "cost/link_profile_io.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace heterog::cost {
namespace {

constexpr const char* kLinkFormat = "heterog-links-measured";
constexpr int kLinkVersion = 1;
constexpr double kMostBandwidth = 1e18;

}  // namespace

bool is_link_profile(const std::string& path) {
  const Json json = read_json_file(path);
  return json.is_object() && json.contains("format") && json["format"] == kLinkFormat;
}

void write_link_profile(const std::string& path, const cluster::Cluster& cluster,
                        const FittedLinks& fitted, std::size_t flows) {
  nlohmann::ordered_json links = nlohmann::ordered_json::array();
  for (LinkId link : id_range<LinkId>(cluster.link_count())) {
    if (fitted.bandwidth[link] == 1) continue;
    const double nominal = cluster.link(link).bytes_per_second;
    links.push_back({{"name", cluster.link(link).name},
                     {"bandwidth_bytes_per_second", nominal * fitted.bandwidth[link]},
                     {"times_the_cluster_file", fitted.bandwidth[link]}});
  }
  const nlohmann::ordered_json json = {{"format", kLinkFormat},
                                       {"version", kLinkVersion},
                                       {"cluster", cluster.name()},
                                       {"flows", flows},
                                       {"error_before", fitted.error_before},
                                       {"error_after", fitted.error_after},
                                       {"links", links}};
  write_file(path, json.dump(1) + "\n");
}

FittedLinks read_link_profile(const std::string& path, const cluster::Cluster& cluster) {
  const Json json = read_json_file(path);
  JsonObject object(JsonValue(json, path));
  check_format(object, kLinkFormat, kLinkVersion);
  const std::string made_for = object.string("cluster");
  FittedLinks fitted{.bandwidth = IdVector<LinkId, double>(cluster.link_count(), 1.0)};
  object.integer("flows", 1, std::int64_t{1} << 40);
  fitted.error_before = object.number("error_before", 0, 1e6);
  fitted.error_after = object.number("error_after", 0, 1e6);
  std::map<std::string, LinkId> links;
  for (LinkId link : id_range<LinkId>(cluster.link_count())) links[cluster.link(link).name] = link;
  std::set<LinkId> seen;
  for (const JsonValue& item : object.list("links")) {
    JsonObject one(item);
    const std::string name = one.string("name");
    const auto at = links.find(name);
    VALIDATE(at != links.end(), "{}: no link '{}' in cluster {}; measured on cluster {}",
             item.where(), printable(name), cluster.name(), printable(made_for));
    VALIDATE(seen.insert(at->second).second, "{}: link '{}' stands twice", item.where(), name);
    const double bandwidth = one.number("bandwidth_bytes_per_second", 1, kMostBandwidth);
    fitted.bandwidth[at->second] = bandwidth / cluster.link(at->second).bytes_per_second;
    one.number("times_the_cluster_file", 0, 1e18);  // for the reader
    one.finish();
  }
  object.finish();
  return fitted;
}

}  // namespace heterog::cost
