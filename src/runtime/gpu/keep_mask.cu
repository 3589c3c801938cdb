// Which elements dropout keeps, on a GPU: the hash of random.cc, a thread for each element of a block
// at a time. CMake has NVRTC compile it in the preset cuda (cmake/compile_kernels.py); a test runs it on
// the CPU, a thread after the other.
extern "C" __global__ void keep_mask(bool* kept, unsigned long long key, unsigned long long least,
                                     long long blocks, long long length, long long stride,
                                     long long offset) {
  for (long long block = blockIdx.y; block < blocks; block += gridDim.y) {
    const long long first = block * stride + offset;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < length;
         i += (long long)gridDim.x * blockDim.x) {
      unsigned long long x = key + (unsigned long long)(first + i) * 0x9e3779b97f4a7c15ull;
      x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
      x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
      x = x ^ (x >> 31);
      kept[block * length + i] = (x >> 11) >= least;
    }
  }
}
