// Signals that would end this process, noted in place of that: for what has to be put in order
// first.
#pragma once

#include <optional>

namespace heterog {

// Of SIGINT, SIGTERM and SIGHUP, for as long as it lives; one at a time in a process. A SIGHUP that
// is ignored, as under nohup, stays so.
class NotedSignals {
 public:
  NotedSignals();
  ~NotedSignals();
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;

  // The last that came since it was made, by its number; from any thread.
  std::optional<int> noted() const;
};

}  // namespace heterog
