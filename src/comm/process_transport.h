// The common part of transports between processes: how a rank comes to the end of its job.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/store.h"
#include "comm/transport.h"

namespace heterog::comm {

class ProcessTransport : public Transport {
 public:
  // The last call of every rank: waits until all have come, so that none takes the end of another
  // for a failure.
  virtual void finish() = 0;
  // `work`, then finish(); if it throws, the others are told why.
  void run_until_finished(const std::function<void()>& work);
};

// One rank's: the reason for which all its calls fail, known to the others by the job's store, or
// that the job is done. A transport makes it once it is connected, and destroys it before all that
// `on_end` touches.
class JobEnd {
 public:
  struct Options {
    DeviceId own;
    std::vector<std::string> device_names;  // one a rank, for messages
    std::chrono::milliseconds timeout{300'000};
  };
  // `on_end` wakes what waits: called once, from any thread, when there is a reason; never once the
  // destructor has returned.
  JobEnd(const Store& store, Options options, std::function<void()> on_end);
  // Ends the job for the others, unless finish() was called.
  ~JobEnd();

  std::string text_of(DeviceId rank) const;

  // Throws the reason, if there is one: an Error (kVerification).
  void check() const;
  // Whether there is a reason, or comes to be one by then.
  bool wait_until(std::chrono::steady_clock::time_point end) const;
  // Ends the job for what a peer did or did not do. The reason that was first stands.
  void lose(DeviceId peer, const std::string& why);
  // The same, and throws the reason that stands.
  [[noreturn]] void fail(DeviceId peer, const std::string& why);
  // As of Transport.
  void abort(const std::string& reason);
  // As of ProcessTransport.
  void finish();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace heterog::comm
