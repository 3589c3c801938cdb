// Choice of the algorithm of an all-reduce. The runtime runs it, and the formulas cost it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace heterog::cost {

enum class AllReduceAlgorithm : std::uint8_t {
  kRing,      // 2(n−1) steps, in each of which every device passes 1/n of the bytes on
  kTree,      // up a binomial tree and down again: 2·log2(n) steps, each of all bytes
  kExchange,  // everyone sends everyone all bytes, in one step
};

// The algorithm of an all-reduce among `devices` members, 2 or more. A ring moves the fewest bytes
// and takes the most steps, so small messages go another way: among few in one step, among many by
// a tree. Between two an exchange moves as many bytes as a ring; but each of them sums all, which
// costs more from some size on.
//
// The bounds follow from steps of 11 us and 1.15 GB/s, where a tree and a ring meet at about 2 KiB
// a member.
constexpr AllReduceAlgorithm all_reduce_algorithm(std::size_t devices, Bytes bytes) {
  constexpr Bytes kExchangedByTwo = Bytes{1} << 20;
  constexpr Bytes kExchangedByFew = Bytes{32} << 10;
  constexpr std::size_t kFew = 4;
  constexpr Bytes kTreeBytesOfMember = Bytes{2} << 10;
  if (devices == 2 && bytes <= kExchangedByTwo) return AllReduceAlgorithm::kExchange;
  if (devices <= kFew && bytes <= kExchangedByFew) return AllReduceAlgorithm::kExchange;
  if (devices > kFew && bytes <= kTreeBytesOfMember * static_cast<Bytes>(devices)) {
    return AllReduceAlgorithm::kTree;
  }
  return AllReduceAlgorithm::kRing;
}

// The binomial tree over members 0 to n − 1, with 0 at its root: how far from its parent member i
// hangs, a power of two (of the root: 0). It takes part in the step of that reach, and its children
// are i + 1, i + 2, i + 4 … below it.
constexpr std::size_t tree_reach(std::size_t member) { return member & (~member + 1); }

}  // namespace heterog::cost
