// Reads the sample tables and builds the operators that they describe.
#include "cost/samples.h"
#include "cost/arguments.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <sstream>

#include "base/file.h"

namespace heterog::cost {
namespace {

using graph::Affine;
using graph::DType;
using graph::GraphBuilder;
using graph::int_value;
using graph::ModelGraph;
using graph::tensor_value;
using graph::TensorRole;
using graph::Value;

// DeepBench times the fastest of a library's algorithms, over and over on the same tensors. A
// framework's convolutions take so much longer: PyTorch's on a T4 (NeuSight) 1.2 times, on a V100
// (PipeDream) 1.25 times, within whole steps (model_steps.csv) 1.1 to 1.2 times.
constexpr double kBeyondBestAlgorithm = 1.13;

// A table with a line of column names.
class Table {
 public:
  explicit Table(const std::string& path) : path_(path), lines_(read_file(path)) {
    std::string line;
    std::getline(lines_, line);
    std::istringstream names(line);
    for (std::string name; std::getline(names, name, ',');) columns_[name] = columns_.size();
  }
  bool next() {
    std::string line;
    if (!std::getline(lines_, line)) return false;
    ++line_;
    cells_.clear();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) cells_.push_back(cell);
    VALIDATE(cells_.size() == columns_.size(), "{}:{}: {} cells; the first line names {}", path_,
             line_ + 1, cells_.size(), columns_.size());
    return true;
  }
  bool has(const std::string& column) const { return columns_.contains(column); }
  const std::string& text(const std::string& column) const { return cells_[columns_.at(column)]; }
  std::int64_t integer(const std::string& column) const {
    const std::string& cell = text(column);
    std::int64_t value = 0;
    const auto result = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    VALIDATE(result.ptr == cell.data() + cell.size() && result.ec == std::errc{},
             "{}:{}: {} is '{}'; it must be a whole number", path_, line_ + 1, column, cell);
    return value;
  }
  // The cells behind `column`, but for the last, which is the time.
  std::string sizes(const std::string& column) const {
    std::string text;
    for (std::size_t i = columns_.at(column) + 1; i + 1 < cells_.size(); ++i) {
      text += (text.empty() ? "" : ",") + cells_[i];
    }
    return text;
  }
  double seconds() const {
    const double value = std::strtod(text("seconds").c_str(), nullptr);
    VALIDATE(value > 0, "{}:{}: seconds is '{}'; it must be positive", path_, line_ + 1,
             text("seconds"));
    return value;
  }

 private:
  std::string path_;
  std::istringstream lines_;
  std::map<std::string, std::size_t> columns_;
  std::vector<std::string> cells_;
  std::size_t line_ = 0;
};

// One operator over tensors of fixed sizes.
class OneOp {
 public:
  explicit OneOp(DType dtype = DType::kFloat32, bool channels_last = false)
      : dtype_(dtype), channels_last_(channels_last) {}
  Value operand(const std::vector<std::int64_t>& shape) {
    return tensor_value(tensor(shape, TensorRole::kInput, dtype_));
  }
  Value index_operand(const std::vector<std::int64_t>& shape) {
    return tensor_value(tensor(shape, TensorRole::kInput, DType::kInt64));
  }
  TensorId result(const std::vector<std::int64_t>& shape) {
    return tensor(shape, TensorRole::kActivation, dtype_);
  }
  TensorId index_result(const std::vector<std::int64_t>& shape) {
    return tensor(shape, TensorRole::kActivation, DType::kInt64);
  }
  ModelGraph build(const std::string& type, std::vector<Value> args,
                   std::vector<TensorId> outputs) {
    builder_.add_op({.name = "op",
                     .type = "aten." + type,
                     .args = std::move(args),
                     .outputs = std::move(outputs)});
    return std::move(builder_).build("sample");
  }

