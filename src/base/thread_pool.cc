// Workers that sleep between runs and claim the indices of a run in ascending order.
#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace heterog {

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable start;
  std::condition_variable done;
  std::uint64_t generation = 0;  // of the run; a worker joins each generation once
  bool stopping = false;
  bool in_run = false;
  int busy = 0;  // workers that have not ended the current generation

  // The current run. Written under the mutex before the generation is announced.
  const std::function<void(int, std::size_t)>* body = nullptr;
  std::size_t count = 0;
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::size_t failed_index = std::numeric_limits<std::size_t>::max();
  std::exception_ptr failure;

  std::vector<std::thread> workers;

  // Indices are claimed in ascending order, so when i fails every lower index has been claimed and
  // will end: the lowest failing index is always among those that ran, and higher ones can stop.
  void work(int worker) {
    while (!failed.load(std::memory_order_relaxed)) {
      const std::size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= count) return;
      try {
        (*body)(worker, i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (i < failed_index) {
          failed_index = i;
          failure = std::current_exception();
        }
        failed.store(true, std::memory_order_relaxed);
      }
    }
  }

  void loop(int worker) {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      start.wait(lock, [&] { return stopping || generation != seen; });
      if (stopping) return;
      seen = generation;
      lock.unlock();
      work(worker);
      lock.lock();
      if (--busy == 0) done.notify_one();
    }
  }

  void stop() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    start.notify_all();
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads), state_(std::make_unique<State>()) {
  ENSURE(threads >= 1);
  try {
    for (int worker = 1; worker < threads; ++worker) {
      state_->workers.emplace_back([state = state_.get(), worker] { state->loop(worker); });
    }
  } catch (...) {  // the system has no more threads
    state_->stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->stop(); }

void ThreadPool::run(std::size_t n, const std::function<void(int, std::size_t)>& body) {
  State& state = *state_;
  {
    std::lock_guard lock(state.mutex);
    ENSURE(!state.in_run);
    state.in_run = true;
    state.body = &body;
    state.count = n;
    state.next.store(0, std::memory_order_relaxed);
    state.failed.store(false, std::memory_order_relaxed);
    state.failed_index = std::numeric_limits<std::size_t>::max();
    state.failure = nullptr;
    state.busy = threads_ - 1;
    ++state.generation;
  }
  if (threads_ > 1) state.start.notify_all();
  state.work(0);
  std::exception_ptr failure;
  {
    std::unique_lock lock(state.mutex);
    state.done.wait(lock, [&] { return state.busy == 0; });
    state.in_run = false;
    failure = std::exchange(state.failure, nullptr);
  }
  if (failure) std::rethrow_exception(failure);
}

int hardware_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace heterog
