// Connections between ranks over which nothing is sent: one that closes says that its peer is gone.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/connections.h"

namespace heterog::comm {

class Lifelines {
 public:
  // From a thread of its own: `on_lost` of each peer whose connection has closed, with the reason;
  // `on_tick` about once per `every`. Neither throws; `on_lost` may come before the constructor has
  // returned. Nothing comes once let_go() or the destructor has.
  struct Options {
    std::function<void(DeviceId peer, const std::string& why)> on_lost;
    std::function<void()> on_tick;
    std::chrono::milliseconds every{500};
  };
  Lifelines(Connections connections, Options options);
  ~Lifelines();
  // From now on peers may close what they hold. From one thread, and not from the two functions.
  void let_go();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace heterog::comm
