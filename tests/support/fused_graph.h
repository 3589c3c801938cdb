// A training step whose parameters are updated by a kernel that takes lists.
#pragma once

#include <string>
#include <vector>

#include "support/graphs.h"

namespace heterog::support {

// Each parameter, of 1,000 floats, has its own weight decay; its gradient is the sum of the samples
// x [B, 1000], made in the order of the list.
inline graph::ModelGraph fused_graph(const std::vector<double>& weight_decays) {
  using graph::tensor_value;
  GraphMaker make("fused");
  const graph::Affine width = n(1000);
  const TensorId x = make.input("x", {kB, width});
  const TensorId lr = make.input("optimizer/lr", {}, graph::DType::kFloat64);
  const graph::Value no{.kind = graph::Value::Kind::kBool, .integer = {0, 0}};
  std::vector<TensorId> parameters, gradients;
  for (std::size_t i = 0; i < weight_decays.size(); ++i) {
    parameters.push_back(make.parameter("p" + std::to_string(i), {width}));
  }
  for (TensorId parameter : parameters) {
    const TensorId y =
        make.op("aten.mul.Tensor", {tensor_value(x), tensor_value(parameter)}, {kB, width});
    gradients.push_back(make.op("aten.sum.dim_IntList",
                                {tensor_value(y), graph::list_value({graph::int_value(0)}), no},
                                {width},
                                {.phase = graph::Phase::kBackward,
                                 .forward = make.maker(y),
                                 .role = graph::TensorRole::kGradient,
                                 .of = parameter}));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    make.op("aten._fused_sgd.tensor_lr",
            {graph::list_value({tensor_value(parameters[i])}),
             graph::list_value({tensor_value(gradients[i])}), graph::list_value({}),
             graph::float_value(weight_decays[i]), graph::float_value(0), tensor_value(lr),
             graph::float_value(0), no, no, no},
            {width},
            {.phase = graph::Phase::kUpdate,
             .role = graph::TensorRole::kOutput,
             .replaces = parameters[i]});
  }
  return std::move(make).build();
}

}  // namespace heterog::support
