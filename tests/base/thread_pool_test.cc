// Loops over threads: every index once, the same exception whatever the number of threads.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace heterog {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryIndexOnceRunAfterRun) {
  ThreadPool pool(GetParam());
  for (std::size_t n : {0, 1, 2, 3, 100, 1000}) {
    std::vector<int> seen(n, 0);
    std::vector<int> per_worker(static_cast<std::size_t>(pool.threads()), 0);
    pool.run(n, [&](int worker, std::size_t i) {
      ++seen[i];
      ++per_worker[static_cast<std::size_t>(worker)];  // a data race if workers shared a number
    });
    int total = 0;
    for (int count : per_worker) total += count;
    EXPECT_EQ(total, static_cast<int>(n));
    EXPECT_EQ(seen, std::vector<int>(n, 1));
  }
}

TEST_P(ThreadPoolTest, RethrowsTheLowestFailureAndGoesOn) {
  ThreadPool pool(GetParam());
  for (int repeat = 0; repeat < 50; ++repeat) {
    try {
      pool.run(64, [](int, std::size_t i) {
        if (i >= 10 && i % 5 == 0) throw std::runtime_error(std::to_string(i));
      });
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "10");
    }
  }
  std::atomic<int> count{0};
  pool.run(8, [&](int, std::size_t) { ++count; });
  EXPECT_EQ(count, 8);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 5));

TEST(ThreadPool, ComesAndGoesWithoutWork) {
  for (int i = 0; i < 100; ++i) ThreadPool pool(3);
  EXPECT_GE(hardware_threads(), 1);
}

}  // namespace
}  // namespace heterog
