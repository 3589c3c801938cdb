// Ctrl-C while a verb searches: what was found by then is written.
#pragma once

#include <optional>
#include <string>

#include "base/signals.h"
#include "cli/caller.h"
#include "oracle/batch_evaluator.h"

namespace heterog::cli {

// SIGINT, SIGTERM and SIGHUP are noted for as long as it lives, in a process of ours; the second of
// one kind ends the process as ever. In somebody else's process, what the caller says instead.
class Stopping {
 public:
  explicit Stopping(const Caller& caller);

  bool asked() const;
  // The same budget, which is spent once it is asked.
  oracle::Budget until_asked(oracle::Budget budget) const;
  // "stopped by signal 2 (SIGINT) after 12 s"
  std::string text(double seconds) const;

 private:
  const Caller& caller_;
  std::optional<NotedSignals> signals_;
};

}  // namespace heterog::cli
