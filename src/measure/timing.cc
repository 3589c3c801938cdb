// Samples of calls, by the clock or by the device's events.
#include "measure/timing.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/check.h"

namespace heterog::measure {
namespace {

constexpr double kSampleSeconds = 3e-4;  // a thousand times what reading the clock costs
constexpr double kEnoughSeconds = 1.0;   // of samples of one operator on one slice
constexpr std::size_t kFewestSamples = 3;
constexpr double kMostCalls = 1000;

class Rounds {
 public:
  Rounds(std::span<const std::function<void()>> calls, at::Device device)
      : calls_(calls), device_(device) {}

  // Seconds of a call, over `count` of them.
  double seconds(int count) {
    return (device_.is_cpu() ? by_clock(count) : by_events(count)) / count;
  }

 private:
  void run(int count) {
    for (int i = 0; i < count; ++i) {
      calls_[next_]();
      next_ = (next_ + 1) % calls_.size();
    }
  }
  double by_clock(int count) {
    const auto start = std::chrono::steady_clock::now();
    run(count);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  // Through c10's interface of devices, which needs no headers of the device's maker.
  double by_events(int count) {
    const c10::impl::VirtualGuardImpl guard(device_.type());
    const c10::Stream stream = guard.getStream(device_);
    c10::Event start(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Event end(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    start.record(stream);
    run(count);
    end.record(stream);
    end.synchronize();
    return 1e-3 * start.elapsedTime(end);  // milliseconds
  }

  std::span<const std::function<void()>> calls_;
  at::Device device_;
  std::size_t next_ = 0;
};

}  // namespace

Robust time_calls(std::span<const std::function<void()>> calls, at::Device device, int repeat) {
  EXPECT(!calls.empty() && repeat >= 1);
  Rounds rounds(calls, device);
  // The first call makes what a library keeps for the next ones; the second shows how long they
  // take; then every set of operands is touched once.
  rounds.seconds(1);
  const double once = std::max(rounds.seconds(1), 1e-8);
  const int count = static_cast<int>(std::clamp(std::ceil(kSampleSeconds / once), 1.0, kMostCalls));
  const bool slow = once > kEnoughSeconds;
  if (!slow) rounds.seconds(std::max(count, static_cast<int>(calls.size())));
  std::vector<double> samples;
  double spent = 0;
  while (samples.size() < static_cast<std::size_t>(repeat) &&
         (samples.size() < kFewestSamples || spent < kEnoughSeconds)) {
    samples.push_back(rounds.seconds(count));
    spent += samples.back() * count;
  }
  return robust(std::move(samples));
}

}  // namespace heterog::measure
