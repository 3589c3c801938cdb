// A simulator that has seen a plan once simulates it again without asking for memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "sim/random_plan.h"
#include "sim/simulator.h"

namespace {
std::atomic<long> g_allocations{0};
}

// Every allocation of this program is counted. GCC 12 sees through the first of the two and takes
// the pair for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t size) {
  ++g_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace heterog::sim {
namespace {

TEST(Simulator, AllocatesNothingForAPlanItHasSeen) {
  Rng rng(3);
  for (int i = 0; i < 200; ++i) {
    compiler::Plan plan = random_plan(rng);
    // Who overflows first is found out of line, with memory of its own.
    for (Bytes& capacity : plan.capacity) capacity = 1 << 20;
    for (decide::OrderPolicy order : {decide::OrderPolicy::kRank, decide::OrderPolicy::kFifo}) {
      Simulator simulator;
      const long before_first = g_allocations;
      simulator.simulate(plan, order);
      const long first = g_allocations - before_first;
      simulator.simulate(plan, order);
      EXPECT_GT(first, 0);
      EXPECT_EQ(g_allocations - before_first - first, 0) << "plan " << i;
    }
  }
}

}  // namespace
}  // namespace heterog::sim
