// Output of the program.
#include "cli/caller.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace heterog::cli {

Caller program_caller() {
  return {.print =
              [](std::string_view text) {
                if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) return;
                throw Error(ErrorKind::kVerification,
                            fmt::format("stdout: cannot be written: {}", std::strerror(errno)));
              },
          .stopped = {},
          .is_program = true};
}

void print_json(const Caller& caller, const explain::OrderedJson& json) {
  print(caller, "{}\n", json.dump(2));
}

}  // namespace heterog::cli
