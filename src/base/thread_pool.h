// Data-parallel loops over a fixed set of threads.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace heterog {

// `run(n, body)` calls body(worker, i) once for each i in [0, n), worker in [0, threads). Which
// worker takes which i is not fixed, so a result must depend on i alone. If bodies throw, no
// further i is begun, and the exception of the lowest i is rethrown once every worker has ended:
// the same one whatever the number of threads. One run at a time; not re-entrant.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // ≥ 1; one means: run in the calling thread
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  void run(std::size_t n, const std::function<void(int worker, std::size_t i)>& body);

 private:
  struct State;
  int threads_;
  std::unique_ptr<State> state_;
};

// The machine's cores, at least 1.
int hardware_threads();

}  // namespace heterog
