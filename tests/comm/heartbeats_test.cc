// Who counts as lost, and when.
#include "comm/heartbeats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heterog::comm {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(Heartbeats, TellHowFarARankHasCome) {
  const Store store = make_local_store();
  Heartbeats first(store, DeviceId(0)), second(store, DeviceId(1));
  EXPECT_THAT(first.progress_of(DeviceId(1)), IsEmpty());
  second.beat({3, 0, 12});
  EXPECT_THAT(first.progress_of(DeviceId(1)), ElementsAre(3, 0, 12));
  second.beat({4, 1, 13});
  EXPECT_THAT(first.progress_of(DeviceId(1)), ElementsAre(4, 1, 13));
}

TEST(Heartbeats, ARankIsSilentAfterTenSecondsWithout) {
  const Store store = make_local_store();
  Heartbeats first(store, DeviceId(0)), second(store, DeviceId(1));
  const Heartbeats::Clock::time_point begin{};
  int beats = 0;
  const auto ask_each_second = [&](int from, int to, bool beating) {
    bool silent = false;
    for (int second_number = from; second_number <= to; ++second_number) {
      if (beating) second.beat({static_cast<std::uint64_t>(++beats)});
      silent = first.is_silent(DeviceId(1), begin + seconds(second_number));
    }
    return silent;
  };
  EXPECT_FALSE(ask_each_second(0, 60, true));
  EXPECT_FALSE(ask_each_second(61, 70, false));
  EXPECT_TRUE(ask_each_second(71, 71, false));
  // It was only slow.
  EXPECT_FALSE(ask_each_second(72, 73, true));
}

// Nobody asks while nobody waits: what was heard long ago is no reason.
TEST(Heartbeats, AskingAgainBeginsAnew) {
  const Store store = make_local_store();
  Heartbeats first(store, DeviceId(0)), second(store, DeviceId(1));
  const Heartbeats::Clock::time_point begin{};
  second.beat({});
  EXPECT_FALSE(first.is_silent(DeviceId(1), begin));
  EXPECT_FALSE(first.is_silent(DeviceId(1), begin + seconds(100)));
  EXPECT_FALSE(first.is_silent(DeviceId(1), begin + seconds(102)));
}

// One that has never beaten is given as long.
TEST(Heartbeats, OneThatNeverBeatIsSilentToo) {
  Heartbeats first(make_local_store(), DeviceId(0));
  const Heartbeats::Clock::time_point begin{};
  bool silent = false;
  for (int i = 0; i <= 11; ++i) silent = first.is_silent(DeviceId(1), begin + seconds(i));
  EXPECT_TRUE(silent);
}

}  // namespace
}  // namespace heterog::comm
