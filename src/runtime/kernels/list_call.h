// Several ops that do the same, an element at a time, to tensors of their own, as one call of
// PyTorch's form over lists ("_foreach_add"): on a GPU a few kernels for hundreds of tensors.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "operators/list_forms.h"
#include "runtime/kernels/execute.h"

namespace heterog::runtime {

class ListCall {
 public:
  // `ops`: two or more, alike but for their tensors, of an operator with such a form
  // (graph::SharedCall::kLists).
  ListCall(const graph::ModelGraph& graph, std::span<const OpId> ops, Samples samples,
           const ExecuteOptions& options);

  // `operands`: those of one op after another, each parallel to its graph.inputs(op). Parallel to
  // them: which of them the caller gives away. Results are written over the first operands where
  // all of these are given away. Returns the result of one op after another: on CPUs the bits of
  // the ops by themselves, but for x + a · b with one b for all, whose product is rounded first; on
  // GPUs kernels over lists may round otherwise than those of one tensor.
  std::vector<at::Tensor> run(std::span<const at::Tensor> operands,
                              const std::vector<bool>& given_away) const;

 private:
  const operators::ListForm& form_;
  std::vector<OperatorCall> calls_;
  std::size_t width_ = 0;  // operands of an op
};

}  // namespace heterog::runtime
