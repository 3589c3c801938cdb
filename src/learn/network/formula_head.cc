// What a network adds to the formula's terms.
#include "learn/network/formula_head.h"

#include <torch/torch.h>

#include "learn/formula/plan_choice.h"

namespace heterog::learn {
namespace {

// A layer that says nothing until it has learnt something.
torch::nn::Linear silent(std::int64_t from, std::int64_t to) {
  torch::nn::Linear linear(from, to);
  torch::NoGradGuard no_grad;
  linear->weight.zero_();
  linear->bias.zero_();
  return linear;
}

}  // namespace

FormulaHeadImpl::FormulaHeadImpl(const FormulaHeadOptions& options)
    : group_(register_module("group", torch::nn::Linear(options.group_width, options.width))),
      device_(register_module("device",
                              torch::nn::Linear(feature_count(Subject::kDevice), options.width))),
      pair_(register_module("pair",
                            torch::nn::Linear(feature_count(Subject::kAction), options.width))),
      score_(register_module("score", silent(options.width, 1))),
      schemes_(register_parameter("schemes", 0.1 * torch::randn({kSchemes, options.width}))),
      scales_(register_module("scales", silent(options.group_width, 3))),
      layout_(register_module(
          "layout", torch::nn::Linear(options.group_width + kLayoutFeatures, options.width))),
      knobs_(register_module("knobs", silent(options.width, 1 + kOtherKnobValues))),
      sharpness_(register_parameter("sharpness", torch::zeros({}))) {}

FormulaOutput FormulaHeadImpl::forward(const torch::Tensor& groups,
                                       const FeatureTensors& features) {
  const auto rows = features.members.matmul(device_(features.devices)) +
                    schemes_.index_select(0, features.scheme);
  const auto hidden = torch::elu(group_(groups).unsqueeze(1) + rows.unsqueeze(0) +
                                 pair_(features.actions));  // [N, A, width]
  const auto scales = scales_(groups).to(torch::kFloat64);
  const auto model = groups.mean(0, /*keepdim=*/true);  // [1, group width]
  const auto layouts = torch::elu(layout_(
      torch::cat({model.expand({features.layouts.size(0), model.size(1)}), features.layouts}, 1)));
  FormulaOutput output{.residual = score_(hidden).squeeze(-1).to(torch::kFloat64),
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
