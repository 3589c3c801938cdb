// A progress line with time left: on a terminal only, silent in a pipe.
#pragma once

#include <string>

#include "base/stopwatch.h"
#include "cli/caller.h"

namespace heterog::cli {

// One line on stderr, rewritten at most ten times a second, wiped at the end; nothing where the
// caller is not the program.
class Progress {
 public:
  Progress(const Caller& caller, std::string title);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  double seconds() const { return watch_.seconds(); }
  // `done` in [0, 1]; 0 while nothing is known of the end.
  void show(double done, const std::string& detail);

 private:
  std::string title_;
  bool terminal_;
  Stopwatch watch_;
  double last_shown_ = -1;
};

// "8 s", "3 min 20 s", "1 h 05 min".
std::string duration_text(double seconds);

}  // namespace heterog::cli
