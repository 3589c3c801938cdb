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

// Each rank writes what names the receiver, the channel and the flow, so that no two are mixed up.
// Ranks 0 and 1 are near each other, and 2 and 3: others are reached over three flows.
TEST(Connections, LeadToEachOtherRankOnEachChannelAndFlow) {
  static constexpr int kRanks = 4;
  static constexpr std::size_t kFlows = 3;
  const Store store = make_local_store();
  const auto errors = run_threads(kRanks, [&](int rank) {
    const DeviceId own(static_cast<std::size_t>(rank));
    ConnectOptions connect = options(kRanks, kPatient);
    for (const DeviceId peer : everyone(kRanks)) {
      connect.flows.push_back(peer.value() / 2 == own.value() / 2 ? 1 : kFlows);
    }
    const Connections all = connect_ranks(store.another_connection(), own, connect);
    const auto letter = [](DeviceId from, DeviceId to, std::size_t channel, std::size_t flow) {
      const std::size_t pair = from.value() * kRanks + to.value();
      return static_cast<char>((pair * kChannelCount + channel) * kFlows + flow);
    };
    const auto each_line = [&](auto&& use) {
      for (const DeviceId peer : everyone(kRanks)) {
        for (std::size_t channel = 0; channel < kChannelCount; ++channel) {
          const std::vector<Descriptor>& flows = all[peer][channel];
          ASSERT_EQ(flows.size(), peer == own ? 0 : connect.flows_to(peer));
          for (std::size_t flow = 0; flow < flows.size(); ++flow) {
            use(flows[flow].get(), peer, channel, flow);
          }
        }
      }
    };
    each_line([&](int line, DeviceId peer, std::size_t channel, std::size_t flow) {
      const char mine = letter(own, peer, channel, flow);
      ASSERT_EQ(write(line, &mine, 1), 1);
    });
    each_line([&](int line, DeviceId peer, std::size_t channel, std::size_t flow) {
      EXPECT_EQ(read_one(line), letter(peer, own, channel, flow));
    });
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
