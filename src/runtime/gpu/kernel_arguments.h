// Arguments of our kernels, as both sides of a launch see them: without any other header, for
// NVRTC.
#pragma once

namespace heterog::runtime {

// The rule by which an element is kept: element i of block b lies at b · length + i of the mask,
// and is kept if the upper 53 bits of the hash of `key` and its index, b · stride + offset + i, are
// at least `least`.
struct KeepRule {
  unsigned long long key = 0;
  unsigned long long least = 0;
  long long blocks = 0;
  long long length = 0;
  long long stride = 0;
  long long offset = 0;
};

// How an attention looks: scores are products · scale; the first query at the first key alone, the
// next at one more, if it is causal; weights that stay count `share` times, 1 / (1 − rate).
struct Attended {
  float scale = 1;
  float share = 1;
  bool causal = false;
};

// What stands for each query of each head of each sample: `width` numbers, side by side.
struct Heads {
  long long samples = 0;
  unsigned heads = 0;
  unsigned queries = 0;
  unsigned width = 0;
};

// Elements from one sample, head or query to the next.
struct Strides {
  long long sample = 0;
  long long head = 0;
  long long query = 0;
};

}  // namespace heterog::runtime
