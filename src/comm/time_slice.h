// Lets the threads of a rank that communicate run as soon as they have something to do.
#pragma once

#include <cstdint>

namespace heterog::comm {

// As long as it lives, the calling thread, and those that it starts, ask for turns of the processor
// of 0.1 ms, the least that Linux grants. They get no less of it than others do, but interrupt at
// once whoever asks for longer turns (that is everyone else), where they would wait for the end of
// his: a message between two ranks passes through four threads that wake, and each would wait for
// milliseconds where ranks have no core to spare for it. Does nothing before Linux 6.12, and where
// a system refuses.
class ShortTurns {
 public:
  ShortTurns();
  ~ShortTurns();
  ShortTurns(const ShortTurns&) = delete;
  ShortTurns& operator=(const ShortTurns&) = delete;

 private:
  std::uint64_t before_ = 0;  // 0: nothing to restore
};

}  // namespace heterog::comm
