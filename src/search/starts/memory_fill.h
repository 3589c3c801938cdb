// Plans for models too large for plain data parallelism: blocks of layers on sets of devices, each
// device with as many samples as its memory holds.
#pragma once

#include <optional>
#include <vector>

#include "decide/strategy.h"
#include "search/planner.h"
#include "space/group_summary.h"

namespace heterog::search {

// Consecutive blocks of groups, the b-th on the b-th set of devices, every set sharing the batch.
struct BlockTemplate {
  std::vector<std::vector<DeviceId>> blocks;
  decide::SyncMethod sync = decide::SyncMethod::kAllReduce;
  // Each block takes as much as its devices hold (the last ones may stay empty); else all are
  // filled to the same share of their memory.
  bool fill_first = false;
};

// One block on all devices and on the faster ones; blocks of like mixtures of devices; one per
// machine, type and device; each forwards and backwards.
std::vector<BlockTemplate> block_templates(const cost::Problem& problem);

struct FilledBlocks {
  decide::Strategy strategy;
  double seconds = 0;  // rough: computation and aggregation of the blocks, one after another
  IdVector<DeviceId, double> bytes;  // by the estimate, without what a device reserves
};

// Cuts the groups into the template's blocks so that every device stays below `budget` bytes, by an
// estimate of what it keeps, and shares the batch of a block for the least time. Empty if that
// cannot be done.
std::optional<FilledBlocks> fill_blocks(const cost::Problem& problem,
                                        const space::GroupSummaries& groups,
                                        const BlockTemplate& blocks,
                                        const IdVector<DeviceId, double>& budget);

struct MemoryFillOptions {
  std::size_t templates = 16;  // the most promising ones are tried
  int rounds = 4;              // corrections by the peaks that the simulator finds
  bool single_block = false;   // only shares over one set of devices
};

// Strategies that were tried, the best first; what the estimate got wrong is corrected by what the
// simulator says, and tried again.
struct Tried {
  decide::Strategy strategy;
  Evaluation evaluation;
};
std::vector<Tried> memory_fill(BatchEvaluator& evaluator, const MemoryFillOptions& options);

}  // namespace heterog::search
