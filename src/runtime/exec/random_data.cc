// Seeds ATen's generator for a while, and fills one source after the other.
#include "runtime/exec/random_data.h"

#include "runtime/exec/sources.h"
#include "tensors/seeded_generator.h"

namespace heterog::runtime {

bool stays_between_steps(const graph::ModelGraph& graph, TensorId id) {
  const graph::Tensor& tensor = graph.tensor(id);
  return !tensor.producer.valid() && tensor.role != graph::TensorRole::kInput;
}

void each_random_resident(const graph::ModelGraph& graph, std::uint64_t seed, Floats floats,
                          const std::function<void(TensorId, const at::Tensor&)>& take) {
  const tensors::SeededGenerator seeded(seed);
  for (TensorId id : graph.tensor_ids()) {
    if (stays_between_steps(graph, id)) take(id, random_source(graph, id, 1, floats));
  }
}

IdVector<TensorId, at::Tensor> random_residents(const graph::ModelGraph& graph, std::uint64_t seed,
                                                Floats floats) {
  IdVector<TensorId, at::Tensor> values(graph.tensor_count());
  each_random_resident(graph, seed, floats,
                       [&](TensorId id, const at::Tensor& value) { values[id] = value; });
  return values;
}

StepInputs random_inputs(const graph::ModelGraph& graph, std::int64_t batch, std::uint64_t seed,
                         std::int64_t step, Floats floats) {
  const tensors::SeededGenerator seeded(seed * 1000003 + static_cast<std::uint64_t>(step));
  StepInputs inputs;
  for (TensorId id : graph.tensor_ids()) {
    if (graph.tensor(id).role != graph::TensorRole::kInput) continue;
    at::Tensor value = random_source(graph, id, batch, floats);
    if (is_setting(graph, id, "step")) value.fill_(static_cast<double>(step));
    inputs.emplace_back(id, value);
  }
  return inputs;
}

}  // namespace heterog::runtime
