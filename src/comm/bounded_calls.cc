// A queue of calls and the thread that makes them; the last that holds the state frees it.
#include "comm/bounded_calls.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

namespace heterog::comm {

namespace {

struct Call {
  std::function<void()> body;
  bool ended = false;
  std::exception_ptr error;
};

}  // namespace

struct BoundedCalls::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Call>> waiting;
  bool ending = false;
  bool given_up = false;

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return ending || given_up || !waiting.empty(); });
      if (ending || given_up) return;
      const std::shared_ptr<Call> call = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        call->body();
      } catch (...) {
        error = std::current_exception();
      }
      call->body = nullptr;
      lock.lock();
      call->error = error;
      call->ended = true;
      changed.notify_all();
    }
  }
};

BoundedCalls::BoundedCalls()
    : state_(std::make_shared<State>()), thread_([state = state_] { state->serve(); }) {}

BoundedCalls::~BoundedCalls() {
  bool hangs = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
    hangs = state_->given_up;
  }
  state_->changed.notify_all();
  if (hangs) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

bool BoundedCalls::run(std::function<void()> call, Clock::time_point until) {
  const auto made = std::make_shared<Call>();
  made->body = std::move(call);
  std::unique_lock lock(state_->mutex);
  if (state_->given_up) return false;
  state_->waiting.push_back(made);
  state_->changed.notify_all();
  state_->changed.wait_until(lock, until, [&] { return made->ended || state_->given_up; });
  if (!made->ended) {
    state_->given_up = true;
    state_->changed.notify_all();
    return false;
  }
  if (made->error) std::rethrow_exception(made->error);
  return true;
}

void BoundedCalls::give_up() {
  const std::lock_guard lock(state_->mutex);
  state_->given_up = true;
  state_->changed.notify_all();
}

}  // namespace heterog::comm
