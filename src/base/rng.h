// One injected random generator: xoshiro256** seeded by splitmix64, split by worker or purpose.
#pragma once

#include <array>
#include <cstdint>

namespace heterog {

// Mixes a counter into 64 random bits (splitmix64, Steele et al. 2014).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Same seed, same sequence, on every machine. Satisfies UniformRandomBitGenerator, but use the
// members: the distributions of <random> differ between standard libraries.
class Rng {
 public:
  using result_type = std::uint64_t;
  explicit constexpr Rng(std::uint64_t seed) {
    for (auto& word : state_) word = seed = mix64(seed);
  }
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~0ULL; }

  constexpr result_type operator()() {
    const std::uint64_t result = rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotl(state_[3], 45);
    return result;
  }
  // In [0, n), n ≥ 1. The bias of the multiply-shift is below 2^-32 for n < 2^32.
  constexpr std::uint64_t below(std::uint64_t n) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>((*this)()) * n) >> 64);
  }
  // In [0, 1), 53 bits.
  constexpr double uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

  // An independent generator for worker or purpose `stream`; does not advance this one.
  constexpr Rng split(std::uint64_t stream) const {
    return Rng(mix64(state_[0] ^ mix64(stream + 0x5851f42d4c957f2dULL)) ^ state_[3]);
  }
  const std::array<std::uint64_t, 4>& state() const { return state_; }
  void set_state(const std::array<std::uint64_t, 4>& state) { state_ = state; }

 private:
  static constexpr std::uint64_t rotl(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace heterog
