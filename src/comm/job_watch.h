// Tells a rank that another has ended the job, and the others that this one did.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/store.h"

namespace heterog::comm {

// A thread with its own connection to the job's store; once made, nothing else of the transport
// uses the store, so that no rank is held up by a store that no longer answers. The job ends for
// the first reason that any rank gives, or because the store is lost.
class JobWatch {
 public:
  // `on_end` is called once, from the watching thread or end(), with the reason; never once the
  // destructor has returned.
  JobWatch(Store own_connection, std::function<void(const std::string&)> on_end);
  ~JobWatch();  // stops watching; says nothing to the others

  // Ends the job for this reason, unless another rank gave one before. Returns the reason that
  // stands: the first that reached the store, or this one if the store does not answer soon.
  std::string end(const std::string& reason);

  // Waits until all ranks have called it, or the job has ended. If the time-out passes before,
  // returns a rank that did not come. Rank 0, which may serve the store, leaves last.
  struct Leave {
    int rank = 0;
    int ranks = 1;
    std::chrono::milliseconds timeout{300'000};
  };
  std::optional<int> leave_together(const Leave& leave);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace heterog::comm
