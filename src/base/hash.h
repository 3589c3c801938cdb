// A stable 64-bit hash for file identity (graph and cluster hashes in plans); not for security.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/rng.h"

namespace heterog {

class Hasher {
 public:
  void add(std::uint64_t value) { state_ = mix64(state_ ^ mix64(value)); }
  void add(std::string_view text) {
    add(text.size());
    std::uint64_t h = 0xcbf29ce484222325ULL;  // FNV-1a over the bytes, then mixed
    for (unsigned char c : text) h = (h ^ c) * 0x100000001b3ULL;
    add(h);
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x6865746572306721ULL;
};

// 16 hexadecimal digits.
std::string hash_text(std::uint64_t hash);

}  // namespace heterog
