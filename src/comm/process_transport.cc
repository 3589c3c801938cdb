// Keeps the reason for which a job ended, and tells it in both directions.
#include "comm/process_transport.h"

#include <condition_variable>
#include <mutex>
#include <new>
#include <utility>

#include "base/check.h"
#include "comm/connections.h"
#include "comm/job_watch.h"
#include "tensors/torch_error.h"

namespace heterog::comm {

void ProcessTransport::run_until_finished(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    abort(error.what());
    throw;
  } catch (const std::bad_alloc&) {
    abort("out of host memory");
    throw;
  } catch (const std::exception& error) {
    abort(tensors::one_line(error));
    throw;
  }
  finish();
}

struct JobEnd::State {
  State(Options given, std::function<void()> given_on_end)
      : options(std::move(given)), on_end(std::move(given_on_end)) {}

  void end_calls(const std::string& why) {
    {
      const std::lock_guard lock(mutex);
      if (reason) return;
      reason = why;
      changed.notify_all();
    }
    on_end();
  }

  const Options options;
  const std::function<void()> on_end;
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::optional<std::string> reason;
  bool finished = false;
  std::unique_ptr<JobWatch> watch;  // last made, first gone: its thread calls end_calls()
};

JobEnd::JobEnd(const Store& store, Options options, std::function<void()> on_end)
    : state_(std::make_unique<State>(std::move(options), std::move(on_end))) {
  state_->watch =
      std::make_unique<JobWatch>(store.another_connection().under("job"),
                                 [this](const std::string& why) { state_->end_calls(why); });
}

JobEnd::~JobEnd() {
  if (!state_->finished) abort("ended before the job was done");
}

std::string JobEnd::text_of(DeviceId rank) const {
  return rank_text(rank, state_->options.device_names);
}

void JobEnd::check() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->reason) throw Error(ErrorKind::kVerification, *state_->reason);
}

bool JobEnd::wait_until(std::chrono::steady_clock::time_point end) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, end, [&] { return state_->reason.has_value(); });
}

void JobEnd::lose(DeviceId peer, const std::string& why) {
  state_->end_calls(state_->watch->end(fmt::format("{}: {}", text_of(peer), why)));
}

void JobEnd::fail(DeviceId peer, const std::string& why) {
  check();  // woken by the end of the job, or a consequence of what another rank has said
  lose(peer, why);
  check();
  throw Error(ErrorKind::kBug, "a job that has ended has no reason");
}

void JobEnd::abort(const std::string& reason) {
  const bool named = reason.starts_with("rank ");  // by the transport that it comes from
  const std::string why = named ? reason : text_of(state_->options.own) + ": " + reason;
  state_->end_calls(why);
  state_->watch->end(why);
}

void JobEnd::finish() {
  const auto missing =
      state_->watch->leave_together({.rank = static_cast<int>(state_->options.own.value()),
                                     .ranks = static_cast<int>(state_->options.device_names.size()),
                                     .timeout = state_->options.timeout});
  check();
  if (missing) {
    abort(fmt::format("{}: did not end with the others within {} s",
                      text_of(DeviceId(static_cast<std::size_t>(*missing))),
                      seconds_of(state_->options.timeout)));
    check();
  }
  state_->finished = true;
}

}  // namespace heterog::comm
