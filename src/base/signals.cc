// One handler that writes a number.
#include "base/signals.h"

#include <signal.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace heterog {

namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

std::atomic<int> g_noted = 0;                          // 0: none
static_assert(std::atomic<int>::is_always_lock_free);  // else no handler may write it
std::array<struct sigaction, kSignals.size()> g_before;

void note(int number) { g_noted = number; }

}  // namespace

NotedSignals::NotedSignals(Second second) {
  g_noted = 0;
  struct sigaction noting {};
  noting.sa_handler = note;
  if (second == Second::kEnds) noting.sa_flags = SA_RESETHAND;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &g_before[i]);
    const bool ignored = g_before[i].sa_handler == SIG_IGN;
    if (kSignals[i] != SIGHUP || !ignored) sigaction(kSignals[i], &noting, nullptr);
  }
}

NotedSignals::~NotedSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &g_before[i], nullptr);
}

std::optional<int> NotedSignals::noted() const {
  const int number = g_noted;
  return number == 0 ? std::nullopt : std::optional(number);
}

}  // namespace heterog
