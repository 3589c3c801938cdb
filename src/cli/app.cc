// Puts the verbs together, and words what is not one of them.
#include "cli/app.h"

#include <fmt/format.h>

#include <sstream>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/text.h"
#include "cli/completion.h"
#include "cli/engines/hand_over.h"
#include "cli/launch.h"
#include "cli/python_verbs.h"

namespace heterog::cli {

namespace {

std::vector<std::string> names_of(const std::vector<const CLI::App*>& verbs) {
  std::vector<std::string> names;
  names.reserve(verbs.size());
  for (const CLI::App* verb : verbs) names.push_back(verb->get_name());
  return names;
}

// "--batch", of all options.
std::vector<std::string> option_names(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// "--batch" of "--batch=8".
std::string name_of(const std::string& argument) { return argument.substr(0, argument.find('=')); }

bool is_option(const std::string& argument) { return argument.size() > 1 && argument[0] == '-'; }

}  // namespace

std::unique_ptr<CLI::App> make_app(Action& chosen) {
  auto app = std::make_unique<CLI::App>(
      "Plans synchronous training of neural networks on GPUs that are not all alike.", "heterog");
  app->require_subcommand(1);
  app->set_version_flag("--version", "heterog 0.1.0");
  app->footer("Each verb explains itself: heterog plan --help");
  add_plan(*app, chosen);
  add_compare(*app, chosen);
  add_simulate(*app, chosen);
  add_train(*app, chosen);
  add_finetune(*app, chosen);
  add_planners(*app, chosen);
  add_explain(*app, chosen);
  add_diff(*app, chosen);
  add_report(*app, chosen);
  add_profile(*app, chosen);
  add_verify(*app, chosen);
  add_run(*app, chosen);
  add_tune(*app, chosen);
  add_shares(*app, chosen);
  add_autosync_data(*app, chosen);
  add_hand_over(*app, chosen);
  add_launch(*app, chosen);
  add_completion(*app, chosen);
  for (CLI::App* verb : app->get_subcommands({})) {
    verb->add_option_function<std::string>("--log-level", set_log_level,
                                           "What is told on stderr: error, warn, info (files and "
                                           "their sizes) or debug (every find of a search)")
        ->default_str("warn")
        ->type_name("LEVEL");
  }
  for (const PythonVerb& verb : python_verbs()) {
    app->add_subcommand(verb.name, verb.one_line)->group("Subcommands in Python");
  }
  return app;
}

std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> verbs = app.get_subcommands();  // that were named
  const CLI::App& last = verbs.empty() ? app : *verbs.back();
  const std::string help = verbs.empty() ? "" : " " + last.get_name();
  for (const std::string& argument : last.remaining()) {
    if (is_option(argument)) {
      return fmt::format("no option {}{} (see heterog{} --help)", printable(name_of(argument)),
                         did_you_mean(name_of(argument), option_names(last)), help);
    }
    if (!verbs.empty()) continue;
    return fmt::format("no verb \"{}\"{} (see heterog --help)", printable(argument),
                       did_you_mean(argument, names_of(app.get_subcommands({}))));
  }
  return fmt::format("{} (see heterog{} --help)", printable(error.what(), 400), help);
}

int run_arguments(const std::vector<std::string>& arguments, const Caller& caller) {
  Action chosen;
  const auto app = make_app(chosen);
  try {
    app->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw Error(ErrorKind::kInput, usage_error(*app, error));
    std::ostringstream text;  // of --help or --version
    app->exit(error, text);
    caller.print(text.str());
    return 0;
  }
  return chosen(caller);
}

}  // namespace heterog::cli
