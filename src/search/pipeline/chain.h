// A model as a chain of layers, which pipelines cut into stages.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/problem.h"

namespace heterog::search {

// The forward pass cut where little crosses; each backward and update op is in the layer of the
// forward op that it belongs to. Layers follow one another: no op reads what a later layer's
// forward pass makes, but by what a model feeds back.
struct Chain {
  IdVector<OpId, std::uint32_t> layer_of;  // every op, aliases too
  // Of each layer. Bytes that its forward pass, or one before it, makes for a later one.
  struct Layer {
    double crossing_fixed = 0;
    double crossing_per_sample = 0;
    double crossing_once = 0;  // in a step: what is made of parameters alone
    Bytes resident = 0;        // parameters and their optimizer state
    Bytes gradients = 0;       // of its parameters
    // What its forward pass makes for a later one, but for what is made of parameters alone.
    double made_fixed = 0;
    double made_per_sample = 0;
    double saved_fixed = 0;  // what its forward pass keeps for the backward pass
    double saved_per_sample = 0;
  };
  std::vector<Layer> layers;
  // Forward passes run again for the backward pass: a layer saves what it makes for a later one,
  // and a stage what comes into it. While one layer runs again, what it makes is there too: of the
  // largest layer, so much.
  bool recompute = false;
  double again_fixed = 0;
  double again_per_sample = 0;
};

// At most `layers` layers, of about equal time on the whole batch: between two neighbours the cut
// is where the fewest bytes cross, over the positions of half a layer's time.
Chain make_chain(const cost::Problem& problem, std::size_t layers);

// The same, and cut too where that leaves out a place between blocks of the model: about as many
// layers, twice as many at most.
Chain make_chain_of_blocks(const cost::Problem& problem, std::size_t layers);

// The same, cut after these forward ops of `problem.folded->ops`, given by their places among them,
// ascending.
Chain chain_cut_after(const cost::Problem& problem, const std::vector<std::size_t>& ends);
std::vector<OpId> forward_ops(const cost::Problem& problem);

// What forward ops make for forward ops of other parts of the model, each tensor once, with the op
// that makes it. `part_of`: of every op.
struct MadeForOthers {
  OpId producer;
  TensorId tensor;
};
std::vector<MadeForOthers> made_for_others(const cost::Problem& problem,
                                           const IdVector<OpId, std::uint32_t>& part_of);

// The same, in which every layer's forward pass runs again.
Chain recomputed(Chain chain);

// Seconds of the layers before each, forward and backward, on a device type, for so many samples (1
// to the batch): layers [begin, end) take element `end` less element `begin`.
std::vector<double> times_before(const cost::Problem& problem, const Chain& chain,
                                 DeviceTypeId type, std::int64_t samples);

}  // namespace heterog::search
