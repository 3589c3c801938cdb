// heterog planners: what exists, and what it can be told.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/options.h"
#include "cli/output.h"
#include "cli/planner_table.h"
#include "cli/verbs.h"

namespace heterog::cli {

namespace {

OrderedJson planners_json() {
  OrderedJson json;
  json["planners"] = OrderedJson::array();
  for (const search::PlannerEntry& entry : planner_registry().entries()) {
    OrderedJson options = OrderedJson::array();
    for (const search::OptionInfo& option : entry.options) {
      options.push_back({{"name", option.name},
                         {"takes", option.takes},
                         {"default", option.default_value},
                         {"does", option.help}});
    }
    json["planners"].push_back({{"name", entry.name},
                                {"does", entry.one_line},
                                {"baseline", entry.baseline},
                                {"options", std::move(options)}});
  }
  return json;
}

// A line per planner.
std::string planners_text() {
  std::size_t widest = 0;
  for (const search::PlannerEntry& entry : planner_registry().entries()) {
    widest = std::max(widest, entry.name.size());
  }
  std::string text;
  for (const search::PlannerEntry& entry : planner_registry().entries()) {
    text += fmt::format("{:<{}}  {}{}\n", entry.name, widest, entry.one_line,
                        entry.baseline ? " (baseline)" : "");
  }
  return text;
}

std::string options_text(const search::PlannerEntry& entry) {
  std::string text =
      fmt::format("{}: {}{}\n", entry.name, entry.one_line, entry.baseline ? " (baseline)" : "");
  std::size_t widest = 0;
  for (const search::OptionInfo& option : entry.options) {
    widest = std::max(widest, option.name.size());
  }
  for (const search::OptionInfo& option : entry.options) {
    text += fmt::format("  {:<{}}  {} ({}; default: {})\n", option.name, widest, option.help,
                        option.takes, option.default_value);
  }
  return text;
}

struct PlannersOptions {
  CommonOptions common;
  std::string planner;
};

int run_planners(const PlannersOptions& options, const Caller& caller) {
  if (options.common.json) {
    print_json(caller, planners_json());
  } else if (options.planner.empty()) {
    print(caller, "{}", planners_text());
  } else {
    print(caller, "{}", options_text(planner_registry().entry(options.planner)));
  }
  return 0;
}

}  // namespace

void add_planners(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<PlannersOptions>();
  CLI::App& verb = *app.add_subcommand("planners", "Lists the planners, or the options of one");
  verb.add_option("name", options->planner, "The planner whose options are listed");
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog planners\n  heterog planners local-search\n"
      "Options follow the name wherever a planner is named, as in\n"
      "  heterog plan … --planner local-search:round=16,patience=200\n"
      "A value alone is that of the first option: --planner single:v100/gpu0");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_planners(*options, caller); };
  });
}

}  // namespace heterog::cli
