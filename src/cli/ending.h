// Exit codes: every verb ends here, whatever it throws.
#pragma once

#include <functional>
#include <string>

namespace heterog::cli {

struct Ending {
  int code = 0;       // as of the process (docs/design.md §9)
  std::string error;  // one line; empty if the code is 0
};

// Calls it and catches everything: below, nothing but the C interface does.
Ending ending_of(const std::function<int()>& body);

}  // namespace heterog::cli
