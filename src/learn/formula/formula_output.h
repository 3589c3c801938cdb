// What a network says of a problem to the policy that begins as the formula.
#pragma once

#include <torch/types.h>

#include <vector>

namespace heterog::learn {

// What one pass says of a problem of N groups and A rows, in float64.
struct FormulaOutput {
  torch::Tensor residual;   // [N, A] nats, added to a row's own term
  torch::Tensor unhidden;   // [N] log of how much more a group's aggregation counts
  torch::Tensor moving;     // [N] log of how much more it counts what moves before a group
  torch::Tensor change;     // [N] nats, the price of another row than the group before
  torch::Tensor sharpness;  // scalar, log of how much more all seconds count
  // Logits of each knob's values: [layouts] of Knob::kLayout; [layouts, values] of the others,
  // which are chosen for a layout.
  std::vector<torch::Tensor> knobs;
  torch::Tensor allowed;  // [N, A] bool, of FeatureTensors
};
// The same, wherever it is.
FormulaOutput on_cpu(FormulaOutput output);

}  // namespace heterog::learn
