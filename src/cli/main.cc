// Entry point: parses the command line, runs one verb, and maps errors to exit codes.
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "base/check.h"
#include "base/log.h"
#include "cli/verbs.h"
#include "runtime/process_settings.h"

namespace heterog::cli {
namespace {

// One line whatever the message holds.
void print_error(std::string message) {
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::fprintf(stderr, "heterog: error: %s\n", message.c_str());
}

int run(int argc, char** argv) {
  start_logging("warn");
  runtime::allow_process_settings();
  CLI::App app("Plans synchronous training of neural networks on GPUs that are not all alike.",
               "heterog");
  app.require_subcommand(1);
  app.set_version_flag("--version", "heterog 0.1.0");
  app.footer("Each verb explains itself: heterog plan --help");
  Action chosen;
  add_plan(app, chosen);
  add_compare(app, chosen);
  add_simulate(app, chosen);
  add_train(app, chosen);
  add_finetune(app, chosen);
  add_planners(app, chosen);
  add_explain(app, chosen);
  add_diff(app, chosen);
  add_report(app, chosen);
  add_profile(app, chosen);
  add_verify(app, chosen);
  add_run(app, chosen);
  add_shares(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::string verb;
    for (const CLI::App* sub : app.get_subcommands()) verb = " " + sub->get_name();
    fail_input("{} (see heterog{} --help)", error.what(), verb);
  }
  return chosen();
}

}  // namespace
}  // namespace heterog::cli

int main(int argc, char** argv) {
  using heterog::ErrorKind;
  // The only catch of the program: everything below throws.
  try {
    return heterog::cli::run(argc, argv);
  } catch (const heterog::Error& error) {
    heterog::cli::print_error(error.what());
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    heterog::cli::print_error("not enough host memory for this problem");
    return static_cast<int>(ErrorKind::kVerification);
  } catch (const std::exception& error) {
    heterog::cli::print_error(error.what());
    return static_cast<int>(ErrorKind::kBug);
  }
}
