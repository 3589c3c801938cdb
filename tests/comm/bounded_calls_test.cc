// Calls that never return, and callers that go on.
#include "comm/bounded_calls.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

namespace heterog::comm {
namespace {

using Clock = BoundedCalls::Clock;

const Clock::time_point kNever = Clock::time_point::max();

TEST(BoundedCalls, ReturnOrThrowAsTheCallDoes) {
  BoundedCalls calls;
  int made = 0;
  EXPECT_TRUE(calls.run([&] { ++made; }, kNever));
  EXPECT_THROW(calls.run([] { throw std::runtime_error("no"); }, kNever), std::runtime_error);
  EXPECT_TRUE(calls.run([&] { ++made; }, kNever));
  EXPECT_EQ(made, 2);
}

TEST(BoundedCalls, LeaveBehindWhatDoesNotEnd) {
  const auto released = std::make_shared<std::promise<void>>();
  const auto hangs = [future = released->get_future().share()] { future.wait(); };
  {
    BoundedCalls calls;
    EXPECT_FALSE(calls.run(hangs, Clock::now()));
    EXPECT_FALSE(calls.run([] {}, kNever)) << "what comes after it is given up too";
  }
  BoundedCalls others;
  std::thread gives_up([&] { others.give_up(); });
  EXPECT_FALSE(others.run(hangs, kNever));
  gives_up.join();
  released->set_value();
}

}  // namespace
}  // namespace heterog::comm
