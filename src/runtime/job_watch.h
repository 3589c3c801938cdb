// Tells a rank that another has ended the job, and the others that this one did.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "runtime/store.h"

namespace heterog::runtime {

// A thread with its own connection to the job's store; once made, nothing else of the transport
// uses the store, so that no rank is held up by a store that no longer answers. The job ends for
// the first reason that any rank gives, or because the store is lost.
class JobWatch {
 public:
  // `on_end` is called once, from the watching thread or end(), with the reason.
  JobWatch(Store own_connection, std::function<void(const std::string&)> on_end);
  ~JobWatch();  // stops watching; says nothing to the others

  // Ends the job for this reason, unless another rank gave one before. Returns the reason that
  // stands: the first that reached the store, or this one if the store does not answer soon.
  std::string end(const std::string& reason);

  // Waits until all ranks have called it; false if the job ended or the time-out passed before.
  // Rank 0, which may serve the store, leaves last.
  struct Leave {
    int rank = 0;
    int ranks = 1;
    std::chrono::milliseconds timeout{300'000};
  };
  bool leave_together(const Leave& leave);

 private:
  struct State;
  std::shared_ptr<State> state_;  // outlives this if the thread hangs in a call to the store
};

}  // namespace heterog::runtime
