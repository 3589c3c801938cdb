// A CPU allocator for scripts/fuzz/operators.py: whatever touches memory beside a tensor dies at
// once.
//
// Every tensor has pages of its own. Their neighbours cannot be touched, and either the end or the
// beginning of the tensor lies at such a neighbour. What alignment leaves between the end and the
// neighbour holds a canary, which is looked at when the tensor is freed.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 16;  // of complex<double>, the largest element
constexpr unsigned char kCanary = 0xA5;

bool at_end = true;
std::size_t most_bytes = std::size_t{1} << 30;

struct Block {
  unsigned char* pages;  // the guard before them is not counted
  std::size_t page_bytes;
  unsigned char* data;
  std::size_t bytes;
};

std::mutex mutex;
std::unordered_map<void*, Block> blocks;  // by their data

bool canary_lives(const unsigned char* from, const unsigned char* to) {
  for (; from != to; ++from) {
    if (*from != kCanary) return false;
  }
  return true;
}

void free_block(void* data) {
  if (!data) return;
  const std::lock_guard lock(mutex);
  const Block block = blocks.at(data);
  blocks.erase(data);
  const unsigned char* end = block.pages + block.page_bytes;
  // SIGILL, which nothing else raises.
  if (!canary_lives(block.pages, block.data)) __builtin_trap();
  if (!canary_lives(block.data + block.bytes, end)) __builtin_trap();
  munmap(block.pages - kPage, block.page_bytes + 2 * kPage);
}

class GuardAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, free_block, c10::Device(c10::kCPU)};
    TORCH_CHECK(bytes <= most_bytes, "guard allocator: ", bytes, " bytes are too many");
    const std::size_t page_bytes = (bytes + kPage - 1) / kPage * kPage;
    void* all = mmap(nullptr, page_bytes + 2 * kPage, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(all != MAP_FAILED, "guard allocator: no memory");
    auto* pages = static_cast<unsigned char*>(all) + kPage;
    TORCH_CHECK(mprotect(pages, page_bytes, PROT_READ | PROT_WRITE) == 0,
                "guard allocator: no memory");
    unsigned char* data = at_end ? pages + (page_bytes - bytes) / kAlignment * kAlignment : pages;
    std::memset(pages, kCanary, static_cast<std::size_t>(data - pages));
    std::memset(data + bytes, kCanary, static_cast<std::size_t>(pages + page_bytes - data) - bytes);
    const std::lock_guard lock(mutex);
    blocks[data] = {pages, page_bytes, data, bytes};
    return {data, data, free_block, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_block; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

// The allocator of all tensors from now on.
extern "C" void guard_tensors() {
  static GuardAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/255);
}
extern "C" void guard_end(bool end) { at_end = end; }
