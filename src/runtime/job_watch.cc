// The watching thread: looks at one key of the store, ten times a second.
#include "runtime/job_watch.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"

namespace heterog::runtime {

namespace {

constexpr std::chrono::milliseconds kLook{100};  // how soon a rank sees that the job has ended
constexpr std::chrono::milliseconds kLookLeaving{5};
constexpr std::chrono::milliseconds kPatience{2000};  // for a store that does not answer

const std::string kEnded = "ended";
const std::string kLeaving = "leaving";
const std::string kGone = "gone";

}  // namespace

struct JobWatch::State {
  explicit State(Store connection) : store(std::move(connection)) {}

  Store store;  // of the watching thread alone
  std::function<void(const std::string&)> on_end;

  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> wish;    // to be said to the others
  std::optional<std::string> reason;  // why the job ended
  bool leaving = false;
  Leave leave;  // set before `leaving`
  bool left = false;
  bool stop = false;
  bool stopped = false;

  bool announced = false;  // of leave_now(): of the watching thread alone
  bool gone = false;

  void settle(const std::string& why) {
    std::function<void(const std::string&)> tell;
    {
      const std::lock_guard lock(mutex);
      if (reason) return;
      reason = why;
      tell = on_end;
    }
    changed.notify_all();
    if (tell) tell(why);
  }

  // True once all ranks have come, and, for rank 0, have seen that.
  bool leave_now() {
    if (!announced) store.add(kLeaving, 1);
    announced = true;
    if (store.add(kLeaving, 0) < leave.ranks) return false;
    if (!gone) store.add(kGone, 1);
    gone = true;
    return leave.rank != 0 || store.add(kGone, 0) >= leave.ranks;
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
        settle(error.what());
        lock.lock();
        break;
      }
      lock.lock();
      left = leaves;
      changed.wait_for(lock, leaving ? kLookLeaving : kLook,
                       [&] { return stop || left || (wish && !said) || (leaving && !announced); });
    }
    stopped = true;
    changed.notify_all();
  }
};

JobWatch::JobWatch(Store own_connection, std::function<void(const std::string&)> on_end)
    : state_(std::make_shared<State>(std::move(own_connection))) {
  state_->on_end = std::move(on_end);
  std::thread([state = state_] { state->watch(); }).detach();
}

JobWatch::~JobWatch() {
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kPatience, [&] { return state_->stopped; });
  state_->on_end = nullptr;
}

std::string JobWatch::end(const std::string& reason) {
  std::unique_lock lock(state_->mutex);
  if (!state_->wish) state_->wish = reason;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kPatience, [&] { return state_->reason || state_->stopped; });
  if (state_->reason) return *state_->reason;
  lock.unlock();
  state_->settle(reason);
  return reason;
}

bool JobWatch::leave_together(const Leave& leave) {
  std::unique_lock lock(state_->mutex);
  state_->leave = leave;
  state_->leaving = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, leave.timeout, [&] { return state_->left || state_->reason; });
  return state_->left;
}

}  // namespace heterog::runtime
