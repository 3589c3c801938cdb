// One key a rank: how often it has beaten, and its progress.
#include "comm/heartbeats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

namespace heterog::comm {

void Heartbeats::beat(const std::vector<std::uint64_t>& progress) {
  store_.set(std::to_string(own_.value()),
             fmt::format("{} {}", ++count_, fmt::join(progress, " ")));
}

std::vector<std::uint64_t> Heartbeats::read(DeviceId rank) const {
  std::vector<std::uint64_t> numbers;
  const auto text = store_.find(std::to_string(rank.value()));
  if (!text) return numbers;
  std::istringstream words(*text);
  for (std::uint64_t number; words >> number;) numbers.push_back(number);
  return numbers;
}

std::vector<std::uint64_t> Heartbeats::progress_of(DeviceId rank) const {
  std::vector<std::uint64_t> numbers = read(rank);
  if (!numbers.empty()) numbers.erase(numbers.begin());
  return numbers;
}

bool Heartbeats::is_silent(DeviceId rank, Clock::time_point now) {
  const std::vector<std::uint64_t> numbers = read(rank);
  const std::uint64_t count = numbers.empty() ? 0 : numbers.front();
  if (heard_.size() <= rank.value()) heard_.resize(rank.value() + 1);
  Heard& heard = heard_[rank.value()];
  if (!heard.at || heard.count != count || now - heard.asked > 3 * kEvery) {
    heard.count = count;
    heard.at = now;
  }
  heard.asked = now;
  return now - *heard.at > kSilence;
}

}  // namespace heterog::comm
