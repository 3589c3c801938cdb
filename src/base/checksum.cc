// The library's own code, compiled into this file: nothing more to be linked or shipped.
#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace heterog {

struct Checksum::State {
  XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }
Checksum::~Checksum() = default;

void Checksum::add(const void* bytes, std::size_t count) {
  if (count > 0) XXH3_64bits_update(&state_->xxh3, bytes, count);
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(&state_->xxh3); }

std::uint64_t checksum(const void* bytes, std::size_t count) { return XXH3_64bits(bytes, count); }

}  // namespace heterog
