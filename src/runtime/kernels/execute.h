// Runs single operators of a graph on given operands, through the ATen dispatcher.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/model_graph.h"

namespace heterog::runtime {

class Operands;  // runtime/named_operands.h

// Sample counts: that of the slice for sizes, that of the whole batch for arithmetic scalars.
struct Samples {
  std::int64_t slice = 0;
  std::int64_t whole = 0;
};

// How normalisation layers behave.
enum class BatchNorm { kTraining, kInference };

// Which type floating tensors have while an operator runs.
enum class Floats {
  kOwn,     // the graph's
  kDouble,  // float64 throughout: for proofs
};

struct ExecuteOptions {
  Floats floats = Floats::kOwn;
  BatchNorm batch_norm = BatchNorm::kTraining;
  at::Device device = at::kCPU;  // of what the operator creates; its operands lie there already
  // Of an update by rows: so many rows of everything that has some. 0: all.
  std::int64_t rows = 0;
};

// Results as the dispatcher leaves them, flat: undefined results are undefined tensors.
std::vector<at::Tensor> flat_results(torch::jit::Stack results);

// An operator of a graph with all its arguments but the tensors, ready to be called any number of
// times, by any number of threads.
class OperatorCall {
 public:
  // Where a tensor goes: an argument, or an item of one that is a list.
  struct Place {
    std::uint32_t argument = 0;
    std::uint32_t item = 0;
  };
  static constexpr std::uint32_t kNoItem = 0xffffffff;

  OperatorCall(const graph::ModelGraph& graph, OpId op, Samples samples,
               const ExecuteOptions& options);
  // The arguments of a call; `operands`: parallel to graph.inputs(op).
  torch::jit::Stack bind(std::span<const at::Tensor> operands) const;
  // Results of the operator, flat: undefined results are undefined tensors.
  std::vector<at::Tensor> call(torch::jit::Stack arguments) const;
  // The same, as the dispatcher leaves it.
  torch::jit::Stack call_boxed(torch::jit::Stack arguments) const;
  // Checks what its kernel takes on trust (operand_checks.h). A call asks this itself.
  void check(torch::jit::Stack& arguments) const;

  const c10::FunctionSchema& schema() const { return handle_.schema(); }
  bool gives_a_list() const;
  // Whether the values of its operands decide how large its results are.
  bool sizes_results_by_values() const { return handle_.hasTag(at::Tag::dynamic_output_shape); }
  std::span<const Place> places() const { return places_; }  // of the operands

  // Whether the operator can write its result, which has the shape and dtype of its first operand,
  // over that operand: the same bits, in the same time or less, without memory of its own.
  bool can_overwrite() const { return over_.has_value(); }
  at::Tensor call_over(torch::jit::Stack arguments) const;

  // The running statistics of a batch normalisation that makes the next ones, as places in the
  // graph's inputs; of these it can write the next ones over them: the same bits, without copies.
  const std::vector<std::size_t>& running_statistics() const { return statistics_; }
  std::vector<at::Tensor> call_over_statistics(torch::jit::Stack arguments) const;

 private:
  // A result as the graph declares it.
  struct Declared {
    std::size_t result = 0;
    std::string name;
    at::ScalarType type = at::kFloat;
    std::vector<std::int64_t> sizes;
  };
  std::vector<at::Tensor> as_declared(torch::jit::Stack results, const at::Tensor& first) const;
  void check_results(std::span<const at::Tensor> results) const;
  // The value in place of a result that its operator left undefined: nothing, where that may be.
  c10::IValue undefined_at(Place place) const;

  c10::OperatorHandle handle_;
  std::optional<c10::OperatorHandle> over_;  // "add_" of "add"
  std::optional<c10::OperatorHandle> over_statistics_;
  std::vector<std::size_t> statistics_;
  void (*check_)(const Operands&) = nullptr;  // null: the kernel checks for itself
  torch::jit::Stack arguments_;               // without tensors
  std::vector<Place> places_;                 // one an operand
  std::size_t outputs_ = 0;                   // of the graph's op
  bool on_cpu_ = true;
  bool on_cuda_ = false;  // not on another device that runs the kernels of CPUs, as tests have
  std::vector<Declared> declared_;      // what every call is held against, or made as
  std::string op_;                      // its name, for errors
  std::optional<ExecuteOptions> fits_;  // it takes lists, which are made to fit
  bool half_softmax_ = false;           // it takes float16 and gives float32
  bool norm_backward_ = false;          // on a GPU
};

// A call with its operands, which may be repeated.
class PreparedOp {
 public:
  // `operands`: parallel to graph.inputs(op).
  PreparedOp(const graph::ModelGraph& graph, OpId op, std::span<const at::Tensor> operands,
             Samples samples, const ExecuteOptions& options);
  // Results of the operator, as the dispatcher leaves it.
  torch::jit::Stack call() const;
  // The same, flat: undefined results are undefined tensors.
  std::vector<at::Tensor> results() const;

 private:
  OperatorCall call_;
  torch::jit::Stack arguments_;
  // The saved statistics of an inference-mode normalisation, in place of what it returns.
  bool saves_running_statistics_ = false;
};

std::vector<at::Tensor> execute(const graph::ModelGraph& graph, OpId op,
                                std::span<const at::Tensor> operands, Samples samples,
                                const ExecuteOptions& options);

at::ScalarType scalar_type(graph::DType dtype, Floats floats);
// "float32[2, 3]"; "nothing" if it is undefined.
std::string type_text(const at::Tensor& tensor);
std::string type_text(at::ScalarType type, at::IntArrayRef sizes);
std::vector<std::int64_t> sizes_at(std::span<const graph::Affine> shape, std::int64_t samples);

}  // namespace heterog::runtime
