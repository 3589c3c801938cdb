// Every placement of a few units, each on one device: what placements of operators are measured
// against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "search/engines/best_so_far.h"

namespace heterog::search {

enum class ExactOrders : std::uint8_t {
  kRank,  // tasks by rank
  kAll,   // and in every order of each device's forward and backward operators, as priorities
};

// At most so many placements: 12 units on 3 devices.
inline constexpr std::size_t kMostPlacements = 531'441;

// Asks `best` about all placements of the sets of operators that stay together (placement_graph.h,
// the backward pass with the forward pass) or, of more than 12, of at most `units` stretches of
// layers. Branch and bound by what each device computes. An order is one sequence of all operators
// that keeps to what they read, updates last; sequences that differ in neighbours of different
// devices are one. One is left where even free links would make it no better.
// Returns what it looked at. Throws an input error for more placements than the most.
std::string try_all_ops(BestSoFar& best, std::size_t units, ExactOrders orders);

}  // namespace heterog::search
