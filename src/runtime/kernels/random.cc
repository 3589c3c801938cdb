// A hash of (seed, step, op, index) in place of a generator with a state.
#include "runtime/kernels/random.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "base/check.h"
#include "runtime/gpu/dropout_on_gpu.h"
#include "runtime/kernels/variates.h"

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

// A second hash of an index, for numbers that need two.
std::uint64_t second_key_of(const RandomStream& stream) { return mix(key_of(stream) ^ kFirst); }

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

// Calls set(i, index) for every element i of the slice, `index` being its place in the whole.
template <class Set>
void for_each_index(std::int64_t elements, const Blocks& blocks, const Set& set) {
  at::parallel_for(0, elements, 32768, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t block = i / blocks.length;
      const std::int64_t stop = std::min(end, (block + 1) * blocks.length);
      std::uint64_t index = static_cast<std::uint64_t>(block * blocks.stride + blocks.offset + i -
                                                       block * blocks.length);
      for (; i < stop; ++i, ++index) set(i, index);
    }
  });
}

// Integers of 64 bits wrap around in multiplication and addition, as unsigned ones do.
std::int64_t number(std::uint64_t x) { return static_cast<std::int64_t>(x); }

at::Tensor shift(const at::Tensor& x, std::int64_t by) {
  return x.__rshift__(by).bitwise_and((std::int64_t{1} << (64 - by)) - 1);
}

// The hashes of a slice's indices, of which there may be none.
at::Tensor hashes(std::uint64_t key, const Blocks& blocks, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const at::Tensor in_block = at::arange(blocks.length, options);
  const at::Tensor block = at::arange(blocks.count, options) * blocks.stride + blocks.offset;
  at::Tensor x = (block.unsqueeze(1) + in_block) * number(kGolden) + number(key);
  x = x.bitwise_xor(shift(x, 30)) * number(kFirst);
  x = x.bitwise_xor(shift(x, 27)) * number(kSecond);
  return x.bitwise_xor(shift(x, 31));
}

// In (0, 1): an odd multiple of 2⁻⁵³, which a double holds.
double inside(std::uint64_t hash) {
  return variates::as_double(number(hash >> 12) * 2 + 1) * 0x1p-53;
}
at::Tensor inside(const at::Tensor& hash) {
  return variates::as_double(shift(hash, 12) * 2 + 1) * 0x1p-53;
}
// In [0, 1): a multiple of 2^−digits.
double digits_of(std::uint64_t hash, int digits) {
  return variates::as_double(number(hash >> (64 - digits))) * std::ldexp(1.0, -digits);
}
at::Tensor digits_of(const at::Tensor& hash, int digits) {
  return variates::as_double(shift(hash, 64 - digits)) * std::ldexp(1.0, -digits);
}

double same_kind(std::uint64_t, double x) { return x; }
at::Tensor same_kind(const at::Tensor& hash, double x) {
  return at::full({}, x, hash.options().dtype(at::kDouble));
}

// Calls with(f), f making an element's number out of its hash and a function that gives the second.
template <class With>
void with_formula(const Law& law, const With& with) {
  using Kind = Law::Kind;
  const double a = law.a, b = law.b;
  const auto normal = [](const auto& hash, const auto& second) {
    return variates::normal(inside(hash), inside(second()));
  };
  switch (law.kind) {
    case Kind::kUniform: {
      const int digits = law.digits;
      return with(
          [=](const auto& hash, const auto&) { return digits_of(hash, digits) * (b - a) + a; });
    }
    case Kind::kNormal:
      return with(
          [=](const auto& hash, const auto& second) { return normal(hash, second) * b + a; });
    case Kind::kExponential:
      return with([=](const auto& hash, const auto&) {
        return variates::exponential(inside(hash)) / same_kind(hash, a);
      });
    case Kind::kLogNormal:
      return with([=](const auto& hash, const auto& second) {
        return variates::exponential_function(decltype(inside(hash))(normal(hash, second) * b + a));
      });
    case Kind::kGeometric: {
      const double log_miss = std::log1p(-a);
      return with([=](const auto& hash, const auto&) {
        return variates::geometric(inside(hash), same_kind(hash, log_miss));
      });
    }
    case Kind::kCauchy:
      return with(
          [=](const auto& hash, const auto&) { return variates::cauchy(inside(hash)) * b + a; });
  }
  EXPECT(false);
}

}  // namespace

KeepRule keep_rule(const RandomStream& stream, double rate, const std::vector<std::int64_t>& sizes,
                   const Cut& cut) {
  const Blocks blocks = blocks_of(sizes, cut);
  return {key_of(stream), static_cast<std::uint64_t>(threshold(rate)),
          blocks.count,   blocks.length,
          blocks.stride,  blocks.offset};
}

