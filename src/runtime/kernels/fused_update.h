// Updates by operators that take lists of tensors (operators::Facts::multi_tensor): PyTorch's fused
// optimizers.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <string>
#include <vector>

#include "runtime/kernels/execute.h"

namespace heterog::runtime {

// Makes the arguments of a call what the kernel takes for granted: in every list an item for each
// tensor of the first one, of its sizes and dtype and as it lies in memory; numbers of one element,
// in single precision where the kernel reads them so. What lies otherwise is copied. Throws an
// input error that names `op` where sizes, dtypes or counts differ.
void fit_lists(const std::string& op, const c10::FunctionSchema& schema, torch::jit::Stack& stack,
               const ExecuteOptions& options);

// Several ops of a graph that do the same to tensors of their own, as one call.
class FusedUpdate {
 public:
  // `ops`: one or more, alike but for their tensors (graph::UpdateChain::form).
  FusedUpdate(const graph::ModelGraph& graph, std::span<const OpId> ops, Samples samples,
              const ExecuteOptions& options);

  // `operands`: those of one op after another, each parallel to its graph.inputs(op). Parallel to
  // them: which of them the caller gives away, so that their next values are written over them. Of
  // the others copies are updated. Returns the results of one op after another, each parallel to
  // its graph.outputs(op); what nobody wants is undefined.
  std::vector<at::Tensor> run(std::span<const at::Tensor> operands,
                              const std::vector<bool>& given_away) const;

 private:
  // A tensor that the kernel writes: an item of an argument, and the result that it becomes.
  struct Written {
    std::size_t operand = 0;
    std::size_t result = 0;
  };

  void make_numbers_single(std::vector<at::Tensor>& held) const;

  std::vector<OperatorCall> calls_;
  ExecuteOptions options_;
  c10::OperatorHandle twin_;      // which writes over its lists
  std::vector<Written> written_;  // without those that nobody wants
  std::size_t results_ = 0;
};

}  // namespace heterog::runtime
