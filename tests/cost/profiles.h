// A small graph and a profile of it.
#pragma once

#include "cost/profile.h"
#include "graph/model_graph.h"

namespace heterog::cost {

// x → relu → view (an alias) → sum.
inline graph::ModelGraph relu_chain(const std::string& name = "chain") {
  using graph::GraphBuilder;
  using graph::tensor_value;
  GraphBuilder builder(name);
  const auto tensor = [&](const char* tensor_name, graph::TensorRole role) {
    return builder.add_tensor({.name = tensor_name, .role = role, .shape = {{1, 0}, {0, 4}}});
  };
  const TensorId x = tensor("x", graph::TensorRole::kInput);
  const TensorId a = tensor("a", graph::TensorRole::kActivation);
  const TensorId b = tensor("b", graph::TensorRole::kActivation);
  const TensorId loss = builder.add_tensor({.name = "loss", .role = graph::TensorRole::kOutput});
  builder.add_op(
      {.name = "first", .type = "aten.relu.default", .args = {tensor_value(x)}, .outputs = {a}});
  builder.add_op(
      {.name = "alias",
       .type = "aten.view.default",
       .args = {tensor_value(a), graph::list_value({graph::size_value(1, 0), graph::int_value(4)})},
       .outputs = {b}});
  builder.add_op(
      {.name = "last", .type = "aten.sum.default", .args = {tensor_value(b)}, .outputs = {loss}});
  builder.set_loss(loss);
  return std::move(builder).build("chain");
}

inline ProfiledOperator profiled(std::string form, std::vector<std::string> ops,
                                 std::vector<Measurement> measured) {
  ProfiledOperator op{
      .form = std::move(form), .ops = std::move(ops), .measured = std::move(measured)};
  op.fit = fit_line(op.measured);
  return op;
}

// 1 ms + 2 ms a sample for "first", 5 ms whatever the samples for "last".
inline Profile chain_profile(const std::string& device = "fast") {
  Profile profile{.graph_name = "chain",
                  .graph_hash = relu_chain().hash(),
                  .device = device,
                  .machine = "a machine",
                  .torch = "2.11.0",
                  .threads = 2,
                  .repeat = 7,
                  .slices = {1, 2, 4}};
  profile.operators = {profiled("aten.relu.default(float32[B,4])", {"first"},
                                {{1, 3e-3, 1e-5}, {2, 5e-3, 1e-5}, {4, 9e-3, 1e-5}}),
                       profiled("aten.sum.default(…)", {"last"}, {{1, 5e-3, 1e-5}})};
  profile.links = {fit_link("processes", {{1000, 1.1e-5, 0}, {10000, 2e-5, 0}})};
  profile.finished = true;
  return profile;
}

}  // namespace heterog::cost
