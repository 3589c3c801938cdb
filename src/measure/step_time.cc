// A plain interpreter of graphs with a clock.
#include "measure/step_time.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <chrono>
#include <vector>

#include "base/check.h"
#include "base/median.h"
#include "base/text.h"
#include "graph/last_reads.h"
#include "runtime/exec/sources.h"
#include "runtime/kernels/execute.h"
#include "runtime/kernels/host_memory.h"

namespace heterog::measure {
namespace {

using Values = IdVector<TensorId, at::Tensor>;

class Interpreter {
 public:
  Interpreter(const graph::ModelGraph& graph, std::int64_t samples)
      : graph_(graph),
        samples_(samples),
        dead_(graph::dead_after(graph)),
        values_(graph.tensor_count()) {
    Bytes bytes = 0;
    for (TensorId id : graph.tensor_ids()) {
      if (!graph.tensor(id).producer.valid()) bytes += graph.bytes(id, samples);
    }
    runtime::check_host_has(bytes, fmt::format("what a step reads at {} samples", samples));
    for (TensorId id : graph.tensor_ids()) {
      if (graph.tensor(id).producer.valid()) continue;
      values_[id] = runtime::random_source(graph, id, samples, runtime::Floats::kOwn);
    }
  }

  double step_seconds() {
    double seconds = 0;
    for (OpId op : graph_.op_ids()) seconds += op_seconds(op);
    return seconds;
  }

 private:
  double op_seconds(OpId op) {
    std::vector<at::Tensor> operands;
    for (TensorId id : graph_.inputs(op)) operands.push_back(values_[id]);
    std::chrono::steady_clock::time_point start;
    {
      const runtime::PreparedOp call(graph_, op, operands, {.slice = samples_, .whole = samples_},
                                     {});
      operands.clear();
      start = std::chrono::steady_clock::now();
      const std::vector<at::Tensor> results = call.results();
      const auto outputs = graph_.outputs(op);
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i].valid()) values_[outputs[i]] = results[i];
      }
      for (TensorId id : dead_[op]) values_[id].reset();
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  const graph::ModelGraph& graph_;
  std::int64_t samples_;
  IdVector<OpId, std::vector<TensorId>> dead_;
  Values values_;
};

}  // namespace

double measure_step(const graph::ModelGraph& graph, const StepOptions& options) {
  EXPECT(options.samples >= 1 && options.repeat >= 1);
  at::set_num_threads(options.threads);
  at::manual_seed(options.seed);
  try {
    const c10::InferenceMode no_gradients;
    Interpreter interpreter(graph, options.samples);
    interpreter.step_seconds();
    std::vector<double> seconds;
    for (int i = 0; i < options.repeat; ++i) seconds.push_back(interpreter.step_seconds());
    return median(std::move(seconds));
  } catch (const c10::Error& error) {
    throw Error(ErrorKind::kVerification,
                fmt::format("a whole step does not run here: {}",
                            printable(error.what_without_backtrace(), 300)));
  }
}

}  // namespace heterog::measure
