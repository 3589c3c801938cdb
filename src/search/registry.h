// The table of planners: by name, with their options. Whoever makes a program joins the tables of
// the folders that have planners; nothing registers itself.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "search/options.h"
#include "search/planner.h"

namespace heterog::search {

struct PlannerEntry {
  std::string_view name;        // "ev-ar"
  std::string_view one_line;    // for `heterog planners`
  bool baseline = false;        // one of the bars that `plan` never falls below
  bool small_problems = false;  // refuses all others: only where it is asked for by name
  std::vector<OptionInfo> options;
  // Throws an input error where a setting is wrong.
  std::function<std::unique_ptr<const Planner>(std::span<const Setting>, const cluster::Cluster&)>
      make;

  bool has_option(std::string_view option) const;
};

// A row for a planner whose options are a struct `Options` with the table `fields`, which has to
// live as long as the program.
template <class Options>
PlannerEntry planner_entry(std::string_view name, std::string_view one_line,
                           std::span<const Field<Options>> fields,
                           std::function<std::unique_ptr<const Planner>(const Options&)> make) {
  return {.name = name,
          .one_line = one_line,
          .options = describe_options(fields),
          .make = [name, fields, make = std::move(make)](std::span<const Setting> settings,
                                                         const cluster::Cluster& cluster) {
            return make(read_options(std::string(name), fields, settings, cluster));
          }};
}

// "NAME", or "NAME:option=value,option=value". A value without its option's name is that of the
// planner's first option: "single:v100/gpu0".
struct PlannerRequest {
  std::string name;
  std::vector<Setting> settings;  // an option without a name is empty
};
PlannerRequest parse_request(const std::string& text);

class Registry {
 public:
  // No two entries may have one name.
  explicit Registry(std::vector<PlannerEntry> entries);
  std::span<const PlannerEntry> entries() const { return entries_; }
  // Throws an input error with the nearest name, and all there are.
  const PlannerEntry& entry(const std::string& name) const;
  std::unique_ptr<const Planner> make(const PlannerRequest& request,
                                      const cluster::Cluster& cluster) const;
  std::unique_ptr<const Planner> make(const std::string& request,
                                      const cluster::Cluster& cluster) const {
    return make(parse_request(request), cluster);
  }

 private:
  std::vector<PlannerEntry> entries_;
};

// Planners that need no learning, in the order of docs/design.md §9.
std::vector<PlannerEntry> builtin_planners();

}  // namespace heterog::search