 private:
  TensorId tensor(const std::vector<std::int64_t>& shape, TensorRole role, DType dtype) {
    std::vector<Affine> sizes;
    for (std::int64_t size : shape) sizes.push_back({0, size});
    return builder_.add_tensor({.name = "t" + std::to_string(count_++),
                                .role = role,
                                .dtype = dtype,
                                .shape = sizes,
                                .channels_last = channels_last_ && sizes.size() == 4});
  }
  GraphBuilder builder_{"sample"};
  DType dtype_;
  bool channels_last_;
  int count_ = 0;
};

Value boolean(bool value) {
  Value result;
  result.kind = Value::Kind::kBool;
  result.integer.c = value ? 1 : 0;
  return result;
}

ModelGraph product_graph(const Table& row, DType dtype) {
  const std::int64_t batch = row.integer("batch"), m = row.integer("m"), n = row.integer("n"),
                     k = row.integer("k");
  OneOp op(dtype);
  if (batch == 1) {
    const Value left = op.operand({m, k}), right = op.operand({k, n});
    return op.build("mm.default", {left, right}, {op.result({m, n})});
  }
  const Value left = op.operand({batch, m, k}), right = op.operand({batch, k, n});
  return op.build("bmm.default", {left, right}, {op.result({batch, m, n})});
}

ModelGraph convolution_graph(const Table& row, DType dtype) {
  const auto out = [&](const char* size, const char* kernel, const char* pad, const char* stride) {
    return (row.integer(size) + 2 * row.integer(pad) - row.integer(kernel)) / row.integer(stride) +
           1;
  };
  const std::vector<std::int64_t> input{row.integer("n"), row.integer("c"), row.integer("h"),
                                        row.integer("w")};
  const std::vector<std::int64_t> weight{row.integer("filters"), row.integer("c"),
                                         row.integer("kernel_h"), row.integer("kernel_w")};
  const std::vector<std::int64_t> output{row.integer("n"), row.integer("filters"),
                                         out("h", "kernel_h", "pad_h", "stride_h"),
                                         out("w", "kernel_w", "pad_w", "stride_w")};
  const Value stride = ints({row.integer("stride_h"), row.integer("stride_w")});
  const Value padding = ints({row.integer("pad_h"), row.integer("pad_w")});
  // The fit is the better for it: what DeepBench timed in half precision holds no copies of
  // layouts.
  OneOp op(dtype, dtype == DType::kFloat16);
  if (row.text("pass") == "forward") {
    const Value x = op.operand(input), w = op.operand(weight);
    return op.build(
        "convolution.default",
        {x, w, Value{}, stride, padding, ints({1, 1}), boolean(false), ints({0, 0}), int_value(1)},
        {op.result(output)});
  }
  const bool to_input = row.text("pass") == "input_gradient";
  const Value gradient = op.operand(output), x = op.operand(input), w = op.operand(weight);
  const Value mask = graph::list_value({boolean(to_input), boolean(!to_input), boolean(false)});
  std::vector<TensorId> results(3);
  results[to_input ? 0 : 1] = op.result(to_input ? input : weight);
  return op.build("convolution_backward.default",
                  {gradient, x, w, Value{}, stride, padding, ints({1, 1}), boolean(false),
                   ints({0, 0}), int_value(1), mask},
                  results);
}

// Of square images; backward is both gradients, but for the image itself.
ModelGraph layer_convolution(const Table& row, bool forward) {
  const std::int64_t n = row.integer("n"), c = row.integer("c"), filters = row.integer("filters"),
                     kernel_h = row.integer("kernel_h"), kernel_w = row.integer("kernel_w"),
                     pad_h = row.integer("pad_h"), pad_w = row.integer("pad_w"),
                     step = row.integer("stride");
  const std::int64_t image = row.integer("elements_in") / (n * c);
  std::int64_t side = 1;
  while (side * side < image) ++side;
  const std::vector<std::int64_t> input{n, c, side, side}, weight{filters, c, kernel_h, kernel_w},
      output{n, filters, (side + 2 * pad_h - kernel_h) / step + 1,
             (side + 2 * pad_w - kernel_w) / step + 1};
  const Value stride = ints({step, step}), padding = ints({pad_h, pad_w});
  OneOp op;
  const Value x = op.operand(input), w = op.operand(weight);
  if (forward) {
    return op.build(
        "convolution.default",
        {x, w, Value{}, stride, padding, ints({1, 1}), boolean(false), ints({0, 0}), int_value(1)},
        {op.result(output)});
  }
  const bool to_input = c > 3;
  const Value gradient = op.operand(output);
  const Value mask = graph::list_value({boolean(to_input), boolean(true), boolean(false)});
  const TensorId to_x = to_input ? op.result(input) : TensorId();
  return op.build("convolution_backward.default",
                  {gradient, x, w, Value{}, stride, padding, ints({1, 1}), boolean(false),
                   ints({0, 0}), int_value(1), mask},
                  {to_x, op.result(weight), TensorId()});
}

// Which constants the operator falls under, and the operator; a, b and c are the row's sizes.
struct TrafficOp {
  const char* constants;
  ModelGraph (*graph)(std::int64_t a, std::int64_t b, std::int64_t c, const std::string& name);
};

ModelGraph binary(std::int64_t a, std::int64_t b, std::int64_t, const std::string& name) {
  OneOp op;
  const Value x = op.operand({a, b}), y = op.operand({a, b});
  return op.build(name + ".Tensor", {x, y}, {op.result({a, b})});
}

ModelGraph unary(std::int64_t a, std::int64_t b, std::int64_t, const std::string& name) {
  OneOp op;
  const Value x = op.operand({a, b});
  return op.build(name.substr(0, name.find("_scalar")) + ".default", {x}, {op.result({a, b})});
}

ModelGraph softmax(std::int64_t a, std::int64_t b, std::int64_t, const std::string&) {
  OneOp op;
  const Value x = op.operand({a, b});
  return op.build("_softmax.default", {x}, {op.result({a, b})});
}

ModelGraph layer_norm(std::int64_t a, std::int64_t b, std::int64_t, const std::string&) {
  OneOp op;
  const Value x = op.operand({a, b}), scale = op.operand({b}), shift = op.operand({b});
  const TensorId y = op.result({a, b}), mean = op.result({a, 1}), rstd = op.result({a, 1});
  return op.build("native_layer_norm.default", {x, ints({b}), scale, shift}, {y, mean, rstd});
}

ModelGraph batch_norm(std::int64_t a, std::int64_t b, std::int64_t, const std::string&) {
  OneOp op;
  const Value x = op.operand({b, a}), scale = op.operand({a}), shift = op.operand({a});
  return op.build("native_batch_norm.default", {x, scale, shift}, {op.result({b, a})});
}

ModelGraph batch_norm_backward(std::int64_t a, std::int64_t b, std::int64_t, const std::string&) {
  OneOp op;
  const Value gradient = op.operand({b, a}), x = op.operand({b, a}), scale = op.operand({a});
  return op.build("native_batch_norm_backward.default", {gradient, x, scale}, {op.result({b, a})});
}

ModelGraph max_pool(std::int64_t a, std::int64_t b, std::int64_t c, const std::string&) {
  OneOp op;
  const Value x = op.operand({b});
  const TensorId y = op.result({c}), indices = op.index_result({c});
  return op.build("max_pool2d_with_indices.default", {x, ints({a, a})}, {y, indices});
}

ModelGraph max_pool_backward(std::int64_t a, std::int64_t b, std::int64_t c, const std::string&) {
  OneOp op;
  const Value gradient = op.operand({c}), x = op.operand({b}), indices = op.index_operand({c});
  return op.build("max_pool2d_with_indices_backward.default", {gradient, x, ints({a, a}), indices},
                  {op.result({b})});
}

ModelGraph avg_pool(std::int64_t a, std::int64_t b, std::int64_t c, const std::string&) {
  OneOp op;
  const Value x = op.operand({b});
  return op.build("avg_pool2d.default", {x, ints({a, a})}, {op.result({c})});
}

ModelGraph avg_pool_backward(std::int64_t a, std::int64_t b, std::int64_t c, const std::string&) {
  OneOp op;
  const Value gradient = op.operand({c}), x = op.operand({b});
  return op.build("avg_pool2d_backward.default", {gradient, x, ints({a, a})}, {op.result({b})});
}

const std::map<std::string, TrafficOp>& traffic_ops() {
  static const std::map<std::string, TrafficOp> kOps = {
      {"add", {"elementwise", binary}},
      {"mul", {"elementwise", binary}},
      {"div", {"elementwise", binary}},
      {"pow", {"elementwise", binary}},
      {"add_scalar", {"elementwise", unary}},
      {"mul_scalar", {"elementwise", unary}},
      {"div_scalar", {"elementwise", unary}},
      {"pow_scalar", {"elementwise", unary}},
      {"relu", {"elementwise", unary}},
      {"gelu", {"elementwise", unary}},
      {"tanh", {"elementwise", unary}},
      {"softmax", {"softmax", softmax}},
      {"layer_norm", {"layer_norm", layer_norm}},
      {"batch_norm", {"batch_norm", batch_norm}},
      {"batch_norm_backward", {"batch_norm_backward", batch_norm_backward}},
      {"max_pool", {"pooling", max_pool}},
      {"max_pool_backward", {"pooling_backward", max_pool_backward}},
      {"avg_pool", {"pooling", avg_pool}},
      {"avg_pool_backward", {"pooling_backward", avg_pool_backward}}};
  return kOps;
}

DType sample_dtype(const Table& row) {
  return row.text("dtype") == "fp16" ? DType::kFloat16 : DType::kFloat32;
}

// Of a device's group every fifth row by time, so that long and short ones are held out alike: sums
// of seconds over the held-out rows then mean something.
void hold_out(std::vector<Sample>& samples) {
  std::map<std::pair<std::string, std::string>, std::vector<Sample*>> groups;
  for (Sample& sample : samples) groups[{sample.device, sample.group}].push_back(&sample);
  for (auto& [name, members] : groups) {
    std::stable_sort(members.begin(), members.end(),
                     [](const Sample* a, const Sample* b) { return a->seconds < b->seconds; });
    // From the long end, and the middle of each five.
    for (std::size_t i = 0; i < members.size() / 5; ++i) {
      members[members.size() - 3 - 5 * i]->held_out = true;
    }
  }
}

}  // namespace

