// Dropout on a GPU: which elements stay, by the hash of random.cc, and what becomes of the others; and
// the softmax of an attention that drops its weights.
// CMake has NVRTC compile it in the preset cuda (cmake/compile_kernels.py); tests run it on the CPU, a
// thread after the other.
#include "runtime/gpu/kernel_arguments.h"

using heterog::runtime::Attended;
using heterog::runtime::Heads;
using heterog::runtime::KeepRule;
using heterog::runtime::Strides;

// ---- numbers of 16 bits, rounded to the nearest, to even between two ----

struct Half {
  unsigned short bits;
};
struct BFloat16 {
  unsigned short bits;
};

union Single {
  float value;
  unsigned bits;
};

__device__ inline float of_bits(unsigned bits) {
  Single x;
  x.bits = bits;
  return x.value;
}
__device__ inline unsigned bits_of(float value) {
  Single x;
  x.value = value;
  return x.bits;
}

__device__ inline float wide(float x) { return x; }
__device__ inline double wide(double x) { return x; }
__device__ inline float wide(BFloat16 x) { return of_bits((unsigned)x.bits << 16); }
__device__ inline float wide(Half x) {
  const unsigned sign = (x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  // The exponents' biases are 15 and 127. Subnormal numbers too: those are float's, times 2^112.
  return of_bits(sign | bits_of(of_bits(rest << 13) * 0x1p112f));
}

__device__ inline void set(float& to, float x) { to = x; }
__device__ inline void set(double& to, double x) { to = x; }
__device__ inline void set(BFloat16& to, float x) {
  const unsigned bits = bits_of(x);
  to.bits = x != x ? 0x7fc0 : (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
__device__ inline void set(Half& to, float x) {
  const unsigned bits = bits_of(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  unsigned made;
  if (rest > 0x7f800000u) {
    made = 0x7e00u;  // no number
  } else if (rest >= 0x477ff000u) {
    made = 0x7c00u;  // from 65520 on
  } else if (rest < 0x38800000u) {
    // Below 2^-14: steps of 2^-24, as numbers from 1/2 to 1 have them.
    made = bits_of(of_bits(rest) + 0.5f) - 0x3f000000u;
  } else {
    made = (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13;
  }
  to.bits = (unsigned short)(sign | made);
}

// ---- elements and their places ----

__device__ inline bool stays(const KeepRule& rule, long long index) {
  unsigned long long x = rule.key + (unsigned long long)index * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x = x ^ (x >> 31);
  return (x >> 11) >= rule.least;
}

// Calls with(i, whether element i of the mask stays).
template <class With>
__device__ inline void for_each_element(const KeepRule& rule, const With& with) {
  for (long long block = blockIdx.y; block < rule.blocks; block += gridDim.y) {
    const long long first = block * rule.stride + rule.offset;
#ifdef __CUDA_ARCH__
#pragma unroll 4
#endif
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < rule.length;
         i += (long long)gridDim.x * blockDim.x) {
      with(block * rule.length + i, stays(rule, first + i));
    }
  }
}

// Threads that share a row: those of a warp. On the CPU, where a thread runs after the other, one
// has a row to itself.
#ifdef __CUDA_ARCH__
constexpr unsigned kLanes = 32;
__device__ inline float from_lane(float x, unsigned distance) {
  return __shfl_xor_sync(0xffffffffu, x, distance);
}
#else
constexpr unsigned kLanes = 1;
__device__ inline float from_lane(float x, unsigned) { return x; }
#endif

__device__ inline float sum_of_lanes(float x) {
  for (unsigned distance = kLanes / 2; distance > 0; distance /= 2) x += from_lane(x, distance);
  return x;
}
__device__ inline float most_of_lanes(float x) {
  for (unsigned distance = kLanes / 2; distance > 0; distance /= 2) {
    const float other = from_lane(x, distance);
    x = other > x ? other : x;
  }
  return x;
}

// A query's row of [samples, heads, queries, keys]; `index`: as rows are counted there.
struct Row {
  long long sample;
  unsigned head, query;
  long long index;

  __device__ long long in(const Strides& by) const {
    return sample * by.sample + head * by.head + query * by.query;
  }
};

template <class With>
__device__ inline void for_each_row(const Heads& of, const With& with) {
  const long long rows = of.samples * of.heads * of.queries;
  const long long step = (long long)gridDim.x * blockDim.x / kLanes;
  for (long long i = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / kLanes; i < rows;
       i += step) {
    const long long plane = i / of.queries, sample = plane / of.heads;
    with(Row{sample, (unsigned)(plane - sample * of.heads), (unsigned)(i - plane * of.queries), i});
  }
}

// ---- kernels, for each type of number ----

// out = x · (1 or 0) · scale, as the two products are rounded.
template <class T, class Scale>
__device__ inline void drop(T* __restrict__ out, bool* __restrict__ kept, const T* __restrict__ x,
                            Scale scale, const KeepRule& rule) {
  for_each_element(rule, [&](long long i, bool stay) {
    kept[i] = stay;
    set(out[i], wide(x[i]) * (stay ? 1 : 0) * scale);
  });
}

// What a softmax is taken of: products of a query and its keys, scaled, with what is added to them.
template <class T>
struct Scores {
  const float* products;  // of this row
  const T* bias;          // or null
  float scale;
  unsigned last;  // key that the query may look at

  __device__ float operator()(unsigned key) const {
    if (key > last) return of_bits(0xff800000u);
    const float x = products[key] * scale;
    return bias ? x + wide(bias[key]) : x;
  }
};

template <class T>
__device__ inline Scores<T> scores_of(const Row& row, const float* products, const T* bias,
                                      const Attended& how, const Heads& of, const Strides& from) {
  return {products + row.index * of.width, bias ? bias + row.in(from) : bias, how.scale,
          how.causal ? row.query : of.width};
}

// Of a query that looks at nothing, whose sum's logarithm is −∞: its weights are 0.
__device__ inline float finite(float log_sum) {
  return log_sum == of_bits(0xff800000u) ? 0.f : log_sum;
}

// Row by row: logarithms of the sums of exp(score), and the weights that stay times how.share.
template <class T>
__device__ inline void drop_weights(T* used, float* log_sums, const float* products, const T* bias,
                                    const Attended& how, const KeepRule& rule, const Heads& of,
                                    const Strides& from) {
  const unsigned lane = threadIdx.x % kLanes;
  for_each_row(of, [&](const Row& row) {
    const Scores<T> score = scores_of(row, products, bias, how, of, from);
    float most = of_bits(0xff800000u), sum = 0;
    for (unsigned i = lane; i < of.width; i += kLanes) {
      const float x = score(i);
      most = x > most ? x : most;
    }
    most = finite(most_of_lanes(most));
    for (unsigned i = lane; i < of.width; i += kLanes) sum += expf(score(i) - most);
    const float log_sum = most + logf(sum_of_lanes(sum));
    if (lane == 0) log_sums[row.index] = log_sum;
    const long long first = row.index * of.width;
    for (unsigned i = lane; i < of.width; i += kLanes) {
      set(used[first + i], stays(rule, rule.offset + first + i)
                               ? expf(score(i) - finite(log_sum)) * how.share
                               : 0.f);
    }
  });
}

// The weights again, and the gradient of products from that of `used` (Dao et al. 2022, appendix
// B): P ∘ (D ∘ to_used − δ) · scale, with δ the sum of P ∘ D ∘ to_used over a row.
template <class T>
__device__ inline void drop_weights_backward(T* used, T* to_products, const float* products,
                                             const float* to_used, const float* log_sums,
                                             const T* bias, const Attended& how,
                                             const KeepRule& rule, const Heads& of,
                                             const Strides& from, const Strides& sums) {
  const unsigned lane = threadIdx.x % kLanes;
  for_each_row(of, [&](const Row& row) {
    const Scores<T> score = scores_of(row, products, bias, how, of, from);
    const float log_sum = finite(log_sums[row.in(sums)]);
    const long long first = row.index * of.width;
    float shared = 0;
    for (unsigned i = lane; i < of.width; i += kLanes) {
      const float weight = expf(score(i) - log_sum);
      const float kept = stays(rule, rule.offset + first + i) ? weight * how.share : 0.f;
      set(used[first + i], kept);
      shared += kept * to_used[first + i];
    }
    shared = sum_of_lanes(shared);
    for (unsigned i = lane; i < of.width; i += kLanes) {
      const float weight = expf(score(i) - log_sum);
      const float keeps = stays(rule, rule.offset + first + i) ? how.share : 0.f;
      set(to_products[first + i], weight * (keeps * to_used[first + i] - shared) * how.scale);
    }
  });
}

extern "C" __global__ void keep_mask(bool* kept, KeepRule rule) {
  for_each_element(rule, [&](long long i, bool stay) { kept[i] = stay; });
}

extern "C" __global__ void drop_float64(double* out, bool* kept, const double* x, double scale,
                                        KeepRule rule) {
  drop(out, kept, x, scale, rule);
}

#define HETEROG_KERNELS(T, name)                                                                   \
  extern "C" __global__ void drop_##name(T* out, bool* kept, const T* x, double scale,             \
                                         KeepRule rule) {                                          \
    drop(out, kept, x, (float)scale, rule);                                                        \
  }                                                                                                \
  extern "C" __global__ void drop_weights_##name(                                                  \
      T* used, float* log_sums, const float* products, const T* bias, Attended how, KeepRule rule, \
      Heads of, Strides from) {                                                                    \
    drop_weights(used, log_sums, products, bias, how, rule, of, from);                             \
  }                                                                                                \
  extern "C" __global__ void drop_weights_backward_##name(                                         \
      T* used, T* to_products, const float* products, const float* to_used, const float* log_sums, \
      const T* bias, Attended how, KeepRule rule, Heads of, Strides from, Strides sums) {          \
    drop_weights_backward(used, to_products, products, to_used, log_sums, bias, how, rule, of,     \
                          from, sums);                                                             \
  }

HETEROG_KERNELS(float, float32)
HETEROG_KERNELS(Half, float16)
HETEROG_KERNELS(BFloat16, bfloat16)
