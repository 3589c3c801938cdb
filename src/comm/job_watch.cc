// The watching thread: looks at one key of the store, ten times a second.
#include "comm/job_watch.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"

namespace heterog::comm {

namespace {

constexpr std::chrono::milliseconds kInterval{100};  // how soon a rank sees that the job has ended
constexpr std::chrono::milliseconds kIntervalLeaving{5};
constexpr std::chrono::milliseconds kStorePatience{2000};  // for a store that does not answer

const std::string kEnded = "ended";
const std::string kLeaving = "leaving";
const std::string kGone = "gone";

std::string key(const std::string& phase, int rank) { return fmt::format("{}/{}", phase, rank); }

}  // namespace

struct JobWatch::State {
  State(Store connection, std::function<void(const std::string&)> on_end)
      : store(std::move(connection)), on_end(std::move(on_end)) {}

  const Store store;  // of the watching thread, but for give_up()
  const std::function<void(const std::string&)> on_end;

  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> wish;    // to be said to the others
  std::optional<std::string> reason;  // why the job ended
  bool settled = false;               // it is known, and is being told
  bool leaving = false;
  Leave leave;      // set before `leaving`
  int missing = 0;  // the rank that is waited for
  bool left = false;
  bool stop = false;
  bool stopped = false;

  bool announced = false;  // of leave_now(): of the watching thread alone
  bool gone = false;
  int come = 0;  // ranks below it have
  int seen = 0;  // ranks below it have seen that all have come

  std::thread thread;  // last made: it uses all of the above

  // Who sees the reason finds that on_end() knows it too.
  void settle(const std::string& why) {
    {
      const std::lock_guard lock(mutex);
      if (settled) return;
      settled = true;
    }
    on_end(why);
    const std::lock_guard lock(mutex);
    reason = why;
    changed.notify_all();
  }

  // Whether all ranks have come so far, from `next` on.
  bool all_are(const std::string& phase, int& next) {
    for (; next < leave.ranks && store.find(key(phase, next)); ++next) continue;
    if (next == leave.ranks) return true;
    const std::lock_guard lock(mutex);
    missing = next;
    return false;
  }

  // True once all ranks have come, and, for rank 0, have seen that.
  bool leave_now() {
    if (!announced) store.set(key(kLeaving, leave.rank), "1");
    announced = true;
    if (!all_are(kLeaving, come)) return false;
    if (!gone) store.set(key(kGone, leave.rank), "1");
    gone = true;
    return leave.rank != 0 || all_are(kGone, seen);
  }

  void watch() {
    bool said = false;
    std::unique_lock lock(mutex);
    while (!stop && !left) {
      const std::optional<std::string> say = said ? std::nullopt : wish;
      const bool leave_then = leaving && !reason;
      lock.unlock();
      bool leaves = false;
      try {
        if (say) {
          settle(store.set_first(kEnded, *say));
          said = true;
        } else if (const auto found = store.find(kEnded)) {
          settle(*found);
          said = true;
        } else if (leave_then) {
          leaves = leave_now();
        }
      } catch (const Error& error) {
        lock.lock();
        const std::string why = wish.value_or(error.what());  // which came first
        lock.unlock();
        settle(why);
        lock.lock();
        break;
      }
      lock.lock();
      left = leaves;
      changed.wait_for(lock, leaving ? kIntervalLeaving : kInterval,
                       [&] { return stop || left || (wish && !said) || (leaving && !announced); });
    }
    stopped = true;
    changed.notify_all();
  }
};

JobWatch::JobWatch(Store own_connection, std::function<void(const std::string&)> on_end)
    : state_(std::make_unique<State>(std::move(own_connection), std::move(on_end))) {
  state_->thread = std::thread([state = state_.get()] { state->watch(); });
}

JobWatch::~JobWatch() {
  {
    std::unique_lock lock(state_->mutex);
    state_->stop = true;
    state_->changed.notify_all();
    state_->changed.wait_for(lock, kStorePatience, [&] { return state_->stopped; });
    if (!state_->stopped) state_->store.give_up();  // ends the call in which it hangs
  }
  state_->thread.join();
}

std::string JobWatch::end(const std::string& reason) {
  std::unique_lock lock(state_->mutex);
  if (!state_->wish) state_->wish = reason;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kStorePatience, [&] { return state_->reason || state_->stopped; });
  if (state_->reason) return *state_->reason;
  lock.unlock();
  state_->settle(reason);
  lock.lock();
  state_->changed.wait(lock, [&] { return state_->reason.has_value(); });
  return *state_->reason;
}

std::optional<int> JobWatch::leave_together(const Leave& leave) {
  std::unique_lock lock(state_->mutex);
  state_->leave = leave;
  state_->leaving = true;
  state_->changed.notify_all();
  // A store that does not answer ends the job by itself, after the time-out of its calls.
  state_->changed.wait_for(lock, leave.timeout + 2 * kStorePatience,
                           [&] { return state_->left || state_->reason; });
  if (state_->left || state_->reason) return std::nullopt;
  return state_->missing;
}

}  // namespace heterog::comm
