// A connection that closes names its peer, once, and nothing does after it has been let go.
#include "comm/lifelines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <condition_variable>
#include <mutex>

namespace heterog::comm {
namespace {

// Rank 1's connections to ranks 0 and 2, whose ends the test holds.
struct Lines {
  Connections own{3};
  std::array<Descriptor, 3> peers;

  Lines() {
    for (const int rank : {0, 2}) {
      std::array<int, 2> ends{};
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
      own[DeviceId(static_cast<std::size_t>(rank))][0].emplace_back(ends[0]);
      peers[static_cast<std::size_t>(rank)] = Descriptor(ends[1]);
    }
  }
};

struct Seen {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> lost;
  int ticks = 0;

  Lifelines::Options options() {
    return {.on_lost =
                [this](DeviceId peer, const std::string& why) {
                  const std::lock_guard lock(mutex);
                  lost.push_back(fmt::format("{} {}", peer.value(), why));
                  changed.notify_all();
                },
            .on_tick =
                [this] {
                  const std::lock_guard lock(mutex);
                  ++ticks;
                  changed.notify_all();
                },
            .every = std::chrono::milliseconds(2)};
  }
  template <class Ready>
  void wait(Ready ready) {
    std::unique_lock lock(mutex);
    changed.wait(lock, ready);
  }
};

TEST(Lifelines, NameThePeerThatIsGone) {
  Lines lines;
  Seen seen;
  Lifelines lifelines(std::move(lines.own), seen.options());
  seen.wait([&] { return seen.ticks >= 2; });
  {
    const std::lock_guard lock(seen.mutex);
    EXPECT_THAT(seen.lost, testing::IsEmpty());
  }
  lines.peers[2] = Descriptor();
  seen.wait([&] { return !seen.lost.empty(); });
  int ticks = 0;
  seen.wait([&] { return ++ticks > 3; });  // of the ticks that come after
  lifelines.let_go();
  EXPECT_THAT(seen.lost, testing::ElementsAre("2 closed"));
}

TEST(Lifelines, AreSilentOnceLetGo) {
  Lines lines;
  Seen seen;
  Lifelines lifelines(std::move(lines.own), seen.options());
  lifelines.let_go();
  const int ticks = seen.ticks;
  lines.peers[0] = Descriptor();
  lines.peers[2] = Descriptor();
  lifelines.let_go();  // again is nothing
  EXPECT_THAT(seen.lost, testing::IsEmpty());
  EXPECT_EQ(seen.ticks, ticks);
}

}  // namespace
}  // namespace heterog::comm
