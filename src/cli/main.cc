// Entry point: runs what the command line says, and prints what became of it.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "base/process_settings.h"
#include "cli/app.h"
#include "cli/caller.h"
#include "cli/ending.h"
#include "cli/python_verbs.h"

namespace heterog::cli {
namespace {

// What is still in a buffer can fail to arrive, as on a full disk: then nothing has been done.
void flush_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw Error(ErrorKind::kVerification,
              fmt::format("stdout: cannot be written: {}",
                          errno != 0 ? std::strerror(errno) : "an earlier write failed"));
}

}  // namespace
}  // namespace heterog::cli

int main(int argc, char** argv) {
  using namespace heterog;  // NOLINT
  const cli::Ending ending = cli::ending_of([&] {
    log_to_stderr();
    allow_process_settings();
    if (argc > 1 && cli::is_python_verb(argv[1])) cli::run_python_verb(argv + 1);
    const int code = cli::run_arguments({argv + 1, argv + argc}, cli::program_caller());
    cli::flush_output();
    return code;
  });
  if (!ending.error.empty()) std::fprintf(stderr, "heterog: error: %s\n", ending.error.c_str());
  return ending.code;
}
