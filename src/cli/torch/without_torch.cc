// The planner alone: verbs and planners that need LibTorch are listed, and refused in one line.
#include <fmt/format.h>

#include "base/check.h"
#include "cli/torch/with_torch.h"
#include "cli/verbs.h"

namespace heterog::cli {

namespace {

// What follows the name of what is missing.
constexpr const char* kRefusal =
    "this is the planner alone, without LibTorch; the wheel heterog has it for the versions of "
    "PyTorch that it has a library for (scripts/build_wheel.sh --torch VERSION adds one)";

// Takes whatever arguments there are: none of them would be right.
void add_refused(CLI::App& app, Action& chosen, const char* name) {
  CLI::App& verb = *app.add_subcommand(name, "Needs LibTorch, which this program is built without");
  verb.allow_extras();
  verb.callback([name, &chosen] {
    chosen = [name](const Caller&) -> int {
      throw Error(ErrorKind::kInput, fmt::format("{}: {}", name, kRefusal));
    };
  });
}

}  // namespace

void add_train(CLI::App& app, Action& chosen) { add_refused(app, chosen, "train"); }
void add_finetune(CLI::App& app, Action& chosen) { add_refused(app, chosen, "finetune"); }
void add_profile(CLI::App& app, Action& chosen) { add_refused(app, chosen, "profile"); }
void add_verify(CLI::App& app, Action& chosen) { add_refused(app, chosen, "verify"); }
void add_run(CLI::App& app, Action& chosen) { add_refused(app, chosen, "run"); }
void add_tune(CLI::App& app, Action& chosen) { add_refused(app, chosen, "tune"); }

std::vector<search::PlannerEntry> learned_planners() {
  std::vector<search::PlannerEntry> entries;
  for (const char* name : {"policy", "reinforce", "hrl", "post", "gdp"}) {
    entries.push_back(
        {.name = name,
         .one_line = "learned; needs LibTorch, which this program is built without",
         .small_problems = true,  // so that `compare` takes it by name alone
         .options = {{.name = "checkpoint",
                      .takes = "a file",
                      .default_value = "",
                      .help = "the trained policy"}},
         .make = [name](std::span<const search::Setting>,
                        const cluster::Cluster&) -> std::unique_ptr<const search::Planner> {
           throw Error(ErrorKind::kInput, fmt::format("planner {}: {}", name, kRefusal));
         }});
  }
  return entries;
}

std::optional<std::string> torch_error(const std::exception&) { return std::nullopt; }

}  // namespace heterog::cli
