// Calls that may never return, for callers that do not wait for ever.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

namespace heterog::comm {

// Makes calls one after another on a thread of its own. A call that hangs cannot be ended from
// outside: it is left behind with that thread, and whoever waits for it goes on. So a call owns all
// that it touches.
class BoundedCalls {
 public:
  using Clock = std::chrono::steady_clock;

  BoundedCalls();
  // Waits for no call that was given up.
  ~BoundedCalls();
  BoundedCalls(const BoundedCalls&) = delete;
  BoundedCalls& operator=(const BoundedCalls&) = delete;

  // Whether the call has ended by then; what it throws is thrown here. One that has not ended is
  // given up, and with it all that come after it.
  bool run(std::function<void()> call, Clock::time_point until);
  // Ends all waiting, now and to come. From any thread.
  void give_up();

 private:
  struct State;
  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace heterog::comm
