// By LibTorch's own schemas and shape rules.
#include "loading/check_graph.h"

#include "runtime/kernels/infer.h"
#include "runtime/kernels/operators.h"

namespace heterog::loading {

void check_graph(const graph::ModelGraph& graph, std::int64_t batch,
                 const graph::KnownBatches& known, const std::string& source) {
  runtime::check_operators(graph, source);
  runtime::check_results(graph, runtime::checked_batches(batch, known.smallest()), source);
}

}  // namespace heterog::loading
