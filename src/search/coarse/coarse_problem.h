// A problem whose operators are passes of layers: pipelines take a tenth of the time to simulate.
#pragma once

#include <memory>
#include <optional>

#include "cost/problem.h"
#include "decide/strategy.h"
#include "search/pipeline/chain.h"

namespace heterog::search {

// Of each layer of a chain one op for the forward pass, one for what the backward pass hands on,
// one for gradients of parameters, and one for updates. What one layer makes for another is there
// tensor by tensor, so that plans have the transfers and collectives of the whole problem. Left out
// are orders within a layer, buffers, and what needs all micro-batches at once (a count of tokens
// over the batch; a norm of all gradients).
struct Coarse {
  std::unique_ptr<const cost::Problem> problem;
  Chain chain;  // the same layers, of its ops
  // Of the whole problem: the op that stands for it, if it is of the forward or backward pass; and
  // the layer.
  IdVector<OpId, OpId> stands_for;
  IdVector<OpId, std::uint32_t> layer_of;
};

// A strategy of the coarse problem, with units of its own, as one of the whole problem.
decide::Strategy of_whole(const Coarse& coarse, decide::Strategy strategy);

// None where ops cannot run on slices, or where passes of layers would wait for each other in a
// circle.
std::optional<Coarse> coarse_problem(const cost::Problem& problem, const Chain& chain);

}  // namespace heterog::search
