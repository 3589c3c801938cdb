// Batch norms by cuDNN, where PyTorch takes it in place of its own kernels: on GPUs, for training
// in float32 with channels that lie apart (with channels last it would keep more than a mean and a
// deviation between the passes). True: the call was made, and its results stand in place of the
// arguments. False: nothing was done.
#pragma once

#include <ATen/core/stack.h>

namespace heterog::runtime {

// Arguments of _native_batch_norm_legit, whose running statistics are written over.
bool normalise_by_cudnn(torch::jit::Stack& arguments);

// Arguments of native_batch_norm_backward.
bool normalise_back_by_cudnn(torch::jit::Stack& arguments);

}  // namespace heterog::runtime
