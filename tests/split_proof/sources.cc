// Random parameters, states and inputs for a whole step.
#include "runtime/exec/sources.h"

#include <vector>

#include "split_proof/step.h"

namespace heterog::split_proof {

Values random_sources(const graph::ModelGraph& graph, const StepOptions& options) {
  at::manual_seed(11);
  const std::int64_t batch = whole_batch(options.sizes);
  Values values(graph.tensor_count());
  for (TensorId id : graph.tensor_ids()) {
    if (graph.tensor(id).producer.valid()) continue;
    at::Tensor value =
        runtime::random_source(graph, id, batch / options.repeats, runtime::Floats::kDouble);
    for (std::size_t dim = 0; dim < graph.shape(id).size(); ++dim) {
      if (graph.shape(id)[dim].constant()) continue;
      value = at::cat(std::vector<at::Tensor>(options.repeats, value), dim);
    }
    values[id] = value;
  }
  return values;
}

}  // namespace heterog::split_proof
