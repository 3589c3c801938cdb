// The memory that something takes at its peak, measured in a process of its own.
#pragma once

#include <functional>
#include <string>

namespace heterog::support {

struct Attempt {
  std::string error;  // what the input error said; empty if there was none
  double peak_megabytes = 0;
};

// Runs `body` in a child, which ends by an input error, or not. A crash fails the test. Where a
// sanitizer keeps memory of its own the peak says nothing: it is then 0.
Attempt attempt(const std::function<void()>& body);

}  // namespace heterog::support
