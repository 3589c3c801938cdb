// The hand-written cases: every operator of the table that the zoo lacks, and every way of reading
// an operand that it does not show.
#include "split_proof/cases.h"

namespace heterog::split_proof {
namespace {

using Cases = std::vector<Case>;

// Every kind of operand that an operator of one operand can meet.
const std::vector<std::string> kAnyKind = {"in B,3",  "in 3,2B",  "outer2 6B,2",
                                           "sum 3,4", "mean 3,4", "in 3,4"};

void unary(Cases& list, const std::string& type, const std::string& args = R"(["%0"])") {
  for (const std::string& operand : kAnyKind) list.push_back({type, {operand}, args});
}

// Two operands: cut alike, one whole, one broadcast, partial sums and means.
void binary(Cases& list, const std::string& type, const std::string& args = R"(["%0", "%1"])") {
  const std::vector<std::vector<std::string>> pairs = {{"in B,3", "in B,3"},
                                                       {"in B,3", "in 3"},
                                                       {"in 3", "in B,3"},
                                                       {"in 3,B", "in 3,1"},
                                                       {"outer2 4B,3", "outer2 4B,3"},
                                                       {"in B,3", "sum 3"},
                                                       {"sum 3", "sum 3"},
                                                       {"sum 3", "in 3"},
                                                       {"in 3", "sum 3"},
                                                       {"mean 3", "in 3"},
                                                       {"mean 3", "mean 3"},
                                                       {"sum 3", "mean 3"},
                                                       {"in 3", "in 3"}};
  for (const auto& pair : pairs) list.push_back({type, pair, args});
}

void pointwise(Cases& list) {
  for (const char* name : {"abs",
                           "ceil",
                           "cos",
                           "elu",
                           "erf",
                           "exp",
                           "floor",
                           "gelu",
                           "hardsigmoid",
                           "hardswish",
                           "hardtanh",
                           "isnan",
                           "leaky_relu",
                           "log",
                           "log1p",
                           "log_sigmoid_forward",
                           "neg",
                           "reciprocal",
                           "relu",
                           "round",
                           "rsqrt",
                           "sgn",
                           "sigmoid",
                           "sign",
                           "silu",
                           "sin",
                           "softplus",
                           "sqrt",
                           "square",
                           "tanh",
                           "logical_not",
                           "alias",
                           "clone",
                           "detach",
                           "lift_fresh_copy"}) {
    unary(list, "aten." + std::string(name) + ".default");
  }
  for (const char* name :
       {"eq", "ne", "lt", "le", "gt", "ge", "remainder", "add", "sub", "rsub", "mul", "div"}) {
    unary(list, "aten." + std::string(name) + ".Scalar", R"(["%0", 0.5])");
  }
  unary(list, "aten.add.Scalar", R"(["%0", 0])");
  unary(list, "aten.add.Tensor", R"(["%0", "$0.5/4B"])");
  unary(list, "aten.mul.Tensor", R"(["%0", "$0.5/4B"])");
  unary(list, "aten.div.Tensor", R"(["%0", "$2B"])");
  unary(list, "aten.clamp.default", R"(["%0", -0.5, 0.5])");
  unary(list, "aten.clamp_max.default", R"(["%0", 0.5])");
  unary(list, "aten.clamp_min.default", R"(["%0", 0.5])");
  unary(list, "aten.pow.Scalar", R"([2.0, "%0"])");
  unary(list, "aten.pow.Tensor_Scalar", R"(["%0", 3])");
  unary(list, "aten.threshold.default", R"(["%0", 0.1, 0.2])");
  unary(list, "aten._to_copy.default");
  list.push_back({"aten._to_copy.default", {"sum 3"}, R"(["%0"])", R"({"dtype": ":int64"})"});
  list.push_back(
      {"aten._to_copy.default", {"in B,3 bool"}, R"(["%0"])", R"({"dtype": ":float32"})"});
  list.push_back({"aten.bitwise_not.default", {"in B,3 bool"}});
  for (const char* name :
       {"bitwise_and.Tensor", "bitwise_or.Tensor", "logical_and.default", "logical_or.default"}) {
    list.push_back({"aten." + std::string(name), {"in B,3 bool", "in 3 bool"}, R"(["%0", "%1"])"});
  }
  for (const char* name :
       {"add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "eq.Tensor", "ne.Tensor",
        "ge.Tensor", "gt.Tensor", "le.Tensor", "lt.Tensor", "maximum.default", "minimum.default",
        "pow.Tensor_Tensor", "sigmoid_backward.default", "tanh_backward.default",
        "gelu_backward.default", "hardsigmoid_backward.default", "hardswish_backward.default",
        "silu_backward.default"}) {
    binary(list, "aten." + std::string(name));
  }
  for (const char* mode : {"floor", "trunc"}) {
    list.push_back({"aten.div.Tensor_mode",
                    {"in B,3", "sum 3"},
                    R"(["%0", "%1"])",
                    R"({"rounding_mode": "')" + std::string(mode) + "\"}"});
  }
  binary(list, "aten.threshold_backward.default", R"(["%0", "%1", 0])");
  binary(list, "aten.hardtanh_backward.default", R"(["%0", "%1", -0.5, 0.5])");
  binary(list, "aten.leaky_relu_backward.default", R"(["%0", "%1", 0.1, false])");
  binary(list, "aten.elu_backward.default", R"(["%0", 1.0, 1.0, 1.0, false, "%1"])");
  binary(list, "aten.softplus_backward.default", R"(["%0", "%1", 1.0, 20.0])");
  binary(list, "aten.log_sigmoid_backward.default", R"(["%0", "%1", "%1"])");
  binary(list, "aten.lerp.Scalar", R"(["%0", "%1", 0.3])");
  binary(list, "aten.addcmul.default", R"(["%0", "%1", "%1"])");
  binary(list, "aten.addcdiv.default", R"(["%0", "%1", "%1"])");
  binary(list, "aten.native_dropout_backward.default", R"(["%0", "%1", 2.0])");
  for (const std::string& operand : kAnyKind) {
    list.push_back({"aten.native_dropout.default", {operand}, R"(["%0", 0.4, true])"});
  }
  const std::string where = R"(["%0", "%1", "%2"])";
  list.push_back({"aten.where.self", {"in B,3 bool", "in B,3", "in 3"}, where});
  list.push_back({"aten.where.self", {"in 3 bool", "sum 3", "in 3"}, where});
  list.push_back({"aten.where.self", {"in 3 bool", "sum 3", "sum 3"}, where});
  list.push_back({"aten.where.self", {"in 3 bool", "in 3", "mean 3"}, where});
  list.push_back({"aten.where.self", {"in B,1 bool", "sum 3", "in 3"}, where});
  for (const char* value : {"0", "1.5"}) {
    const std::string fill = R"(["%0", "%1", )" + std::string(value) + "]";
    for (const char* x : {"in B,3", "sum 3", "mean 3", "in 3"}) {
      list.push_back({"aten.masked_fill.Scalar", {x, "in 3 bool"}, fill});
    }
    list.push_back({"aten.masked_fill.Scalar", {"sum 3", "in B,3 bool"}, fill});
  }
  list.push_back({"aten.masked_fill.Tensor", {"in B,3", "in 3 bool", "in -"}, where});
  list.push_back({"aten.masked_fill.Tensor", {"sum 3", "in 3 bool", "in -"}, where});
  for (const char* from : {"in B,3", "in 3", "sum 3"}) {
    list.push_back({"aten.copy.default", {"in B,3", from}, R"(["%0", "%1"])"});
  }
  for (const char* from : {"in 3", "sum 3", "mean 3"}) {
    list.push_back({"aten.copy.default", {"sum 3", from}, R"(["%0", "%1"])"});
  }
  for (const char* x : {"in B,3", "in 3", "sum 3"}) {
    list.push_back({"aten.fill.Scalar", {x}, R"(["%0", 1.5])"});
    list.push_back({"aten.fill.Tensor", {x, "in -"}, R"(["%0", "%1"])"});
  }
}

void products(Cases& list) {
  const std::string two = R"(["%0", "%1"])", three = R"(["%0", "%1", "%2"])";
  const std::vector<std::vector<std::string>> mm = {
      {"in B,3", "in 3,4"},      {"in 3,4", "in 4,B"},      {"in 3,B", "in B,4"},
      {"outer2 4B,3", "in 3,4"}, {"in 2,4", "outer2 4,2B"}, {"sum 2,3", "in 3,4"},
      {"in 2,3", "mean 3,4"},    {"sum 2,3", "sum 3,4"},    {"in B,3", "sum 3,4"},
      {"in 2,3", "in 3,4"}};
  for (const auto& pair : mm) list.push_back({"aten.mm.default", pair, two});
  list.push_back({"aten.bmm.default", {"in B,2,3", "in B,3,4"}, two});
  list.push_back({"aten.bmm.default", {"in 2,B,3", "in 2,3,4"}, two});
  list.push_back({"aten.bmm.default", {"in 2,3,B", "in 2,B,4"}, two});
  list.push_back({"aten.bmm.default", {"in 2,3,4", "in 2,4,B"}, two});
  list.push_back({"aten.bmm.default", {"outer2 4B,2,3", "outer2 4B,3,4"}, two});
  list.push_back({"aten.mv.default", {"in B,3", "in 3"}, two});
  list.push_back({"aten.mv.default", {"in 3,B", "in B"}, two});
  list.push_back({"aten.dot.default", {"in B", "in B"}, two});
  list.push_back({"aten.dot.default", {"in 3", "sum 3"}, two});
  for (const char* addend : {"in 4", "in 1,4", "in B,4", "sum 4"}) {
    list.push_back({"aten.addmm.default",
                    {addend, "in B,3", "in 3,4"},
                    three,
                    R"({"beta": 0.5, "alpha": 2})"});
  }
  for (const char* addend : {"in 4", "sum 2,4"}) {
    list.push_back({"aten.addmm.default", {addend, "in 2,B", "in B,4"}, three});
  }
  list.push_back({"aten.addmm.default", {"in 4", "mean 2,3", "in 3,4"}, three});
  list.push_back({"aten.addmm.default", {"sum 4", "in 2,3", "in 3,4"}, three});
  list.push_back({"aten.baddbmm.default", {"in B,2,4", "in B,2,3", "in B,3,4"}, three});
  list.push_back({"aten.baddbmm.default", {"in 2,4", "in B,2,3", "in B,3,4"}, three});
  list.push_back({"aten.addmv.default", {"in B", "in B,3", "in 3"}, three});
  list.push_back({"aten.addmv.default", {"in 3", "in 3,B", "in B"}, three});
  const std::string convolution = R"(["%0", "%1", "%2", [1, 1], [1, 1], [1, 1], false, [0, 0], 1])";
  list.push_back({"aten.convolution.default", {"in B,2,5,5", "in 4,2,3,3", "in 4"}, convolution});
  list.push_back({"aten.convolution.default", {"in 3,2,5,5", "in 4,2,3,3", "sum 4"}, convolution});
  list.push_back({"aten.convolution.default",
                  {"outer2 4B,2,5,5", "in 2,3,3,3"},
                  R"(["%0", "%1", null, [2, 2], [1, 1], [1, 1], true, [1, 1], 1])"});
  const std::string backward =
      R"(["%0", "%1", "%2", [4], [1, 1], [1, 1], [1, 1], false, [0, 0], 1, [true, true, true]])";
  list.push_back(
      {"aten.convolution_backward.default", {"in B,4,5,5", "in B,2,5,5", "in 4,2,3,3"}, backward});
  list.push_back({"aten.convolution_backward.default",
                  {"outer2 2B,4,5,5", "outer2 2B,2,5,5", "in 4,2,3,3"},
                  backward});
}

void shapes(Cases& list) {
  for (const char* type :
       {"aten.view.default", "aten._unsafe_view.default", "aten.reshape.default"}) {
    list.push_back({type, {"in B,4,3"}, R"(["%0", ["#4B", 3]])"});
    list.push_back({type, {"in 4,B,3"}, R"(["%0", ["#4B", 3]])"});
    list.push_back({type, {"in 4B,6"}, R"(["%0", ["#B", 2, 12]])"});
    list.push_back({type, {"outer2 8B,6"}, R"(["%0", [2, "#B", 24]])"});
    list.push_back({type, {"in 2,3,B,5"}, R"(["%0", [2, "#3B", 5]])"});
    list.push_back({type, {"sum 3,4"}, R"(["%0", [12]])"});
  }
  list.push_back({"aten.permute.default", {"in 2,B,3"}, R"(["%0", [1, -1, 0]])"});
  list.push_back({"aten.permute.default", {"sum 2,3"}, R"(["%0", [1, 0]])"});
  list.push_back({"aten.transpose.int", {"in 2,B,3"}, R"(["%0", -2, 0])"});
  list.push_back({"aten.transpose.int", {"in B,2,3"}, R"(["%0", 1, 2])"});
  unary(list, "aten.t.default");
  list.push_back({"aten.t.default", {"in B"}});
  for (const char* dim : {"0", "1", "2", "-1"}) {
    list.push_back({"aten.unsqueeze.default", {"in 3,B"}, R"(["%0", )" + std::string(dim) + "]"});
  }
  list.push_back({"aten.squeeze.dim", {"in 1,B,1"}, R"(["%0", 0])"});
  list.push_back({"aten.squeeze.dim", {"in 2,B,1"}, R"(["%0", 0])"});
  list.push_back({"aten.squeeze.dims", {"in 1,B,1"}, R"(["%0", [0, -1]])"});
  list.push_back({"aten.expand.default", {"in B,1,3"}, R"(["%0", ["#B", 4, 3]])"});
  list.push_back({"aten.expand.default", {"in B,3"}, R"(["%0", [2, "#B", 3]])"});
  list.push_back({"aten.expand.default", {"in 1,3"}, R"(["%0", ["#4B", 3]])"});
  list.push_back({"aten.expand.default", {"sum 3"}, R"(["%0", ["#B", 3]])"});
  list.push_back({"aten.expand.default", {"sum 3"}, R"(["%0", [2, 3]])"});
  list.push_back({"aten.repeat.default", {"in B,3"}, R"(["%0", [2, 1, 2]])"});
  list.push_back({"aten.repeat.default", {"in B,3"}, R"(["%0", [3, 1]])"});
  list.push_back({"aten.repeat.default", {"in 2,3"}, R"(["%0", ["#B", 1]])"});
  list.push_back({"aten.repeat.default", {"sum 2,3"}, R"(["%0", [2, 1]])"});
  for (const char* type : {"aten.select.int", "aten.slice.Tensor"}) {
    list.push_back({type, {"in 3,B,4"}, R"(["%0", 0, 1])"});
    list.push_back({type, {"in B,3,4"}, R"(["%0", -1, 2])"});
    list.push_back({type, {"sum 3,4"}, R"(["%0", 0, 1])"});
  }
  list.push_back({"aten.slice.Tensor", {"in B,3"}, R"(["%0", 0, 0, 9223372036854775807])"});
  list.push_back({"aten.slice.Tensor", {"outer2 4B,3"}, R"(["%0", 0, "#2B", "#4B"])"});
  list.push_back({"aten.slice.Tensor", {"in 5,B"}, R"(["%0", 0, 1, 5, 2])"});
  list.push_back({"aten.unbind.int", {"in 3,B,2"}, R"(["%0"])"});
  list.push_back({"aten.unbind.int", {"in B,2"}, R"(["%0", 1])"});
  list.push_back({"aten.split.Tensor", {"in B,6"}, R"(["%0", 2, 1])"});
  list.push_back({"aten.split.Tensor", {"outer2 4B,6"}, R"(["%0", "#2B"])"});
  list.push_back({"aten.split_with_sizes.default", {"in B,6"}, R"(["%0", [1, 5], 1])"});
  list.push_back({"aten.split_with_sizes.default", {"outer2 4B,3"}, R"(["%0", ["#2B", "#2B"]])"});
  list.push_back({"aten.select_backward.default", {"in B,3"}, R"(["%0", ["#B", 4, 3], 1, 2])"});
  list.push_back({"aten.select_backward.default", {"in B,3"}, R"(["%0", [4, "#B", 3], 0, 2])"});
  list.push_back({"aten.slice_backward.default", {"in B,3"}, R"(["%0", ["#B", 5], 1, 1, 4, 1])"});
  list.push_back({"aten.slice_backward.default", {"sum 2,3"}, R"(["%0", [2, 5], 1, 1, 4, 1])"});
  for (const char* x : {"in 4,3", "sum 4,3"}) {
    list.push_back({"aten.as_strided.default", {x}, R"(["%0", [2, 5], [2, 1], 1])"});
    list.push_back(
        {"aten.as_strided_scatter.default", {x, "in 2,3"}, R"(["%0", "%1", [2, 3], [6, 1], 3])"});
  }
  list.push_back({"aten.flip.default", {"in B,3"}, R"(["%0", [1]])"});
  list.push_back({"aten.roll.default", {"in B,3"}, R"(["%0", [1], [1]])"});
  list.push_back(
      {"aten.constant_pad_nd.default", {"in 2,B,3"}, R"(["%0", [1, 2, 0, 0, 1, 0], 0.5])"});
  list.push_back({"aten.constant_pad_nd.default", {"sum 3"}, R"(["%0", [1, 2], 0.5])"});
  list.push_back({"aten.constant_pad_nd.default", {"sum 3"}, R"(["%0", [1, 2]])"});
  list.push_back({"aten.constant_pad_nd.default", {"mean 3"}, R"(["%0", [1, 2], 0.5])"});
  list.push_back({"aten.tril.default", {"in B,3,3"}});
  list.push_back({"aten.triu.default", {"sum 3,3"}});
  list.push_back({"aten.pixel_shuffle.default", {"in B,8,2,3"}, R"(["%0", 2])"});
  list.push_back({"aten.pixel_unshuffle.default", {"in B,2,4,6"}, R"(["%0", 2])"});
}

void joins(Cases& list) {
  for (const char* type : {"aten.cat.default", "aten.stack.default"}) {
    for (const char* dim : {"0", "1", "-1"}) {
      const std::string args = R"([["%0", "%1"], )" + std::string(dim) + "]";
      if (std::string(type) == "aten.stack.default" || std::string(dim) != "0") {
        list.push_back({type, {"in B,3", "in B,3"}, args});
      }
      if (std::string(dim) == "0") list.push_back({type, {"in 2,B", "in 2,B"}, args});
      list.push_back({type, {"sum 2,3", "sum 2,3"}, args});
      list.push_back({type, {"sum 2,3", "in 2,3"}, args});
      list.push_back({type, {"mean 2,3", "in 2,3"}, args});
      list.push_back({type, {"mean 2,3", "sum 2,3"}, args});
    }
  }
  list.push_back({"aten.cat.default", {"in B,3", "in B,3"}, R"([["%0", "%1"]])"});
  list.push_back({"aten.cat.default", {"outer2 4B,3", "in 2B,3"}, R"([["%0", "%1"]])"});
  list.push_back({"aten.select_scatter.default", {"in B,4,3", "in B,3"}, R"(["%0", "%1", 1, 2])"});
  list.push_back({"aten.select_scatter.default", {"in 4,B", "in B"}, R"(["%0", "%1", 0, 2])"});
  list.push_back({"aten.slice_scatter.default", {"in B,5", "in B,3"}, R"(["%0", "%1", 1, 1, 4])"});
  list.push_back({"aten.slice_scatter.default", {"sum 5", "in 3"}, R"(["%0", "%1", 0, 1, 4])"});
}

void creations(Cases& list) {
  for (const char* type : {"aten.zeros.default", "aten.ones.default", "aten.empty.memory_format",
                           "aten.rand.default", "aten.randn.default"}) {
    list.push_back({type, {}, R"([["#B", 3]])"});
    list.push_back({type, {}, R"([[2, 3]])"});
  }
  list.push_back({"aten.full.default", {}, R"([[3, "#2B"], 1.5])"});
  list.push_back({"aten.scalar_tensor.default", {}, R"([1.5])"});
  list.push_back({"aten.eye.default", {}, R"([3])"});
  list.push_back({"aten.arange.default", {}, "[5]"});
  list.push_back({"aten.arange.start", {}, "[2, 5]"});
  list.push_back({"aten.arange.start_step", {}, "[0, 9, 2]"});
  for (const char* name : {"new_zeros", "new_ones", "new_empty"}) {
    list.push_back({"aten." + std::string(name) + ".default", {"in B,3"}, R"(["%0", [4, "#B"]])"});
    list.push_back({"aten." + std::string(name) + ".default", {"sum 3"}, R"(["%0", [4, 2]])"});
  }
  list.push_back({"aten.new_zeros.default", {"mean 3"}, R"(["%0", [4, 2]])"});
  list.push_back({"aten.new_full.default", {"in B,3"}, R"(["%0", ["#B"], 2.5])"});
  for (const char* name : {"zeros_like", "ones_like", "empty_like"}) {
    unary(list, "aten." + std::string(name) + ".default");
  }
  unary(list, "aten.full_like.default", R"(["%0", 2.5])");
}

void updates(Cases& list) {
  for (const char* name : {"_fused_adam", "_fused_adamw"}) {
    list.push_back({"aten." + std::string(name) + ".tensor_lr",
                    {"in 3", "sum 3", "in 3", "in 3", "in 1", "in 1"},
                    R"([["%0"], ["%1"], ["%2"], ["%3"], [], ["%4"]])",
                    R"({"lr": "%5", "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8,
                        "amsgrad": false, "maximize": false})"});
  }
  list.push_back({"aten._fused_sgd.tensor_lr",
                  {"in 3", "sum 3", "in 3", "in 1"},
                  R"([["%0"], ["%1"], ["%2"]])",
                  R"({"lr": "%3", "weight_decay": 0.1, "momentum": 0.9, "dampening": 0.0,
                      "nesterov": true, "maximize": false, "is_first_step": false})"});
}

void draws(Cases& list) {
  for (const char* size : {"\"#B\", 3", "2, \"#3B\"", "2, 3"}) {
    const std::string sizes = "[" + std::string(size) + "]]";
    list.push_back({"aten.randint.default", {}, "[10, " + sizes, R"({"dtype": ":float32"})"});
    list.push_back({"aten.randint.low", {}, "[-3, 10, " + sizes, R"({"dtype": ":float32"})"});
    list.push_back({"aten.normal.float_float", {}, "[0.5, 2.0, " + sizes});
  }
  for (const char* name : {"rand_like", "randn_like", "uniform", "normal_functional", "exponential",
                           "log_normal", "cauchy"}) {
    unary(list, "aten." + std::string(name) + ".default");
  }
  unary(list, "aten.bernoulli.p", R"(["%0", 0.5])");
  unary(list, "aten.geometric.default", R"(["%0", 0.3])");
  unary(list, "aten.randint_like.default", R"(["%0", 10])");
  unary(list, "aten.randint_like.low_dtype", R"(["%0", -3, 10])");
  unary(list, "aten.bernoulli.default");
  unary(list, "aten.normal.Tensor_float", R"(["%0", 2.0])");
  unary(list, "aten.normal.float_Tensor", R"([0.5, "%0"])");
  list.push_back({"aten.normal.Tensor_Tensor", {"in B,3", "in 3"}, R"(["%0", "%1"])"});
  for (const std::string& operand : kAnyKind) {
    const std::string two = R"(["%0", "%1")";
    list.push_back({"aten.bernoulli.Tensor", {operand, operand}, two + "]"});
    list.push_back({"aten.normal.Tensor_Tensor", {operand, operand}, two + "]"});
    const std::string slopes = two + ", 0.125, 0.25, ";
    for (const char* training : {"true]", "false]"}) {
      list.push_back(
          {"aten.rrelu_with_noise_functional.default", {operand, operand}, slopes + training});
    }
    list.push_back({"aten.rrelu_with_noise_backward.default",
                    {operand, operand, operand},
                    R"(["%0", "%1", "%2", 0.125, 0.25, true, false])"});
  }
  list.push_back({"aten.randperm.default", {}, "[5]"});
  for (const char* operand : {"in B,4", "outer2 4B,4", "in 3,4", "in 4", "sum 4", "mean 3,4"}) {
    for (const char* chosen : {", 1]", ", 3]", ", 6, true]"}) {
      list.push_back({"aten.multinomial.default", {operand}, R"(["%0")" + std::string(chosen)});
    }
  }
}

void reductions(Cases& list) {
  const std::vector<std::string> operands = {"in B,3,4",  "in 3,B,4",   "in 3,4,B", "outer2 4B,3,2",
                                             "sum 2,3,4", "mean 2,3,4", "in 2,3,4"};
  for (const char* type : {"aten.sum.default", "aten.mean.default"}) {
    for (const std::string& operand : operands) list.push_back({type, {operand}});
  }
  for (const char* type : {"aten.sum.dim_IntList", "aten.mean.dim"}) {
    for (const std::string& operand : operands) {
      for (const char* dims : {"[0]", "[1]", "[0, -1]", "[1], true", "[0, 2], true", "[]"}) {
        list.push_back({type, {operand}, R"(["%0", )" + std::string(dims) + "]"});
      }
    }
  }
  // Over the batch these do not split.
  const std::string off[] = {R"(["%0", [1]])", R"(["%0", [1, -1], true])"};
  for (const char* type : {"aten.amax.default", "aten.amin.default", "aten.logsumexp.default",
                           "aten.var.correction", "aten.var_mean.correction"}) {
    for (const std::string& args : off) {
      list.push_back({type, {"in B,3,4"}, args});
      list.push_back({type, {"sum 2,3,4"}, args});
    }
    list.push_back({type, {"in 3,2,B"}, R"(["%0", [0]])"});
  }
  for (const char* type : {"aten.argmax.default", "aten.any.dim", "aten.max.dim", "aten.min.dim",
                           "aten.prod.dim_int"}) {
    list.push_back({type, {"in B,3,4"}, R"(["%0", 1])"});
    list.push_back({type, {"in 3,2,B"}, R"(["%0", 0])"});
    list.push_back({type, {"sum 2,3"}, R"(["%0", 1])"});
  }
  for (const char* type : {"aten.any.default", "aten.all.default", "aten.max.default"}) {
    list.push_back({type, {"sum 2,3"}});
    list.push_back({type, {"in 2,3"}});
  }
  list.push_back({"aten.linalg_vector_norm.default", {"sum 2,3"}});
  list.push_back({"aten.linalg_vector_norm.default", {"in B,3"}, R"(["%0", 2, [1]])"});
  list.push_back({"aten.norm.ScalarOpt_dim", {"in B,3"}, R"(["%0", 2, [1], true])"});
  list.push_back({"aten.norm.ScalarOpt_dim", {"sum 2,3"}, R"(["%0", 2, [0]])"});
  for (const char* type : {"aten._softmax.default", "aten._log_softmax.default"}) {
    list.push_back({type, {"in B,3,4"}, R"(["%0", -1, false])"});
    list.push_back({type, {"in 3,B"}, R"(["%0", 0, false])"});
    list.push_back({type, {"sum 2,3"}, R"(["%0", 0, false])"});
  }
  list.push_back({"aten._safe_softmax.default", {"in B,3,4"}, R"(["%0", -1])"});
  list.push_back({"aten._safe_softmax.default", {"sum 2,3"}, R"(["%0", 0])"});
  for (const char* type :
       {"aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default"}) {
    list.push_back({type, {"outer2 4B,3", "outer2 4B,3"}, R"(["%0", "%1", 1, ":float32"])"});
  }
  list.push_back({"aten.glu.default", {"in B,4"}, R"(["%0", 1])"});
  list.push_back({"aten.topk.default", {"in B,5"}, R"(["%0", 2])"});
  list.push_back({"aten.sort.default", {"in 5,B"}, R"(["%0", 0])"});
  for (const char* operand : {"in B,3", "sum 2,3", "mean 2,3", "in 2,3"}) {
    list.push_back({"aten.cumsum.default", {operand}, R"(["%0", 1])"});
  }
}

void lookups(Cases& list) {
  const std::string two = R"(["%0", "%1"])";
  list.push_back({"aten.embedding.default", {"in 5,3", "in B,4 int64"}, two});
  list.push_back({"aten.embedding.default", {"in 5,3", "outer2 4B int64"}, two});
  list.push_back({"aten.embedding.default", {"sum 5,3", "in B,4 int64"}, two});
  list.push_back({"aten.embedding.default", {"sum 5,3", "in 4 int64"}, two});
  const std::string embedding = R"(["%0", "%1", 5, -1, false])";
  list.push_back(
      {"aten.embedding_dense_backward.default", {"in B,4,3", "in B,4 int64"}, embedding});
  list.push_back(
      {"aten.embedding_dense_backward.default", {"in 4,B,3", "in 4,B int64"}, embedding});
  list.push_back({"aten.embedding_dense_backward.default", {"sum 4,3", "in 4 int64"}, embedding});
  const std::string at_one = R"(["%0", 1, "%1"])";
  list.push_back({"aten.gather.default", {"in B,4", "in B,2 int64"}, at_one});
  list.push_back({"aten.gather.default", {"in 3,4", "in 3,B int64"}, at_one});
  list.push_back({"aten.gather.default", {"sum 3,4", "in 3,2 int64"}, at_one});
  list.push_back({"aten.gather.default", {"sum 3,4", "in 3,B int64"}, at_one});
  list.push_back({"aten.scatter.value", {"in B,4", "in B,2 int64"}, R"(["%0", 1, "%1", 1.5])"});
  for (const char* type : {"aten.scatter.src", "aten.scatter_add.default"}) {
    list.push_back({type, {"in B,4", "in B,2 int64", "in B,2"}, R"(["%0", 1, "%1", "%2"])"});
  }
  list.push_back({"aten.index_select.default", {"in B,4", "in 3 int64"}, at_one});
  list.push_back({"aten.index_select.default", {"in 3,4", "in B int64"}, at_one});
  list.push_back({"aten.index_select.default", {"sum 3,4", "in 2 int64"}, at_one});
  list.push_back({"aten.index_select.default", {"sum 3,4", "in B int64"}, at_one});
  const std::string add = R"(["%0", 1, "%1", "%2"])";
  list.push_back({"aten.index_add.default", {"in B,4", "in 3 int64", "in B,3"}, add});
  list.push_back({"aten.index_add.default", {"in 3,4", "in B int64", "in 3,B"}, add});
  list.push_back({"aten.index_add.default", {"sum 3,4", "in B int64", "in 3,B"}, add});
  list.push_back({"aten.index_add.default", {"sum 3,4", "in 2 int64", "in 3,2"}, add});

  const std::string row = R"(["%0", ["%1"]])", both = R"(["%0", ["%1", "%2"]])";
  list.push_back({"aten.index.Tensor", {"in 5,3", "in B,2 int64"}, row});
  list.push_back({"aten.index.Tensor", {"sum 5,3", "in 4 int64"}, row});
  list.push_back({"aten.index.Tensor", {"sum 5,3", "in B int64"}, row});
  list.push_back({"aten.index.Tensor", {"in B,5,2", "in 4 int64"}, R"(["%0", [null, "%1"]])"});
  list.push_back({"aten.index.Tensor", {"in 5,2,B", "in 4,1 int64"}, R"(["%0", [null, "%1"]])"});
  list.push_back({"aten.index.Tensor",
                  {"in 5,B,4", "in 3 int64", "in 3 int64"},
                  R"(["%0", ["%1", null, "%2"]])"});
  list.push_back({"aten.index.Tensor", {"in B,5", "rows B int64", "in B int64"}, both});
  list.push_back({"aten.index.Tensor", {"in B,5,2", "rows B,1 int64", "in 3 int64"}, both});
  list.push_back({"aten.index.Tensor",
                  {"in 2,B,5", "rows B,1 int64", "in B,3 int64"},
                  R"(["%0", [null, "%1", "%2"]])"});
  const std::string put = R"(["%0", ["%1"], "%2", true])";
  list.push_back({"aten.index_put.default", {"in 5,3", "in B,2 int64", "in B,2,3"}, put});
  list.push_back({"aten.index_put.default", {"sum 5,3", "in B int64", "in 3"}, put});
  list.push_back({"aten.index_put.default", {"sum 5,3", "in 4 int64", "in 4,3"}, put});
  list.push_back({"aten.index_put.default",
                  {"in B,5,2", "in 3 int64", "in B,3,2"},
                  R"(["%0", [null, "%1"], "%2", true])"});
  list.push_back({"aten.index_put.default",
                  {"in B,5", "rows B int64", "in B int64", "in B"},
                  R"(["%0", ["%1", "%2"], "%3"])"});
}

void losses(Cases& list) {
  for (const char* reduction : {"0", "1", "2"}) {
    const std::string tail = ", " + std::string(reduction) + "]";
    for (const char* name : {"mse_loss", "smooth_l1_loss", "huber_loss"}) {
      const std::string type = "aten." + std::string(name) + ".default";
      list.push_back({type, {"in B,3", "in B,3"}, R"(["%0", "%1")" + tail});
      list.push_back({type, {"sum 3", "in 3"}, R"(["%0", "%1")" + tail});
    }
    list.push_back(
        {"aten.binary_cross_entropy.default", {"in B,3", "in B,3"}, R"(["%0", "%1", null)" + tail});
    list.push_back({"aten.binary_cross_entropy_with_logits.default",
                    {"in B,3", "in B,3", "in 3"},
                    R"(["%0", "%1", "%2", null)" + tail});
    if (std::string(reduction) == "1") continue;
    // Of a mean these divide by the slice's own number of elements.
    const std::string grad = std::string(reduction) == "0" ? "in B,3" : "in -";
    list.push_back({"aten.mse_loss_backward.default",
                    {grad, "in B,3", "in B,3"},
                    R"(["%0", "%1", "%2")" + tail});
    for (const char* name : {"smooth_l1_loss_backward", "huber_loss_backward"}) {
      list.push_back({"aten." + std::string(name) + ".default",
                      {grad, "in B,3", "in B,3"},
                      R"(["%0", "%1", "%2", )" + std::string(reduction) + ", 1.0]"});
    }
    list.push_back({"aten.binary_cross_entropy_backward.default",
                    {grad, "in B,3", "in B,3"},
                    R"(["%0", "%1", "%2", null)" + tail});
    const std::string ignored = R"(, null, )" + std::string(reduction) + ", -100]";
    list.push_back(
        {"aten.nll_loss_forward.default", {"in B,5", "in B int64"}, R"(["%0", "%1")" + ignored});
    list.push_back({"aten.nll_loss_forward.default",
                    {"outer2 4B,5", "outer2 4B int64"},
                    R"(["%0", "%1")" + ignored});
    list.push_back({"aten.nll_loss2d_forward.default",
                    {"in B,5,2,2", "in B,2,2 int64"},
                    R"(["%0", "%1")" + ignored});
  }
  for (const char* grad : {"in -", "sum -"}) {
    const std::string backward = R"(["%0", "%1", "%2", null, 1, -100, "%3"])";
    list.push_back(
        {"aten.nll_loss_backward.default", {grad, "in B,5", "in B int64", "sum -"}, backward});
    list.push_back({"aten.nll_loss2d_backward.default",
                    {grad, "in B,5,2,2", "in B,2,2 int64", "sum -"},
                    backward});
  }
  list.push_back({"aten.nll_loss_backward.default",
                  {"in B", "in B,5", "in B int64", "in -"},
                  R"(["%0", "%1", "%2", null, 0, -100, "%3"])"});
}

void normalisations(Cases& list) {
  const std::string norm = R"(["%0", [4], "%1", "%2", 1e-5])";
  list.push_back({"aten.native_layer_norm.default", {"in B,3,4", "in 4", "in 4"}, norm});
  list.push_back({"aten.native_layer_norm.default", {"outer2 4B,4", "in 4", "sum 4"}, norm});
  const std::string back = R"(["%0", "%1", [4], "%2", "%3", "%4", "%5", [true, true, true]])";
  list.push_back({"aten.native_layer_norm_backward.default",
                  {"in B,3,4", "in B,3,4", "in B,3,1", "in B,3,1", "in 4", "in 4"},
                  back});
  list.push_back({"aten.native_layer_norm_backward.default",
                  {"in 3,B,4", "in 3,B,4", "in 3,B,1", "in 3,B,1", "in 4", "in 4"},
                  back});
  for (const char* dropout : {"0.0", "0.3"}) {
    const std::string forward = "aten._scaled_dot_product_flash_attention_for_cpu.default";
    const std::string args = std::string(R"(["%0", "%1", "%2", )") + dropout + ", ";
    const std::string mask = R"({"attn_mask": "%3", "scale": 0.7})";
    list.push_back({forward, {"in B,2,4,3", "in B,2,5,3", "in B,2,5,3"}, args + "false]"});
    list.push_back({forward, {"in 2B,2,4,3", "in 2B,2,4,3", "in 2B,2,4,3"}, args + "true]"});
    list.push_back({forward, {"in 2,2,4,3", "in 2,2,4,3", "sum 2,2,4,3"}, args + "false]"});
    for (const char* of : {"in B,1,4,5", "in 1,2,4,5", "in 4,5"}) {
      list.push_back(
          {forward, {"in B,2,4,3", "in B,2,5,3", "in B,2,5,3", of}, args + "false]", mask});
    }
  }
  // With weights that are dropped, its forward op says which: step_proof_test has such graphs.
  const std::string backward = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default";
  const std::vector<std::string> of_backward = {"in B,2,4,3", "in B,2,5,3", "in B,2,5,3",
                                                "in B,2,4,3", "in B,2,4"};
  std::vector<std::string> given = {"in B,2,4,3"};
  given.insert(given.end(), of_backward.begin(), of_backward.end());
  const std::string args = R"(["%0", "%1", "%2", "%3", "%4", "%5", 0.0, false])";
  list.push_back({backward, given, args});
  given.push_back("in B,1,4,5");
  list.push_back({backward, given, args, R"({"attn_mask": "%6"})"});
  list.push_back({"aten.native_group_norm.default",
                  {"in B,4,3", "in 4", "in 4"},
                  R"(["%0", "%1", "%2", "#B", 4, 3, 2, 1e-5])"});
  list.push_back({"aten.native_group_norm_backward.default",
                  {"in B,4,3", "in B,4,3", "in B,2", "in B,2", "in 4"},
                  R"(["%0", "%1", "%2", "%3", "%4", "#B", 4, 3, 2, [true, true, true]])"});
  list.push_back({"aten._native_batch_norm_legit_functional.default",
                  {"in B,4,3", "in 4", "in 4", "in 4", "in 4"},
                  R"(["%0", "%1", "%2", "%3", "%4", true, 0.1, 1e-5])"});
  list.push_back({"aten._native_batch_norm_legit.no_stats",
                  {"in B,4,3", "in 4", "in 4"},
                  R"(["%0", "%1", "%2", true, 0.1, 1e-5])"});
}

void images(Cases& list) {
  const auto image = [&list](const char* name, std::vector<std::string> operands,
                             std::string args) {
    list.push_back({"aten." + std::string(name), operands, args});
    for (std::string& operand : operands) {
      if (operand.starts_with("in B")) operand = "outer2 2B" + operand.substr(4);
    }
    for (std::size_t at = 0; (at = args.find("#B", at)) != std::string::npos;) {
      args.replace(at, 2, "#2B");
    }
    list.push_back({"aten." + std::string(name), operands, args});
  };
  image("max_pool2d_with_indices.default", {"in B,2,6,6"}, R"(["%0", [3, 3], [2, 2], [1, 1]])");
  image("max_pool2d_with_indices_backward.default",
        {"in B,2,3,3", "in B,2,6,6", "in B,2,3,3 int64"},
        R"(["%0", "%1", [2, 2], [2, 2], [0, 0], [1, 1], false, "%2"])");
  image("avg_pool2d.default", {"in B,2,6,6"}, R"(["%0", [2, 2], [2, 2]])");
  image("avg_pool2d_backward.default", {"in B,2,3,3", "in B,2,6,6"},
        R"(["%0", "%1", [2, 2], [2, 2], [0, 0], false, true, null])");
  image("_adaptive_avg_pool2d.default", {"in B,2,6,6"}, R"(["%0", [2, 2]])");
  image("_adaptive_avg_pool2d_backward.default", {"in B,2,2,2", "in B,2,6,6"}, R"(["%0", "%1"])");
  image("adaptive_max_pool2d.default", {"in B,2,6,6"}, R"(["%0", [2, 2]])");
  image("adaptive_max_pool2d_backward.default", {"in B,2,2,2", "in B,2,6,6", "in B,2,2,2 int64"},
        R"(["%0", "%1", "%2"])");
  image("upsample_nearest2d.default", {"in B,2,3,3"}, R"(["%0", [6, 6]])");
  image("upsample_nearest2d.vec", {"in B,2,3,3"}, R"(["%0", null, [2.0, 2.0]])");
  image("upsample_nearest2d_backward.default", {"in B,2,6,6"},
        R"(["%0", [6, 6], ["#B", 2, 3, 3]])");
  image("upsample_bilinear2d.default", {"in B,2,3,3"}, R"(["%0", [6, 6], false])");
  image("upsample_bilinear2d.vec", {"in B,2,3,3"}, R"(["%0", null, true, [2.0, 2.0]])");
  image("upsample_bilinear2d_backward.default", {"in B,2,6,6"},
        R"(["%0", [6, 6], ["#B", 2, 3, 3], false])");
  image("reflection_pad2d.default", {"in B,2,4,4"}, R"(["%0", [1, 1, 2, 1]])");
  image("reflection_pad2d_backward.default", {"in B,2,7,6", "in B,2,4,4"},
        R"(["%0", "%1", [1, 1, 2, 1]])");
  image("replication_pad2d.default", {"in B,2,4,4"}, R"(["%0", [1, 1, 2, 1]])");
  image("replication_pad2d_backward.default", {"in B,2,7,6", "in B,2,4,4"},
        R"(["%0", "%1", [1, 1, 2, 1]])");
}

}  // namespace

std::vector<Case> cases() {
  Cases list;
  pointwise(list);
  products(list);
  shapes(list);
  joins(list);
  creations(list);
  draws(list);
  updates(list);
  reductions(list);
  lookups(list);
  losses(list);
  normalisations(list);
  images(list);
  return list;
}

}  // namespace heterog::split_proof