at::Tensor keep_mask(const RandomStream& stream, double rate,
                     const std::vector<std::int64_t>& sizes, const Cut& cut, at::Device device) {
  const at::Tensor mask = at::empty(sizes, at::TensorOptions().dtype(at::kBool).device(device));
  if (mask.numel() == 0) return mask;
  const KeepRule rule = keep_rule(stream, rate, sizes, cut);
  if (!device.is_cpu()) {
    return fill_kept_on_gpu(mask, rule) ? mask
                                        : keep_mask_by_tensors(stream, rate, sizes, cut, device);
  }
  bool* out = mask.data_ptr<bool>();
  for_each_index(mask.numel(), blocks_of(sizes, cut), [&](std::int64_t i, std::uint64_t index) {
    out[i] = (mix(rule.key + index * kGolden) >> 11) >= rule.least;
  });
  return mask;
}

at::Tensor keep_mask_by_tensors(const RandomStream& stream, double rate,
                                const std::vector<std::int64_t>& sizes, const Cut& cut,
                                at::Device device) {
  const at::Tensor hash = hashes(key_of(stream), blocks_of(sizes, cut), device);
  return (shift(hash, 11) >= threshold(rate)).view(sizes);
}

at::Tensor random_numbers(const RandomStream& stream, const Law& law,
                          const std::vector<std::int64_t>& sizes, const Cut& cut,
                          at::Device device) {
  if (!device.is_cpu()) return random_numbers_by_tensors(stream, law, sizes, cut, device);
  const at::Tensor numbers = at::empty(sizes, at::kDouble);
  if (numbers.numel() == 0) return numbers;
  const std::uint64_t first = key_of(stream), second = second_key_of(stream);
  auto* out = numbers.data_ptr<double>();
  with_formula(law, [&](const auto& formula) {
    for_each_index(
        numbers.numel(), blocks_of(sizes, cut), [&](std::int64_t i, std::uint64_t index) {
          out[i] =
              formula(mix(first + index * kGolden), [&] { return mix(second + index * kGolden); });
        });
  });
  return numbers;
}

at::Tensor random_numbers_by_tensors(const RandomStream& stream, const Law& law,
                                     const std::vector<std::int64_t>& sizes, const Cut& cut,
                                     at::Device device) {
  if (c10::multiply_integers(sizes) == 0) {
    return at::empty(sizes, at::TensorOptions().dtype(at::kDouble).device(device));
  }
  const Blocks blocks = blocks_of(sizes, cut);
  at::Tensor numbers;
  with_formula(law, [&](const auto& formula) {
    numbers = formula(hashes(key_of(stream), blocks, device),
                      [&] { return hashes(second_key_of(stream), blocks, device); });
  });
  return numbers.view(sizes);
}

at::Tensor random_integers(const RandomStream& stream, const Range& range,
                           const std::vector<std::int64_t>& sizes, const Cut& cut,
                           at::Device device) {
  if (!device.is_cpu()) return random_integers_by_tensors(stream, range, sizes, cut, device);
  const at::Tensor numbers = at::empty(sizes, at::kLong);
  if (numbers.numel() == 0) return numbers;
  const std::uint64_t key = key_of(stream);
  auto* out = numbers.data_ptr<std::int64_t>();
  for_each_index(numbers.numel(), blocks_of(sizes, cut), [&](std::int64_t i, std::uint64_t index) {
    out[i] = range.low + number((mix(key + index * kGolden) >> 1) % range.count);
  });
  return numbers;
}

at::Tensor random_integers_by_tensors(const RandomStream& stream, const Range& range,
                                      const std::vector<std::int64_t>& sizes, const Cut& cut,
                                      at::Device device) {
  if (c10::multiply_integers(sizes) == 0) {
    return at::empty(sizes, at::TensorOptions().dtype(at::kLong).device(device));
  }
  at::Tensor numbers = shift(hashes(key_of(stream), blocks_of(sizes, cut), device), 1);
  // 63 random bits are below the largest count as they are.
  if (number(range.count) > 0) numbers = numbers.remainder(number(range.count));
  return (numbers + range.low).view(sizes);
}

at::Tensor random_order(const RandomStream& stream, std::int64_t count, at::Device device) {
  if (count == 0) return at::empty({0}, at::TensorOptions().dtype(at::kLong).device(device));
  const at::Tensor hash = hashes(key_of(stream), {1, count, 0, 0}, device).flatten();
  return hash.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
}

}  // namespace heterog::runtime
