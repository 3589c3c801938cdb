// Entry point: parses the command line, runs one verb, and maps errors to exit codes.
#include <c10/util/Exception.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <system_error>

#include "base/check.h"
#include "base/log.h"
#include "base/process_settings.h"
#include "base/text.h"
#include "cli/app.h"
#include "cli/python_verbs.h"

namespace heterog::cli {
namespace {

// One line whatever the message holds.
void print_error(std::string message) {
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::fprintf(stderr, "heterog: error: %s\n", message.c_str());
}

// What is still in a buffer can fail to arrive, as on a full disk: then nothing has been done.
void flush_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw Error(ErrorKind::kVerification,
              fmt::format("stdout: cannot be written: {}",
                          errno != 0 ? std::strerror(errno) : "an earlier write failed"));
}

int run(int argc, char** argv) {
  start_logging();
  allow_process_settings();
  if (argc > 1 && is_python_verb(argv[1])) run_python_verb(argv + 1);
  Action chosen;
  const auto app = make_app(chosen);
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw Error(ErrorKind::kInput, usage_error(*app, error));
    std::ostringstream text;  // of --help or --version
    app->exit(error, text);
    chosen = [text = text.str()] {
      fmt::print("{}", text);
      return 0;
    };
  }
  const int code = chosen();
  flush_output();
  return code;
}

}  // namespace
}  // namespace heterog::cli

int main(int argc, char** argv) {
  using heterog::ErrorKind;
  const auto fail = [](ErrorKind kind, const std::string& message) {
    heterog::cli::print_error(message);
    return static_cast<int>(kind);
  };
  // The only catch of the program: everything below throws.
  try {
    return heterog::cli::run(argc, argv);
  } catch (const heterog::Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::kVerification, "not enough host memory for this problem");
  } catch (const c10::Error& error) {
    // What LibTorch refuses is an operator of the user's graph, or memory that there is not.
    return fail(ErrorKind::kVerification,
                "PyTorch: " + heterog::printable(error.what_without_backtrace(), 500));
  } catch (const std::system_error& error) {  // no threads left, output that cannot be written
    return fail(ErrorKind::kVerification,
                (std::ferror(stdout) != 0 ? "stdout: " : "") + std::string(error.what()));
  } catch (const std::exception& error) {
    return fail(ErrorKind::kBug, error.what());
  }
}
