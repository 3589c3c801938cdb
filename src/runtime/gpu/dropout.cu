// Dropout on a GPU: which elements stay, by the hash of random.cc, and what becomes of the others.
// CMake has NVRTC compile it in the preset cuda (cmake/compile_kernels.py); tests run it on the CPU, a
// thread after the other.
#include "runtime/gpu/kernel_arguments.h"

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
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < rule.length;
         i += (long long)gridDim.x * blockDim.x) {
      with(block * rule.length + i, stays(rule, first + i));
    }
  }
}

// A place among [samples, heads, queries, width]; `row` and `index`: as they are counted there.
struct Place {
  long long sample;
  unsigned head, query, column;
  long long row, index;

  __device__ long long in(const Strides& by) const {
    return sample * by.sample + head * by.head + query * by.query;
  }
};

// Rows of the grid go to heads. What one head has fits 32 bits (dropout_on_gpu.cc).
template <class With>
__device__ inline void for_each_place(const Heads& of, const With& with) {
  const unsigned size = of.queries * of.width;
  for (long long plane = blockIdx.y; plane < of.samples * of.heads; plane += gridDim.y) {
    const long long sample = plane / of.heads;
    const unsigned head = (unsigned)(plane - sample * of.heads);
    for (unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
         at < size; at += (unsigned long long)gridDim.x * blockDim.x) {
      const unsigned i = (unsigned)at, query = i / of.width;
      with(Place{sample, head, query, i - query * of.width, plane * of.queries + query,
                 plane * size + i});
    }
  }
}

// ---- kernels, for each type of number ----

// out = x · (1 or 0) · scale, as the two products are rounded.
template <class T, class Scale>
__device__ inline void drop(T* out, bool* kept, const T* x, Scale scale, const KeepRule& rule) {
  for_each_element(rule, [&](long long i, bool stay) {
    kept[i] = stay;
    set(out[i], wide(x[i]) * (stay ? 1 : 0) * scale);
  });
}

// What is added to the scores: −∞ where a weight is dropped, else the bias, if there is one.
template <class T>
__device__ inline void bias_of_kept(T* out, const T* bias, const KeepRule& rule, const Heads& of,
                                    const Strides& to, const Strides& from) {
  for_each_place(of, [&](const Place& at) {
    T& made = out[at.in(to) + at.column];
    if (!stays(rule, rule.offset + at.index)) {
      set(made, of_bits(0xff800000u));
    } else if (bias) {
      made = bias[at.in(from) + at.column];
    } else {
      set(made, 0.f);
    }
  });
}

// What a query's weights that stay are together, of what all are, over 1 − rate
// (fused_attention.h): 0 where none stays or nothing is looked at.
__device__ inline float share(float kept, float all, float log_rate) {
  return expf(kept - all - log_rate);
}

// result · share, 0 where nothing stays: the kernel of attention has no number there.
template <class T>
__device__ inline void weigh_result(T* result, const float* kept, const float* all, float log_rate,
                                    float least, const Heads& of, const Strides& lies,
                                    const Strides& sums_of_kept, const Strides& sums) {
  for_each_place(of, [&](const Place& at) {
    T& value = result[at.in(lies) + at.column];
    const float of_all = all[at.in(sums)];
    const float c = share(kept[at.in(sums_of_kept)], of_all < least ? least : of_all, log_rate);
    set(value, c == 0 ? 0.f : wide(value) * c);
  });
}

__device__ inline float without_minus_infinity(float sum) {
  return sum == of_bits(0xff800000u) ? of_bits(0x7f800000u) : sum;
}

// gradient · share, and both sums with +∞ in place of −∞, row by row.
template <class T>
__device__ inline void weigh_gradient(T* weighed, float* kept_out, float* all_out,
                                      const T* gradient, const float* kept, const float* all,
                                      float log_rate, const Heads& of, const Strides& to,
                                      const Strides& from, const Strides& sums_of_kept,
                                      const Strides& sums) {
  for_each_place(of, [&](const Place& at) {
    const float of_kept = kept[at.in(sums_of_kept)];
    const float of_all = without_minus_infinity(all[at.in(sums)]);
    if (at.column == 0) {
      kept_out[at.row] = without_minus_infinity(of_kept);
      all_out[at.row] = of_all;
    }
    set(weighed[at.in(to) + at.column],
        wide(gradient[at.in(from) + at.column]) * share(of_kept, of_all, log_rate));
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
  extern "C" __global__ void bias_of_kept_##name(T* out, const T* bias, KeepRule rule, Heads of,   \
                                                 Strides to, Strides from) {                       \
    bias_of_kept(out, bias, rule, of, to, from);                                                   \
  }                                                                                                \
  extern "C" __global__ void weigh_result_##name(T* result, const float* kept, const float* all,   \
                                                 float log_rate, float least, Heads of,            \
                                                 Strides lies, Strides sums_of_kept,               \
                                                 Strides sums) {                                   \
    weigh_result(result, kept, all, log_rate, least, of, lies, sums_of_kept, sums);                \
  }                                                                                                \
  extern "C" __global__ void weigh_gradient_##name(                                                \
      T* weighed, float* kept_out, float* all_out, const T* gradient, const float* kept,           \
      const float* all, float log_rate, Heads of, Strides to, Strides from, Strides sums_of_kept,  \
      Strides sums) {                                                                              \
    weigh_gradient(weighed, kept_out, all_out, gradient, kept, all, log_rate, of, to, from,        \
                   sums_of_kept, sums);                                                            \
  }

HETEROG_KERNELS(float, float32)
HETEROG_KERNELS(Half, float16)
HETEROG_KERNELS(BFloat16, bfloat16)