std::vector<Sample> read_samples(const std::string& folder) {
  std::vector<Sample> samples;
  const auto add = [&](const Table& row, std::string constants, const std::string& suffix,
                       ModelGraph graph) {
    const std::string group = constants + suffix;
    // Passes of a convolution are constants of their own, so that the sizes tell rows apart.
    const std::string first = row.has("operator") ? "operator" : row.has("pass") ? "pass" : "dtype";
    samples.push_back({.source = row.text("source"),
                       .device = row.text("device"),
                       .constants = std::move(constants),
                       .group = group,
                       .shape = row.text(first) + "," + row.sizes(first),
                       .graph = std::move(graph),
                       .seconds = row.seconds()});
  };
  for (Table row(folder + "/matmul.csv"); row.next();) {
    const DType dtype = sample_dtype(row);
    add(row, dtype == DType::kFloat16 ? "matmul_half" : "matmul", "", product_graph(row, dtype));
  }
  for (Table row(folder + "/convolution.csv"); row.next();) {
    const DType dtype = sample_dtype(row);
    const bool three = row.integer("kernel_h") == 3 && row.integer("kernel_w") == 3 &&
                       row.integer("stride_h") == 1 && row.integer("stride_w") == 1;
    add(row, "convolution_" + row.text("pass") + (dtype == DType::kFloat16 ? "_half" : ""),
        three ? "_3x3" : "", convolution_graph(row, dtype));
  }
  for (Table row(folder + "/traffic.csv"); row.next();) {
    const std::string& name = row.text("operator");
    if (name == "depthwise") {
      // Forward and both gradients together: c outputs that meet a × a places each, three times.
      OneOp op;
      const std::int64_t side = row.integer("a"), in = row.integer("b"), out = row.integer("c");
      const Value x = op.operand({1, in, 1, 1}), w = op.operand({in, 1, side, side});
      ModelGraph graph = op.build("convolution.default",
                                  {x, w, Value{}, ints({1, 1}), ints({0, 0}), ints({1, 1}),
                                   boolean(false), ints({0, 0}), int_value(in)},
                                  {op.result({3, out, 1, 1})});
      add(row, "depthwise_convolution", "", std::move(graph));
      continue;
    }
    const auto found = traffic_ops().find(name);
    VALIDATE(found != traffic_ops().end(), "{}/traffic.csv: unknown operator '{}'", folder, name);
    add(row, found->second.constants, "",
        found->second.graph(row.integer("a"), row.integer("b"), row.integer("c"), name));
  }
  hold_out(samples);
  return samples;
}

