// Devices that do the same things at the same times: of each such class one is enough to compile
// and to simulate.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cost/problem.h"
#include "decide/layout.h"
#include "decide/strategy.h"

namespace heterog::compiler {

// Classes of devices of which a plan of data parallelism needs one each. In that plan each task of
// a representative stands for the same task of every device of its class, and each collective for
// the collective over all of them.
struct Symmetry {
  std::vector<DeviceId> representatives;  // ascending: of each class the lowest
  std::vector<std::size_t> sizes;         // parallel: devices of the class, itself among them
  IdVector<DeviceId, DeviceId> place_of;  // of every place of the cluster: which representative
                                          // stands for it, by its index
  std::vector<DeviceId> computing;        // who computes, ascending: all collectives are over these

  bool represents(DeviceId place) const {
    return representatives[place_of[place].value()] == place;
  }
  // How many devices stand behind representatives, given by their indices.
  std::size_t count(std::span<const DeviceId> places) const;
};

// The device behind a place of a plan; without a symmetry the plan has all devices.
inline DeviceId device_of(const Symmetry* symmetry, DeviceId place) {
  return symmetry ? symmetry->representatives[place.value()] : place;
}

// Which devices are alike under a strategy, laid out; nothing where that is not certain or saves
// nothing. Devices are alike if they are of one type, have the same memory, and have instances of
// the same sizes, in the same order, in every layout that anything runs in, and as many rows of
// every parameter that is dealt by rows. Where frozen tensors lie in rows, their instances also are
// of the same micro-batches. Then their tasks are the same, with the same priorities
// among those of a device; a class is one orbit of the plan's symmetries, and dispatch follows none
// that is not symmetric. This needs:
//
// - One list of slices for all forward and backward ops, so that no sample moves.
// - No parameter server, so that nothing is pushed or pulled. All collectives are over the same
//   devices then, and run one after the other, whatever links they hold.
// - An order that follows from ranks, times and micro-batches: given priorities name single
//   instances, and tasks between strict turns stand in an order of all devices.
// - No device that moves bytes itself: what a collective costs it depends on its place in the tree.
//
// The device of the first instance has a class of its own: what counts once, it counts. So several
// devices never become one, and what is done for several (a collective) is done.
//
// Emission has the last word (Emission::moves): it finds out if anything has to move after all.
//
// O(devices · layouts).
std::optional<Symmetry> find_symmetry(const cost::Problem& problem,
                                      const decide::Strategy& strategy,
                                      const decide::Layout& layout);

// The layout with the representatives alone, numbered as in `representatives`. Samples that others
// have are nobody's; rows that they have stand behind those of the last representative.
decide::Layout of_representatives(const decide::Layout& layout, const Symmetry& symmetry);

}  // namespace heterog::compiler
