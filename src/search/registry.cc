// Names and settings to planners.
#include "search/registry.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/nearest.h"
#include "base/text.h"

namespace heterog::search {

bool PlannerEntry::has_option(std::string_view option) const {
  return std::any_of(options.begin(), options.end(),
                     [&](const OptionInfo& info) { return info.name == option; });
}

PlannerRequest parse_request(const std::string& text) {
  const std::size_t colon = text.find(':');
  PlannerRequest request{.name = text.substr(0, colon)};
  if (colon == std::string::npos) return request;
  for (std::size_t begin = colon + 1; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    VALIDATE(!word.empty(),
             "planner {}: an empty option; options are written NAME:option=value,option=value",
             printable(request.name));
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      request.settings.push_back({"", word});
    } else {
      request.settings.push_back({word.substr(0, equals), word.substr(equals + 1)});
    }
    begin = end + 1;
  }
  return request;
}

Registry::Registry(std::vector<PlannerEntry> entries) : entries_(std::move(entries)) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) ENSURE(entries_[i].name != entries_[j].name);
  }
}

const PlannerEntry& Registry::entry(const std::string& name) const {
  std::vector<std::string> known;
  for (const PlannerEntry& entry : entries_) {
    if (entry.name == name) return entry;
    known.emplace_back(entry.name);
  }
  fail_input("planner {}: no such planner{}; there are {}", printable(name),
             did_you_mean(name, known), fmt::join(known, ", "));
}

std::unique_ptr<const Planner> Registry::make(const PlannerRequest& request,
                                              const cluster::Cluster& cluster) const {
  const PlannerEntry& found = entry(request.name);
  std::vector<Setting> settings = request.settings;
  for (Setting& setting : settings) {
    if (!setting.option.empty()) continue;
    setting.option = found.options.empty() ? setting.value : found.options[0].name;
  }
  return found.make(settings, cluster);
}

}  // namespace heterog::search
