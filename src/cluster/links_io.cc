// Reads the data base of kinds of links.
#include "cluster/links_io.h"

#include "base/file.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace heterog::cluster {

const LinkKind& find_link(const LinkDatabase& links, const std::string& name,
                          const std::string& where) {
  const auto found = links.find(name);
  if (found != links.end()) return found->second;
  std::string known;
  for (const auto& [other, kind] : links) known += (known.empty() ? "" : ", ") + other;
  fail_input("{}: unknown kind of link '{}'; links.json has {}", where, printable(name),
             known.empty() ? "none" : known);
}

LinkDatabase parse_links(const std::string& text, const std::string& source) {
  const Json json = parse_json(text, source);
  JsonObject object(JsonValue(json, source));
  check_format(object, "heterog-links", 1);
  object.skip("source");
  LinkDatabase links;
  for (const JsonValue& value : object.list("links")) {
    JsonObject entry(value);
    const std::string name = entry.string("name");
    VALIDATE(!name.empty() && printable(name, 100) == name,
             "{}.name is '{}'; it must be one printable line of 1 to 100 characters", entry.where(),
             printable(name));
    LinkKind kind;
    kind.bytes_per_second = entry.number("bandwidth_bytes_per_second", 1, 1e18);
    kind.latency_seconds = entry.number("latency_seconds", 0, 10);
    kind.launch_seconds = entry.number("launch_seconds", 0, 10);
    kind.feeds_nic = entry.boolean_or("feeds_nic", false);
    kind.transfer_multiprocessors =
        static_cast<int>(entry.integer_or("transfer_multiprocessors", 0, 1 << 10, 0));
    entry.skip("source");
    entry.finish();
    VALIDATE(links.emplace(name, kind).second, "{}.name: '{}' appears twice; names must differ",
             value.where(), name);
  }
  object.finish();
  return links;
}

LinkDatabase read_links(const std::string& path) { return parse_links(read_file(path), path); }

}  // namespace heterog::cluster
