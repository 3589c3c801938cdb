// Results that an operator saves for its backward pass, made alike on every kind of device.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace heterog::runtime {

// Result `index` of an operator as its kernel for CPUs, by which graphs are exported, would leave
// it, with the declared sizes: `made` by the kernel of a GPU may be empty where that has a use for
// it, or hold what that has none for. The other device may then be the one that runs the backward
// pass. `first`: the operator's first argument. `made` itself if nothing is to be done.
at::Tensor as_cpus_leave_it(const c10::FunctionSchema& schema, std::size_t index,
                            const at::Tensor& made, at::IntArrayRef declared,
                            const at::Tensor& first);

// The same for what a backward operator of a GPU is given: statistics of a layer norm that a CPU
// saved in half precision become float32, as a GPU saves them.
void widen_saved_statistics(const c10::FunctionSchema& schema, std::vector<c10::IValue>& arguments);

}  // namespace heterog::runtime
