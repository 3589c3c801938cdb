// Signals are noted while somebody wants to know, and do what they did before once nobody does.
#include "base/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace heterog {
namespace {

TEST(NotedSignals, AreNotedForAsLongAsItLives) {
  struct sigaction before {};
  sigaction(SIGTERM, nullptr, &before);
  {
    const NotedSignals signals;
    EXPECT_FALSE(signals.noted());
    raise(SIGTERM);
    EXPECT_EQ(signals.noted(), SIGTERM);
    raise(SIGINT);
    EXPECT_EQ(signals.noted(), SIGINT);
  }
  struct sigaction after {};
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
  EXPECT_FALSE(NotedSignals().noted());  // what came earlier is not its own
}

// Whoever presses Ctrl-C twice does not want to wait.
TEST(NotedSignals, TheSecondOfAKindEndsTheProcessWhereThatIsWanted) {
  EXPECT_EXIT(
      {
        const NotedSignals signals(NotedSignals::Second::kEnds);
        raise(SIGINT);
        raise(SIGTERM);  // another kind, whose first it is
        if (signals.noted() != SIGTERM) _exit(1);
        raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(NotedSignals, LeaveAnIgnoredHangUpAlone) {
  const auto before = signal(SIGHUP, SIG_IGN);
  {
    const NotedSignals signals;
    raise(SIGHUP);
    EXPECT_FALSE(signals.noted());
  }
  signal(SIGHUP, before);
  if (before == SIG_IGN) return;
  const NotedSignals signals;
  raise(SIGHUP);
  EXPECT_EQ(signals.noted(), SIGHUP);
}

}  // namespace
}  // namespace heterog
