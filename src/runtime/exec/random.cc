// A hash of (seed, step, op, index) in place of a generator with a state.
#include "runtime/exec/random.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "base/check.h"

namespace heterog::runtime {
namespace {

// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014), a bijection that mixes well.
constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
constexpr std::uint64_t kFirst = 0xbf58476d1ce4e5b9;
constexpr std::uint64_t kSecond = 0x94d049bb133111eb;

constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * kFirst;
  x = (x ^ (x >> 27)) * kSecond;
  return x ^ (x >> 31);
}

std::uint64_t key_of(const RandomStream& stream) {
  std::uint64_t key = mix(stream.seed + kGolden);
  key = mix(key ^ static_cast<std::uint64_t>(stream.step) * kGolden);
  return mix(key ^ (std::uint64_t{stream.op.value()} + 1) * kGolden);
}

// The upper 53 bits of the hash, as a number of [0, 2^53), are at least this if one keeps.
std::int64_t threshold(double rate) {
  return static_cast<std::int64_t>(std::ceil(rate * 9007199254740992.0));
}

// A slice as blocks of elements that follow one another in the whole too.
struct Blocks {
  std::int64_t count = 0;
  std::int64_t length = 0;  // of the slice's
  std::int64_t stride = 0;  // from one to the next in the whole
  std::int64_t offset = 0;  // of the first in the whole
};

Blocks blocks_of(const std::vector<std::int64_t>& sizes, const Cut& cut) {
  std::int64_t before = 1, after = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) (i < cut.dim ? before : after) *= sizes[i];
  if (sizes.empty() || cut.held == cut.count) return {1, before * after, 0, 0};
  // `after` holds the sliced dimension: outer × (a sample's rows × count), and what lies behind it.
  const std::int64_t sample = after / cut.outer / cut.count;
  ENSURE(sample * cut.outer * cut.count == after);
  return {before * cut.outer, sample * cut.count, sample * cut.held, sample * cut.begin};
}

}  // namespace

at::Tensor keep_mask(const RandomStream& stream, double rate,
                     const std::vector<std::int64_t>& sizes, const Cut& cut, at::Device device) {
  if (!device.is_cpu()) return keep_mask_by_tensors(stream, rate, sizes, cut, device);
  const at::Tensor mask = at::empty(sizes, at::kBool);
  if (mask.numel() == 0) return mask;
  const Blocks blocks = blocks_of(sizes, cut);
  const std::uint64_t key = key_of(stream);
  const auto least = static_cast<std::uint64_t>(threshold(rate));
  bool* out = mask.data_ptr<bool>();
  at::parallel_for(0, mask.numel(), 32768, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t block = i / blocks.length;
      const std::int64_t stop = std::min(end, (block + 1) * blocks.length);
      std::uint64_t index = static_cast<std::uint64_t>(block * blocks.stride + blocks.offset + i -
                                                       block * blocks.length);
      for (; i < stop; ++i, ++index) out[i] = (mix(key + index * kGolden) >> 11) >= least;
    }
  });
  return mask;
}

at::Tensor keep_mask_by_tensors(const RandomStream& stream, double rate,
                                const std::vector<std::int64_t>& sizes, const Cut& cut,
                                at::Device device) {
  const Blocks blocks = blocks_of(sizes, cut);
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const at::Tensor in_block = at::arange(blocks.length, options);
  const at::Tensor block = at::arange(blocks.count, options) * blocks.stride + blocks.offset;
  // Integers of 64 bits wrap around in multiplication and addition, as unsigned ones do.
  const auto number = [](std::uint64_t x) { return static_cast<std::int64_t>(x); };
  const auto shift = [](const at::Tensor& x, std::int64_t by) {
    return x.__rshift__(by).bitwise_and((std::int64_t{1} << (64 - by)) - 1);
  };
  at::Tensor x = (block.unsqueeze(1) + in_block) * number(kGolden) + number(key_of(stream));
  x = x.bitwise_xor(shift(x, 30)) * number(kFirst);
  x = x.bitwise_xor(shift(x, 27)) * number(kSecond);
  x = x.bitwise_xor(shift(x, 31));
  return (shift(x, 11) >= threshold(rate)).view(sizes);
}

}  // namespace heterog::runtime
