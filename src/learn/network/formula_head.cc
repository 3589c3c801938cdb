// What a network adds to the formula's terms.
#include "learn/network/formula_head.h"

#include <torch/torch.h>

#include "learn/formula/plan_choice.h"

namespace heterog::learn {
FormulaHeadImpl::FormulaHeadImpl(const FormulaHeadOptions& options)
    : pairs_(register_module("pairs", PairScorer(options.group_width, options.width, 0.0))),
      scales_(register_module("scales", torch::nn::Linear(options.group_width, 3))),
      layout_(register_module(
          "layout", torch::nn::Linear(options.group_width + kLayoutFeatures, options.width))),
      knobs_(register_module("knobs", torch::nn::Linear(options.width, 1 + kOtherKnobValues))),
      sharpness_(register_parameter("sharpness", torch::zeros({}))) {
  begin_at(scales_, 0);  // says nothing until it has learnt something
  begin_at(knobs_, 0);
}

FormulaOutput FormulaHeadImpl::forward(const torch::Tensor& groups,
                                       const FeatureTensors& features) {
  const auto scales = scales_(groups).to(torch::kFloat64);
  const auto model = groups.mean(0, /*keepdim=*/true);  // [1, group width]
  const auto layouts = torch::elu(layout_(
      torch::cat({model.expand({features.layouts.size(0), model.size(1)}), features.layouts}, 1)));
  FormulaOutput output{.residual = pairs_(groups, features).to(torch::kFloat64),
                       .unhidden = scales.select(1, 0),
                       .moving = scales.select(1, 1),
                       .change = scales.select(1, 2),
                       .sharpness = sharpness_.to(torch::kFloat64),
                       .knobs = {},
                       .allowed = features.allowed};
  const auto knobs = knobs_(layouts).to(torch::kFloat64);  // [layouts, 1 + values]
  output.knobs.push_back(knobs.select(1, 0));
  std::int64_t at = 1;
  for (std::size_t knob = 1; knob < kKnobValues.size(); ++knob) {
    const auto values = static_cast<std::int64_t>(kKnobValues[knob]);
    output.knobs.push_back(knobs.narrow(1, at, values));
    at += values;
  }
  return output;
}

}  // namespace heterog::learn