std::vector<Layer> read_layers(const std::string& folder) {
  std::vector<Layer> layers;
  for (Table row(folder + "/layers.csv"); row.next();) {
    const std::string &kind = row.text("layer"), &pass = row.text("pass");
    const std::int64_t in = row.integer("elements_in"), out = row.integer("elements_out"),
                       channels = row.integer("c");
    layers.push_back({.device = row.text("device"),
                      .kind = kind + " " + pass,
                      .count = row.integer("layers"),
                      .graphs = {},
                      .seconds = row.seconds()});
    std::vector<ModelGraph>& graphs = layers.back().graphs;
    const bool forward = pass == "forward";
    if (kind == "convolution") {
      graphs.push_back(layer_convolution(row, forward));
    } else if (kind == "relu" || kind == "add_relu") {
      graphs.push_back(forward ? unary(1, in, 0, "relu") : binary(1, in, 0, "mul"));
      // Forward the sum in front of it, backward that of the gradients of both branches behind it.
      if (kind == "add_relu") graphs.push_back(binary(1, in, 0, "add"));
    } else {
      const std::string name = kind + (forward ? "" : "_backward");
      const bool norm = kind == "batch_norm";
      graphs.push_back(traffic_ops().at(name).graph(norm ? channels : row.integer("kernel_h"),
                                                    norm ? in / channels : in, out, name));
    }
  }
  return layers;
}

double predict(const CostModel& model, const Layer& layer, const cluster::DeviceType& type) {
  double seconds = 0;
  for (const ModelGraph& graph : layer.graphs) {
    seconds += static_cast<double>(layer.count) * model.seconds(graph, OpId(0), 1, type);
  }
  return seconds;
}

double predict(const CostModel& model, const Sample& sample, cluster::DeviceType type) {
  // Nobody measured in TF32: the A100's convolutions of full precision run at its fp32 peak. The
  // roofline's share is of the TF32 peak.
  if (dynamic_cast<const RooflineModel*>(&model) == nullptr) type.tf32_flops_per_second = 0;
  // Kernels alone, as they were measured.
  type.sustained = {};
  const bool best = sample.source == "deepbench" && sample.constants.starts_with("convolution");
  return model.seconds(sample.graph, OpId(0), 1, type) / (best ? kBeyondBestAlgorithm : 1);
}

}  // namespace heterog::cost
