// Numbers of a distribution out of random bits, for one element (double) or a tensor of them.
//
// Written in additions, subtractions, products, quotients and the bits of doubles alone, each of
// which IEEE 754 rounds in one way: processors, compilers and libraries of mathematics agree on
// every bit, where their logarithms, cosines and even square roots of tensors do not. Quotients are
// of two tensors, as that of a tensor and a number may be a product with a rounded reciprocal.
#pragma once

#include <ATen/ATen.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace heterog::runtime::variates {

inline std::int64_t bits_of(double x) { return std::bit_cast<std::int64_t>(x); }
inline at::Tensor bits_of(const at::Tensor& x) { return x.view(at::kLong); }
inline double from_bits(std::int64_t bits) { return std::bit_cast<double>(bits); }
inline at::Tensor from_bits(const at::Tensor& bits) { return bits.view(at::kDouble); }
inline double as_double(std::int64_t x) { return static_cast<double>(x); }
inline at::Tensor as_double(const at::Tensor& x) { return x.to(at::kDouble); }
inline std::int64_t floor_of(double x) { return static_cast<std::int64_t>(std::floor(x)); }
inline at::Tensor floor_of(const at::Tensor& x) { return x.floor().to(at::kLong); }
inline double ceiling(double x) { return std::ceil(x); }
inline at::Tensor ceiling(const at::Tensor& x) { return x.ceil(); }
inline std::int64_t halved(std::int64_t x, int times) { return x >> times; }
inline at::Tensor halved(const at::Tensor& x, int times) { return x.__rshift__(times); }
inline double choose(bool which, double a, double b) { return which ? a : b; }
inline at::Tensor choose(const at::Tensor& which, const at::Tensor& a, const at::Tensor& b) {
  return at::where(which, a, b);
}
inline double between(double x, double low, double high) {
  return std::min(std::max(x, low), high);
}
inline at::Tensor between(const at::Tensor& x, double low, double high) {
  return x.clamp(low, high);
}

inline constexpr std::int64_t kExponent = std::int64_t{1} << 52;  // 1 in the exponent of a double
inline constexpr double kPi = 3.14159265358979323846;
// ln 2 in two parts, the first of so few bits that its multiples by exponents are exact.
inline constexpr double kLn2High = 0x1.62e42feep-1;
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// first + x·(second + x·(…)): Horner's scheme.
template <class Real, std::size_t count>
Real polynomial(const Real& x, const double (&factors)[count]) {
  Real sum = x * factors[count - 1] + factors[count - 2];
  for (std::size_t i = count - 2; i-- > 0;) sum = sum * x + factors[i];
  return sum;
}

// Heron's method, from half the exponent: 6 % off, then 2·10⁻³, 2·10⁻⁶, 2·10⁻¹², and rounding.
template <class Real>
Real root(const Real& x) {
  Real guess = from_bits(halved(bits_of(x), 1) + bits_of(1.0) / 2);
  for (int i = 0; i < 4; ++i) guess = (guess + x / guess) * 0.5;
  return guess;
}

