// heterog planners: what exists.
#include <fmt/format.h>

#include <memory>

#include "cli/options.h"
#include "cli/output.h"
#include "cli/planner_table.h"
#include "cli/verbs.h"

namespace heterog::cli {

namespace {

int run_planners(const CommonOptions& options) {
  OrderedJson json;
  json["planners"] = OrderedJson::array();
  std::size_t widest = 0;
  for (const planner::PlannerEntry& entry : all_planners()) {
    widest = std::max(widest, entry.name.size());
    json["planners"].push_back(
        {{"name", entry.name}, {"does", entry.one_line}, {"baseline", entry.baseline}});
  }
  if (options.json) {
    print_json(json);
    return 0;
  }
  for (const planner::PlannerEntry& entry : all_planners()) {
    fmt::print("{:<{}}  {}{}\n", entry.name, widest, entry.one_line,
               entry.baseline ? " (baseline)" : "");
  }
  return 0;
}

}  // namespace

void add_planners(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<CommonOptions>();
  CLI::App& verb = *app.add_subcommand("planners", "Lists the planners");
  add_common(verb, *options);
  verb.footer("Example:\n  heterog planners");
  verb.callback([options, &chosen] { chosen = [options] { return run_planners(*options); }; });
}

}  // namespace heterog::cli
