// Stages and micro-batches as a strategy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decide/strategy.h"
#include "search/pipeline/chain.h"
#include "search/pipeline/stages.h"

namespace heterog::search {

// The stages of pipelines side by side, whose devices are all different: each has its part of every
// micro-batch, by the speed of its slowest stage.
using Pipelines = std::vector<std::vector<Stage>>;

// How the devices of a stage share its micro-batches.
enum class Sharing : std::uint8_t {
  kTogether,  // each has its part of every micro-batch
  kInTurn,    // each takes whole micro-batches (PipeDream)
};

// Where a stage gets what is made of parameters alone and several stages read: the copy in half
// precision of a table of words that is the output layer too.
enum class Copies : std::uint8_t {
  kWhereRead,  // makes it itself: it has the parameter, whose gradient is summed over the stages
  kWhereMade,  // from the first stage that reads it: it travels once a step
};

struct Staging {
  std::int64_t micro_batches = 1;
  decide::Pattern pattern = decide::Pattern::kOneForwardOneBackward;
  bool strict = false;     // who would wait for its turn waits
  int order_rounds = 0;    // in which the order of the turns is improved; not if strict
  bool recompute = false;  // every layer's forward pass, for its backward pass
  Sharing sharing = Sharing::kTogether;
  Copies copies = Copies::kWhereMade;
  // The first of several layers that read one parameter is where the last of them is, so that its
  // gradient does not travel: the table of words with the output layer. Not strict.
  bool tied_together = false;
  // Of a micro-batch, what the first, second … device of every stage takes: replicas of a pipeline
  // side by side. Gradients are summed once all passes of their stage are over. Of one pipeline
  // alone. Empty: each stage shares out by the speeds of its devices.
  std::vector<std::int64_t> samples = {};
};

// Units are layers. Strict only if in_line(problem, chain).
decide::Strategy stage_strategy(const cost::Problem& problem, const Chain& chain,
                                const StageCosts& costs, const Pipelines& pipelines,
                                const Staging& staging);

// Whether layers that may be different stages read what is made of parameters alone, so that Copies
// makes a difference.
bool shares_copies(const cost::Problem& problem, const Chain& chain);

// Whether several layers read one parameter, so that Staging::tied_together makes a difference.
bool ties_layers(const cost::Problem& problem, const Chain& chain);

// Whether forward passes read forward passes of the same or an earlier layer alone, and backward
// passes backward passes of the same or a later one, so that any stages can take strict turns. Not
// with batch normalisation whose running statistics are those of all micro-batches together. Ops
// that every micro-batch needs of all others (decide::needed_by_all), or that add up gradients of
// several layers, are in no turn.
bool in_line(const cost::Problem& problem, const Chain& chain);

}  // namespace heterog::search