// Natural logarithm of x in [2⁻¹⁰²², 1]. x = 2^k·m with m in [√½, √2), and ln m = 2·artanh((m − 1)
// / (m + 1)), a series in which s² ≤ 0.0295: the terms left out are below 2⁻⁵⁷ of the first.
template <class Real>
Real logarithm(const Real& x) {
  const auto k = halved(bits_of(x) - bits_of(0.70710678118654752), 52);
  const Real m = from_bits(bits_of(x) - k * kExponent);
  const Real s = (m - 1.0) / (m + 1.0);
  static constexpr double kSeries[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9, 2.0 / 11,
                                       2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  return as_double(k) * kLn2High + (s * polynomial(Real(s * s), kSeries) + as_double(k) * kLn2Low);
}

// e^x = 2^k·e^r with |r| ≤ ½ ln 2, by the series to r¹⁴. What a double cannot hold ends at e^±708.
template <class Real>
Real exponential_function(const Real& given) {
  const Real x = between(given, -708.0, 708.0);
  const auto k = floor_of(x * 1.44269504088896341 + 0.5);
  const Real r = (x - as_double(k) * kLn2High) - as_double(k) * kLn2Low;
  static constexpr double kSeries[] = {1.0,
                                       1.0,
                                       1.0 / 2,
                                       1.0 / 6,
                                       1.0 / 24,
                                       1.0 / 120,
                                       1.0 / 720,
                                       1.0 / 5040,
                                       1.0 / 40320,
                                       1.0 / 362880,
                                       1.0 / 3628800,
                                       1.0 / 39916800,
                                       1.0 / 479001600,
                                       1.0 / 6227020800,
                                       1.0 / 87178291200};
  return polynomial(r, kSeries) * from_bits((k + 1023) * kExponent);
}

// Sines and cosines of angles up to π/4, by their series to x¹⁷ and x¹⁶.
template <class Real>
Real sine(const Real& x) {
  static constexpr double kSeries[] = {1.0,
                                       -1.0 / 6,
                                       1.0 / 120,
                                       -1.0 / 5040,
                                       1.0 / 362880,
                                       -1.0 / 39916800,
                                       1.0 / 6227020800,
                                       -1.0 / 1307674368000,
                                       1.0 / 355687428096000};
  return x * polynomial(Real(x * x), kSeries);
}
template <class Real>
Real cosine(const Real& x) {
  static constexpr double kSeries[] = {1.0,
                                       -1.0 / 2,
                                       1.0 / 24,
                                       -1.0 / 720,
                                       1.0 / 40320,
                                       -1.0 / 3628800,
                                       1.0 / 479001600,
                                       -1.0 / 87178291200,
                                       1.0 / 20922789888000};
  return polynomial(Real(x * x), kSeries);
}

// cos 2πu of u in [0, 1]: the nearest quarter of a turn, and what is left, at most an eighth.
template <class Real>
Real cosine_of_turn(const Real& u) {
  const auto quarter = floor_of(u * 4.0 + 0.5);  // 0 … 4
  const Real left = (u - as_double(quarter) * 0.25) * (2 * kPi);
  const Real value = choose((quarter & 1) == 1, sine(left), cosine(left));
  return choose(quarter == 1, Real(-value), choose(quarter == 2, Real(-value), value));
}

// tan πt of t in (−½, ½), from the nearer of 0 and ±½.
template <class Real>
Real tangent_of_half_turns(const Real& t) {
  const Real size = choose(t < 0.0, Real(-t), t);
  const Real near = choose(size > 0.25, Real((0.5 - size) * kPi), Real(size * kPi));
  const Real s = sine(near), c = cosine(near);
  const Real value = choose(size > 0.25, Real(c / s), Real(s / c));
  return choose(t < 0.0, Real(-value), value);
}

// ---- numbers out of u and v, each uniform in (0, 1) ----

// Box and Muller (1958): √(−2 ln u)·cos 2πv is normal.
template <class Real>
Real normal(const Real& u, const Real& v) {
  return root(Real(logarithm(u) * -2.0)) * cosine_of_turn(v);
}

// −ln(1 − u) has the distribution function 1 − e^−x, and 1 − u is as uniform as u.
template <class Real>
Real exponential(const Real& u) {
  return -logarithm(u);
}

// The least k with 1 − (1 − p)^k ≥ u; `log_miss`: ln(1 − p), below 0.
template <class Real>
Real geometric(const Real& u, const Real& log_miss) {
  return between(ceiling(Real(logarithm(u) / log_miss)), 1.0, 9007199254740992.0);
}

// The inverse of the distribution function ½ + arctan(x) / π.
template <class Real>
Real cauchy(const Real& u) {
  return tangent_of_half_turns(Real(u - 0.5));
}

}  // namespace heterog::runtime::variates
