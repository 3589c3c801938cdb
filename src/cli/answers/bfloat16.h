// Where cards have no units for bfloat16: what float16 would give.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/compile_options.h"
#include "cost/problem.h"
#include "decide/strategy.h"
#include "explain/json.h"

namespace heterog::cli {

struct EmulatedBfloat16 {
  std::vector<std::string> types;  // of the cluster, that multiply bfloat16 in single precision
  double flops_per_second = 0;     // of the first of them, in bfloat16
  double float16_flops_per_second = 0;
  Nanoseconds float16_step = 0;  // of the same plan, were the graph in float16
};

// Nothing where the graph does not multiply in bfloat16, or every device that the strategy uses has
// units for it. Costs are the calibrated model's, so it is not for problems with measured ones.
std::optional<EmulatedBfloat16> emulated_bfloat16(const cost::Problem& problem,
                                                  const decide::Strategy& strategy,
                                                  const compiler::CompileOptions& options);

std::string bfloat16_line(const EmulatedBfloat16& found);
explain::OrderedJson bfloat16_json(const EmulatedBfloat16& found);

}  // namespace heterog::cli
