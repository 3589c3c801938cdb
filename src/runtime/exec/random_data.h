// Random data to train on: the same on every rank.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>

#include "graph/model_graph.h"
#include "runtime/exec/worker_types.h"

namespace heterog::runtime {

// Parameters, optimizer state, buffers.
bool stays_between_steps(const graph::ModelGraph& graph, TensorId id);

// Random tensors that stay between steps (by tensor id, undefined for all others), and the inputs
// of a step: all of the same seed.
IdVector<TensorId, at::Tensor> random_residents(const graph::ModelGraph& graph, std::uint64_t seed,
                                                Floats floats);
// The same parameters, state and buffers one after another, each let go before the next is made.
void each_random_resident(const graph::ModelGraph& graph, std::uint64_t seed, Floats floats,
                          const std::function<void(TensorId, const at::Tensor&)>& take);
StepInputs random_inputs(const graph::ModelGraph& graph, std::int64_t batch, std::uint64_t seed,
                         std::int64_t step, Floats floats);

}  // namespace heterog::runtime
