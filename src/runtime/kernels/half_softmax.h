// Softmax of float16 that gives float32, and its gradient: PyTorch has kernels of it for GPUs
// alone.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace heterog::runtime {

// Whether an operator of Family::kSoftmax is called so with these arguments (operands apart).
bool is_half_softmax(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments);

// Calls it on any device, in any precision: by the kernel of a GPU, else with casts around it.
void call_half_softmax(const c10::OperatorHandle& handle, torch::jit::Stack& arguments);

}  // namespace heterog::runtime
