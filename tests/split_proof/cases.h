// Hand-written ops for what the zoo's graphs do not show of the table of split rules.
#pragma once

#include <string>
#include <vector>

#include "graph/model_graph.h"

namespace heterog::split_proof {

// One op and its operands. An operand is written "MAKER SIZES [DTYPE]", sizes as in graph files,
// joined by commas, "-" for none:
//   in 6B,3        an input of these sizes
//   outer2 6B,3    sizes whose first dimension with a batch is cut as 2 × 3B
//   sum 3,4        partial sums of these sizes
//   mean 3,4       partial means of these sizes
//   rows B,1       the numbers of the slice's rows, along the one size that depends on the batch
struct Case {
  std::string type;                   // "aten.add.Tensor"
  std::vector<std::string> operands;  // %0, %1, … of the arguments
  std::string args = R"(["%0"])";     // JSON, as in graph files
  std::string kwargs = "{}";
};

// A graph whose last op is the one of the case. The sizes of its results are found by executing it
// at two batch sizes.
graph::ModelGraph graph_of(const Case& example);

std::vector<Case> cases();

}  // namespace heterog::split_proof
