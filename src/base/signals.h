// Signals that would end this process, noted in place of that: for what has to be put in order
// first.
#pragma once

#include <optional>

namespace heterog {

// Notes SIGINT, SIGTERM and SIGHUP, for as long as it lives; one at a time in a process. A SIGHUP
// that is ignored, as under nohup, stays so.
class NotedSignals {
 public:
  // The effect of a signal of a kind that has been noted, when it comes again.
  enum class Second : bool { kIsNoted, kEnds };
  explicit NotedSignals(Second second = Second::kIsNoted);
  ~NotedSignals();
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;

  // The last that came since it was made, by its number; from any thread.
  std::optional<int> noted() const;
};

}  // namespace heterog
