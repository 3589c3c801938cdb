// Connections between all ranks of a job, by a store in memory.
#include "comm/connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "comm/threads.h"

namespace heterog::comm {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

ConnectOptions options(int ranks, std::chrono::milliseconds timeout) {
  return {.device_names = device_names(ranks), .timeout = timeout};
}

char read_one(int descriptor) {
  pollfd wait{.fd = descriptor, .events = POLLIN, .revents = 0};
  if (poll(&wait, 1, static_cast<int>(kPatient.count())) != 1) return '?';
  char found = '?';
  return read(descriptor, &found, 1) == 1 ? found : '?';
}

// Each rank writes what names the receiver and the channel, so that no two are mixed up.
TEST(Connections, LeadToEachOtherRankOnEachChannel) {
  constexpr int kRanks = 4;
  const Store store = make_local_store();
  const auto errors = run_threads(kRanks, [&](int rank) {
    const DeviceId own(static_cast<std::size_t>(rank));
    const Connections all =
        connect_ranks(store.another_connection(), own, options(kRanks, kPatient));
    const auto letter = [kRanks](DeviceId from, DeviceId to, std::size_t channel) {
      return static_cast<char>('A' + (from.value() * kRanks + to.value()) * 2 + channel);
    };
    for (const DeviceId peer : everyone(kRanks)) {
      for (std::size_t channel = 0; channel < kChannelCount; ++channel) {
        const Descriptor& connection = all[peer][channel];
        ASSERT_EQ(connection.valid(), peer != own);
        if (peer == own) continue;
        const char mine = letter(own, peer, channel);
        ASSERT_EQ(write(connection.get(), &mine, 1), 1);
      }
    }
    for (const DeviceId peer : everyone(kRanks)) {
      for (std::size_t channel = 0; peer != own && channel < kChannelCount; ++channel) {
        EXPECT_EQ(read_one(all[peer][channel].get()), letter(peer, own, channel));
      }
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Connections, NameTheRanksThatDoNotCome) {
  const Store store = make_local_store();
  const auto errors = run_threads(2, [&](int rank) {
    connect_ranks(store.another_connection(), DeviceId(static_cast<std::size_t>(rank)),
                  options(4, kHasty));
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("host/cpu2"), HasSubstr("host/cpu3")));
  }
}

}  // namespace
}  // namespace heterog::comm
