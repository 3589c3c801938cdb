// How ranks hear that their job has ended, and leave it together.
#include "comm/job_watch.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>

#include "comm/threads.h"

namespace heterog::comm {
namespace {

// A watch, and the reason that it is told.
struct Watched {
  explicit Watched(const Store& store)
      : watch(store.another_connection(),
              [this](const std::string& reason) { told.set_value(reason); }) {}

  std::promise<std::string> told;  // a second call would throw
  JobWatch watch;
};

TEST(JobWatch, TellsTheOthersTheFirstReason) {
  const Store store = make_local_store();
  Watched first(store), second(store);
  EXPECT_EQ(first.watch.end("the disk is full"), "the disk is full");
  EXPECT_EQ(first.told.get_future().get(), "the disk is full");
  EXPECT_EQ(second.told.get_future().get(), "the disk is full");
  EXPECT_EQ(second.watch.end("rank 0 is gone"), "the disk is full");
  EXPECT_EQ(first.watch.end("something else"), "the disk is full");
}

TEST(JobWatch, OfSeveralWhoEndItAtOnceOneIsFirst) {
  const Store store = make_local_store();
  std::vector<std::string> stands(4);
  run_threads(4, [&](int rank) {
    Watched own(store);
    stands[static_cast<std::size_t>(rank)] = own.watch.end(std::to_string(rank));
  });
  for (const std::string& reason : stands) EXPECT_EQ(reason, stands[0]);
}

TEST(JobWatch, LeavesOnceAllHaveCome) {
  const Store store = make_local_store();
  const auto errors = run_threads(3, [&](int rank) {
    Watched own(store);
    EXPECT_FALSE(own.watch.leave_together({.rank = rank, .ranks = 3, .timeout = kPatient}));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(JobWatch, NamesARankThatDoesNotLeave) {
  const Store store = make_local_store();
  run_threads(2, [&](int rank) {
    Watched own(store);
    EXPECT_EQ(own.watch.leave_together({.rank = rank, .ranks = 3, .timeout = kHasty}), 2);
  });
}

TEST(JobWatch, SaysNothingOnceItIsGone) {
  const Store store = make_local_store();
  auto gone = std::make_unique<Watched>(store);
  std::future<std::string> told = gone->told.get_future();
  gone.reset();
  Watched other(store);
  other.watch.end("over");
  EXPECT_THROW(told.get(), std::future_error) << "its promise was broken, not kept";
}

}  // namespace
}  // namespace heterog::comm
