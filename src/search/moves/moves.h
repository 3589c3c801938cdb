// The neighbourhood of local search: which groups to change together, and to what.
#pragma once

#include <array>
#include <vector>

#include "base/rng.h"
#include "search/moves/move.h"
#include "space/group_summary.h"

namespace heterog::search {

// Ways to make a move.
enum class MoveKind : std::uint8_t {
  kOne,        // one group, drawn by its time or its parameters
  kRun,        // neighbours in topological order
  kAlike,      // groups of the same operators and sizes (the layers of a stack), all or a stretch
  kBoundary,   // where two neighbours differ, one side takes some of the other's groups
  kHeaviest,   // the groups with most parameter bytes per second of computation
  kSync,       // parameter server ↔ all-reduce, for a set of groups
  kReweigh,    // samples from one device to another, wherever those shares are used
  kBalance,    // samples from a device that computes for long to one that does not
  kReplace,    // one set of replicas for another, wherever it is used
  kRecompute,  // whether forward passes run again for backward passes, where memory is short
  kSchedule,   // order policy, size of gradient buckets, micro-batches and whose turn it is
};
inline constexpr int kMoveKindCount = 11;
// Those that change all groups of the same shares at once: devices that are alike stay alike, and a
// plan is simulated for one of each class (compiler/symmetry.h).
inline constexpr std::array kMovesTogether = {MoveKind::kReweigh, MoveKind::kBalance,
                                              MoveKind::kReplace, MoveKind::kSchedule};

// Sets of devices worth trying on any cluster.
struct Palette {
  std::vector<Replicas> single;
  // Each machine of several devices: even, proportional, and so that all compute for equally long.
  std::vector<Replicas> machines;
  // The same of all devices, each type of device, and the fastest n types.
  std::vector<Replicas> sets;
};
Palette replica_palette(const cost::Problem& problem);

class MoveMaker {
 public:
  explicit MoveMaker(const cost::Problem& problem);
  // A move that may help. Draws from `rng` only.
  Move propose(const Incumbent& from, MoveKind kind, Rng& rng) const;
  // The strategy after a move. Turns are strict only where dependencies allow it.
  decide::Strategy moved_to(const decide::Strategy& strategy, const Move& move) const;

 private:
  Replicas draw_replicas(const decide::Strategy& strategy, Rng& rng) const;
  const Replicas& draw_palette(Rng& rng) const;
  GroupId draw_group(Rng& rng) const;
  std::vector<GroupId> run_at(std::size_t first, std::size_t length) const;
  std::vector<GroupId> draw_alike(Rng& rng) const;
  Move boundary(const Incumbent& from, Rng& rng) const;
  Move stage_boundary(const Incumbent& from, Rng& rng) const;
  Move toggle_sync(const decide::Strategy& strategy, Rng& rng) const;
  Move reweigh(const Incumbent& from, Rng& rng) const;
  Move recompute(const Incumbent& from, Rng& rng) const;
  Move turns(const decide::Strategy& now, Rng& rng) const;

  const cost::Problem& problem_;
  std::size_t count_;
  space::GroupSummaries groups_;
  std::vector<double> time_sums_;  // running sums over the groups, for drawing
  std::vector<double> parameter_sums_;
  std::vector<std::vector<GroupId>> alike_;  // classes of two or more
  std::vector<GroupId> heaviest_;            // those with parameters, most bytes per second first
  Palette palette_;
};

}  // namespace heterog::search
