// A stable 64-bit hash for file identity (graph and cluster hashes in plans); not for security.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace heterog {

// XXH3 of what is added, each seeded by all before it: the order counts, and so does where one
// text ends and the next begins.
class Hasher {
 public:
  void add(std::uint64_t value);
  void add(std::string_view text);
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

// 128 bits of all words at once, for keys that no two things share by chance.
std::pair<std::uint64_t, std::uint64_t> hash_words(std::span<const std::uint64_t> words);

// 16 hexadecimal digits.
std::string hash_text(std::uint64_t hash);

}  // namespace heterog
