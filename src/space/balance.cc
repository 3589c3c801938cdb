// A search for the time in which the devices together get through the batch.
#include "space/balance.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace heterog::space {

namespace {

// The most samples up to `most` that the device computes within `limit` seconds.
std::int64_t within(const ModelSeconds& seconds, DeviceId device, double limit, std::int64_t most) {
  std::int64_t low = 0, high = most;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (seconds(device, middle) <= limit) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

Samples all_within(const ModelSeconds& seconds, double limit, const Samples& most) {
  Samples samples(most.size());
  for (DeviceId device : id_range<DeviceId>(most.size())) {
    samples[device] = within(seconds, device, limit, most[device]);
  }
  return samples;
}

std::int64_t total(const Samples& samples) {
  std::int64_t sum = 0;
  for (std::int64_t n : samples) sum += n;
  return sum;
}

}  // namespace

std::optional<Samples> balance(const ModelSeconds& seconds, std::int64_t batch,
                               const Samples& most) {
  Samples room = most;
  for (std::int64_t& n : room) n = std::clamp<std::int64_t>(n, 0, batch);
  if (total(room) < batch) return std::nullopt;
  double low = 0, high = 0;  // too little time, and enough
  for (DeviceId device : id_range<DeviceId>(room.size())) {
    high = std::max(high, seconds(device, room[device]));
  }
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (total(all_within(seconds, middle, room)) < batch ? low : high) = middle;
  }
  Samples samples = all_within(seconds, low, room);
  // What is left, one by one to the device that has computed it first.
  using Next = std::pair<double, DeviceId::Value>;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  const auto offer = [&](DeviceId device) {
    if (samples[device] == room[device]) return;
    next.push({seconds(device, samples[device] + 1), device.value()});
  };
  for (DeviceId device : id_range<DeviceId>(room.size())) offer(device);
  for (std::int64_t left = batch - total(samples); left > 0; --left) {
    const DeviceId device(next.top().second);
    next.pop();
    ++samples[device];
    offer(device);
  }
  return samples;
}

}  // namespace heterog::space
