// Reads hostfiles line by line.
#include "launch/hostfile.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/names.h"
#include "base/text.h"
#include "cluster/cluster.h"

namespace heterog::launch {

namespace {

constexpr std::string_view kSpace = " \t\r";
constexpr int kMaxSlots = static_cast<int>(cluster::kMaxDevices);

// Takes the next word off `line`; empty at its end.
std::string_view next_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kSpace), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kSpace));
  line.remove_prefix(word.size());
  return word;
}

int parse_slots(std::string_view word, const std::string& place) {
  constexpr std::string_view kKey = "slots=";
  VALIDATE(word.starts_with(kKey), "{}: \"{}\" after the host; a line is HOST slots=N", place,
           printable(word));
  const std::string_view digits = word.substr(kKey.size());
  int slots = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), slots);
  VALIDATE(error == std::errc() && end == digits.data() + digits.size() && slots >= 1 &&
               slots <= kMaxSlots,
           "{}: slots={}; it is a number from 1 to {}", place, printable(digits), kMaxSlots);
  return slots;
}

}  // namespace

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& source) {
  std::vector<HostSlots> hosts;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const std::string_view host = next_word(line);
    if (host.empty()) continue;
    const std::string place = fmt::format("{}:{}", source, number);
    VALIDATE(
        is_host_name(host),
        "{}: \"{}\" where the host should be; a line is HOST slots=N, where HOST is [USER@]NAME of "
        "letters, digits and ._:%[]-, no part of which begins with -",
        place, printable(host));
    const std::string_view slots = next_word(line);
    const HostSlots entry{.host = std::string(host),
                          .slots = slots.empty() ? 1 : parse_slots(slots, place)};
    const std::string_view rest = next_word(line);
    VALIDATE(rest.empty(), "{}: \"{}\" after the slots; a line is HOST slots=N", place,
             printable(rest));
    const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& other) {
      return other.host == entry.host;
    });
    if (known == hosts.end()) {
      hosts.push_back(entry);
    } else {
      known->slots += entry.slots;
      VALIDATE(known->slots <= kMaxSlots, "{}: {} has {} slots in all; at most {}", place,
               entry.host, known->slots, kMaxSlots);
    }
  }
  VALIDATE(!hosts.empty(), "{}: names no host; a line is HOST slots=N", source);
  return hosts;
}

HostRanks ranks_of_host(const std::vector<HostSlots>& hosts, const std::string& host,
                        const std::string& source) {
  HostRanks ranks;
  bool found = false;
  std::string known;
  for (const HostSlots& entry : hosts) {
    if (entry.host == host) {
      ranks.first = ranks.world_size;
      ranks.count = entry.slots;
      found = true;
    }
    ranks.world_size += entry.slots;
    known += (known.empty() ? "" : ", ") + entry.host;
  }
  VALIDATE(found, "{}: does not name host \"{}\"; it names {}", source, printable(host),
           printable(known, 200));
  return ranks;
}

}  // namespace heterog::launch
