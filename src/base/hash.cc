// Calls xxHash, and prints.
#include "base/hash.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace heterog {

void Hasher::add(std::uint64_t value) {
  state_ = XXH3_64bits_withSeed(&value, sizeof(value), state_);
}

void Hasher::add(std::string_view text) {
  add(text.size());
  state_ = XXH3_64bits_withSeed(text.data(), text.size(), state_);
}

std::pair<std::uint64_t, std::uint64_t> hash_words(std::span<const std::uint64_t> words) {
  const XXH128_hash_t hash = XXH3_128bits(words.data(), words.size_bytes());
  return {hash.low64, hash.high64};
}

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace heterog
