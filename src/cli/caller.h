// The caller of a verb: a person at the program, or Python. It decides what a verb may do to the
// process and where it prints.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string_view>
#include <utility>

#include "explain/json.h"

namespace heterog::cli {

// The program, at whose terminal somebody sits, or somebody else's process that has loaded the
// library (src/client).
struct Caller {
  std::function<void(std::string_view)> print;  // takes results, and nothing else
  // Asked between simulated plans and between steps: whether to give up, which then throws. Empty:
  // never.
  std::function<bool()> stopped;
  // The process is ours: progress may be drawn on stderr, and it may start ranks and be one.
  bool is_program = false;
};

// Prints to stdout.
Caller program_caller();

template <class... Args>
void print(const Caller& caller, fmt::format_string<Args...> format, Args&&... args) {
  caller.print(fmt::format(format, std::forward<Args>(args)...));
}
void print_json(const Caller& caller, const explain::OrderedJson& json);

}  // namespace heterog::cli
