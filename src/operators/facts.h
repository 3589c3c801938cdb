// Facts about each ATen operator for planning and running, except how it is split: one table.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace heterog::operators {

// Operators whose work is computed alike.
enum class Family : std::uint8_t {
  kElementwise,      // reads its operands, writes its results: also what is not listed
  kReduction,        // the same traffic
  kSoftmax,          // the same traffic
  kSoftmaxBackward,  // gradient times result is written first, and read again by a second kernel
  kPooling,          // the same traffic
  kCopy,             // the same traffic
  kFill,             // writes its result, reads nothing of its operands
  kEmpty,            // touches no memory
  kMatMul,           // operands 0 and 1
  kMatMulAdd,        // operands 1 and 2, operand 0 is added
  kConvolution,
  kConvolutionBackward,
  kBatchNorm,            // reads its input twice: statistics, then the values
  kBatchNormBackward,    // reads gradient and input twice
  kLayerNorm,            // a row stays on the chip between statistics and values
  kLayerNormBackward,    // one pass for the input's gradient, one for those of scale and shift
  kGather,               // reads the rows that it picks, not the table
  kScatterAdd,           // clears the whole table, then adds rows
  kIndexedLoss,          // reads one element a row
  kIndexedLossBackward,  // clears the result, writes one element a row
  kPoolingBackward,      // its forward's input, operand 1, gives a shape and no values
  kAttention,            // two products a head; the scores between them stay on the chip
  kAttentionBackward,    // five: the scores again, and the gradients of both products
};

// Where the numbers of an operator that draws some come from.
enum class Random : std::uint8_t {
  kNone,       // it draws none
  kCounter,    // from the element's place in the batch, unless its arguments switch it off
  kGenerator,  // from PyTorch's generator, unless its arguments switch it off
};

// The distribution that an operator of Random::kCounter draws from. Its numbers are arguments of
// the operator, by name.
enum class Draw : std::uint8_t {
  kMask,         // dropout: whether it keeps an element of its operand
  kWeights,      // attention: whether it keeps a weight
  kBernoulli,    // 1 with probability `p`, or with that which its operand gives, else 0
  kUniform,      // in [`from`, `to`), or in [0, 1)
  kNormal,       // of `mean` and `std`, numbers or tensors, or of 0 and 1
  kExponential,  // of rate `lambd`
  kLogNormal,    // the exponential function of a normal one
  kGeometric,    // how many trials of probability `p` it takes
  kCauchy,       // of `median` and `sigma`
  kIntegers,     // in [`low`, `high`), or in [0, `high`)
  kPermutation,  // of the numbers below `n`
  kSlopes,       // of a leaky ReLU, in [`lower`, `upper`)
  kChoices,      // `num_samples` categories for each row of weights
};

// The argument that switches an operator's random numbers off, by being zero or false.
struct RandomSwitch {
  std::string_view name;
  std::uint8_t argument = 0;
  bool off_by_default = false;  // where a graph does not give it
};

// An argument of integers that number something, and how many of it there are.
struct Indices {
  enum class Of : std::uint8_t {
    kNone,
    kRows,       // of the tensor operand `in`: its first dimension
    kClasses,    // its second dimension; argument `in` + 4 is the label that is left out
    kDimension,  // its dimension that argument 1 names
    kItem,       // its dimension that the argument's item stands at
    kNumber,     // as many as argument `in` says
  };
  Of of = Of::kNone;
  std::uint8_t argument = 0;
  std::uint8_t in = 0;
};

// A gradient of a table that is zero but for the rows that were looked up: the tensor operands that
// hold them and say which they are.
struct SparseGradient {
  std::uint8_t rows = 0;
  std::uint8_t indices = 0;
};

// Statistics over the samples that an operator is given, while it trains.
struct BatchStatistics {
  std::uint8_t training = 0;  // the argument that says whether it trains
  std::uint8_t samples = 0;   // so many tensor operands, the first ones, hold samples
  bool backward = false;
  bool running = true;  // has running ones too, as inference wants them
};

// Constant. A fact of which a row does not speak is as it is here.
struct Facts {
  Family family = Family::kElementwise;
  // Its results are views of its first tensor argument: it costs nothing, and owns no memory.
  bool alias = false;
  // The overload that is called in its place, as one that computes the same of tensors which lie
  // otherwise in memory.
  std::string_view called_as = {};
  // Its elements are elements of its first operand, so that integers mean what they meant there.
  bool same_elements = false;
  // The sum of its tensor operands, or of multiples of them.
  bool sum = false;
  // Each element of its result is computed of the elements at its place in the operands, and of
  // numbers. So is every one that has an in-place twin; of others the rows say it that updates
  // need.
  bool by_element = false;
  // PyTorch has it as an operator that writes over its first argument too, an element at a time:
  // "add_", with an overload of the same name.
  bool in_place_twin = false;
  // Takes lists, an item for each of the tensors that it updates, and makes of each what it would
  // make of it alone: one call serves many. Its first list is what it updates; the twin writes it.
  bool multi_tensor = false;
  // Not defined for operands below zero.
  bool positive = false;
  // A pooling whose windows follow from the sizes, not from arguments.
  bool adaptive = false;
  // A pooling's gradient: operands past the second, of integers, are places that pooling found.
  bool pooled_places = false;
  Random random = Random::kNone;
  Draw draw = Draw::kMask;
  std::optional<RandomSwitch> random_switch = {};
  Indices indices = {};
  std::optional<SparseGradient> sparse_gradient = {};
  std::optional<BatchStatistics> batch_statistics = {};
};

// Facts about an overload ("aten.mm.default"), for as long as the program runs: its own row, else
// the row of its packet ("mm"), else the defaults. Hashes the name: whoever asks of each op of a
// graph asks the graph, which has looked them up (ModelGraph::facts).
const Facts& facts(std::string_view type);

// The names of all rows, "mm" or "split.Tensor".
std::vector<std::string_view> rows_of_facts();

}  // namespace heterog::operators
