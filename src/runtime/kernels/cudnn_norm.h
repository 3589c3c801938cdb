// Batch norms by cuDNN, where PyTorch takes it in place of its own kernels.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

namespace heterog::runtime {

// The arguments of _native_batch_norm_legit or native_batch_norm_backward on a GPU. True: the call
// was made by cuDNN, and its results stand in place of the arguments; running statistics have been
// written over. False: nothing was done; cuDNN is for training in float32 with channels that lie
// apart, as PyTorch chooses (with channels last it would keep more than a mean and a deviation
// between the passes).
bool call_cudnn_norm(const c10::FunctionSchema& schema, torch::jit::Stack& arguments);

}  // namespace heterog::runtime
