// What a wrong option or value is answered with.
#include "search/options.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/nearest.h"
#include "base/text.h"

namespace heterog::search {

std::string list_text(std::span<const std::string_view> words) {
  const auto all_but_last = words.first(words.size() - 1);
  return fmt::format("{} or {}", fmt::join(all_but_last, ", "), words.back());
}

std::size_t find_word(const std::string& option, const std::string& value,
                      std::span<const std::string_view> words) {
  const auto at = std::find(words.begin(), words.end(), value);
  if (at != words.end()) return static_cast<std::size_t>(at - words.begin());
  fail_input("{}: \"{}\" given{}; it is {}", option, printable(value),
             did_you_mean(value, std::vector<std::string>(words.begin(), words.end())),
             list_text(words));
}

DeviceId find_device(const std::string& option, const std::string& value,
                     const cluster::Cluster& cluster) {
  std::vector<std::string> known;
  for (DeviceId device : cluster.device_ids()) {
    known.push_back(cluster.device(device).name);
    if (known.back() == value) return device;
  }
  // Of a large cluster the first names show what names look like.
  constexpr std::size_t kShown = 16;
  const std::size_t shown = std::min(known.size(), kShown);
  fail_input("{}: the cluster has no device \"{}\"{}; it has {}{}", option, printable(value),
             did_you_mean(value, known),
             fmt::join(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
             shown < known.size() ? fmt::format(" and {} more", known.size() - shown) : "");
}

void fail_option(const std::string& planner, const std::string& option,
                 const std::vector<std::string>& known) {
  if (known.empty()) {
    fail_input("planner {}: option \"{}\" given; it has no options", planner, printable(option));
  }
  fail_input("planner {}: has no option \"{}\"{}; it has {}", planner, printable(option),
             did_you_mean(option, known), fmt::join(known, ", "));
}

}  // namespace heterog::search
