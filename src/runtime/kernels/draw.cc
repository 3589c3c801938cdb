// One function for each thing that operators draw.
#include "runtime/kernels/draw.h"

#include <ATen/ScalarOps.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "operators/facts.h"
#include "runtime/gpu/dropout_on_gpu.h"
#include "runtime/gpu/gpu_kernels.h"

namespace heterog::runtime {
namespace {

using operators::Draw;

class Drawing {
 public:
  Drawing(const graph::ModelGraph& graph, const OperatorCall& call,
          std::span<const at::Tensor> operands, const DrawnSlice& slice,
          const graph::SplitRule& rule, const ExecuteOptions& options)
      : schema_(call.schema()),
        arguments_(call.bind(operands)),
        stream_(slice.stream),
        cut_(drawn_cut(rule, slice)),
        device_(options.device),
        name_(printable(graph.op(slice.stream.op).name)) {
    const auto outputs = graph.outputs(slice.stream.op);
    const auto made = std::ranges::find_if(outputs, [](TensorId out) { return out.valid(); });
    ENSURE(made != outputs.end());
    sizes_ = sizes_at(graph.shape(*made), slice.end - slice.begin);
    dtype_ = scalar_type(graph.tensor(*made).dtype, options.floats);
  }

  std::vector<at::Tensor> run(Draw what) {
    switch (what) {
      case Draw::kMask:
        return mask();
      case Draw::kWeights:
        EXPECT(false);  // runtime/attention/attention
        return {};
      case Draw::kBernoulli:
        return {bernoulli()};
      case Draw::kUniform:
        return {uniform(number("from", 0), number("to", 1)).to(dtype_)};
      case Draw::kNormal:
        return {normal()};
      case Draw::kExponential:
        return {positive(numbers({Law::Kind::kExponential, above_zero("lambd", 1)}))};
      case Draw::kLogNormal:
        return {numbers({Law::Kind::kLogNormal, number("mean", 1), number("std", 2)}).to(dtype_)};
      case Draw::kGeometric:
        return {numbers({Law::Kind::kGeometric, probability()}).to(dtype_)};
      case Draw::kCauchy:
        return {numbers({Law::Kind::kCauchy, number("median", 0), number("sigma", 1)}).to(dtype_)};
      case Draw::kIntegers:
        return {random_integers(stream_, range(), sizes_, cut_, device_).to(dtype_)};
      case Draw::kPermutation:
        ENSURE(sizes_.size() == 1);
        return {random_order(stream_, sizes_[0], device_).to(dtype_)};
      case Draw::kSlopes:
        return slopes();
      case Draw::kChoices:
        return {choices()};
    }
    EXPECT(false);
    return {};
  }

 private:
  // An argument that the operator does not have, or that is None, is null.
  const c10::IValue* find(std::string_view name) const {
    const auto at = schema_.argumentIndexWithName(name);
    if (!at || arguments_[static_cast<std::size_t>(*at)].isNone()) return nullptr;
    return &arguments_[static_cast<std::size_t>(*at)];
  }
  const at::Tensor& tensor(std::string_view name) const {
    const c10::IValue* value = find(name);
    ENSURE(value && value->isTensor());
    return value->toTensor();
  }
  double number(std::string_view name, double absent) const {
    const c10::IValue* value = find(name);
    return value ? value->toScalar().toDouble() : absent;
  }
  double above_zero(std::string_view name, double absent) const {
    const double value = number(name, absent);
    VALIDATE(value > 0, "op '{}': {} is {}; it must be above 0", name_, name, value);
    return value;
  }
  double probability() const {
    const double p = number("p", 0.5);
    VALIDATE(p >= 0 && p <= 1, "op '{}': p is {}; a probability is from 0 to 1", name_, p);
    return p;
  }

  at::Tensor numbers(const Law& law) const {
    return random_numbers(stream_, law, sizes_, cut_, device_);
  }

  // As many binary digits as the type has behind its point: more would round up to `to`.
  at::Tensor uniform(double from, double to) const {
    const int digits = dtype_ == at::kFloat      ? 24
                       : dtype_ == at::kHalf     ? 11
                       : dtype_ == at::kBFloat16 ? 8
                                                 : 53;
    return numbers({Law::Kind::kUniform, from, to, digits});
  }

  // Above 0 in float16 too, so that its logarithm is a number.
  at::Tensor positive(const at::Tensor& values) const {
    return (dtype_ == at::kHalf ? values.clamp_min(0x1p-24) : values).to(dtype_);
  }

  // dropout(x, rate) → x · mask / (1 − rate), mask.
  std::vector<at::Tensor> mask() const {
    const at::Tensor& x = tensor("input");
    const double rate = number("p", 0.5);
    const std::vector<std::int64_t> sizes = x.sizes().vec();
    if (has_gpu_kernels(device_) && rate < 1 && x.is_contiguous() && x.numel() > 0) {
      const at::Tensor made = at::empty_like(x),
                       kept = at::empty(sizes, x.options().dtype(at::kBool));
      const KeepRule rule = keep_rule(stream_, rate, sizes, cut_);
      if (drop_on_gpu(made, kept, x, 1 / (1 - rate), rule)) return {made, kept};
    }
    const at::Tensor kept = keep_mask(stream_, rate, sizes, cut_, device_);
    // One kernel of GPUs, which multiplies by a mask and a number whatever x is.
    if (has_gpu_kernels(device_) && rate < 1) {
      return {at::native_dropout_backward(x, kept, 1 / (1 - rate)), kept};
    }
    // As the backward operator has it: mul_(number) would round the number to half precision first.
    const at::Tensor scale = at::native::wrapped_scalar_tensor(1 / (1 - rate));
    return {rate < 1 ? at::mul(x, kept).mul_(scale) : at::zeros_like(x), kept};
  }

  at::Tensor bernoulli() const {
    const c10::IValue* p = find("p");
    if (p && !p->isTensor()) {
      return keep_mask(stream_, probability(), sizes_, cut_, device_).logical_not().to(dtype_);
    }
    const at::Tensor& probabilities = tensor(p ? "p" : "self");
    return numbers({Law::Kind::kUniform}).lt(probabilities.to(at::kDouble)).to(dtype_);
  }

  at::Tensor normal() const {
    const c10::IValue* mean = find("mean");
    const c10::IValue* deviation = find("std");
    const bool means = mean && mean->isTensor(), deviations = deviation && deviation->isTensor();
    if (!means && !deviations) {
      return numbers({Law::Kind::kNormal, number("mean", 0), number("std", 1)}).to(dtype_);
    }
    at::Tensor values = numbers({Law::Kind::kNormal});
    values = deviations ? values * deviation->toTensor() : values * number("std", 1);
    return (means ? values + mean->toTensor() : values + number("mean", 0)).to(dtype_);
  }

  Range range() const {
    const c10::IValue* least = find("low");
    const c10::IValue* most = find("high");
    ENSURE(most && most->isInt() && (!least || least->isInt()));
    const std::int64_t low = least ? least->toInt() : 0, high = most->toInt();
    const std::uint64_t count = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    VALIDATE(low < high && count <= std::uint64_t{1} << 63,
             "op '{}': it draws integers from {} up to {}; there must be 1 to 2^63 of them", name_,
             low, high);
    return {low, count};
  }

  // rrelu(x, lower, upper) → x · slope, slope, which is 1 for x above 0.
  std::vector<at::Tensor> slopes() const {
    const at::Tensor& x = tensor("self");
    const at::Tensor drawn = uniform(number("lower", 0.125), number("upper", 1.0 / 3)).to(dtype_);
    const at::Tensor slope = at::where(x.le(0), drawn, at::ones({}, drawn.options()));
    return {x * slope, slope};
  }

  // One, or several that differ: those of the largest p / e, e exponential, which are drawn with
  // the probabilities p (Efraimidis and Spirakis, 2006). Several with repetition: where uniform
  // numbers fall among the sums of p.
  at::Tensor choices() const {
    const at::Tensor weights = tensor("self").to(at::kDouble);
    const std::int64_t count = sizes_.back();
    const c10::IValue* repeated = find("replacement");
    if (count > 1 && repeated && repeated->toBool()) {
      const at::Tensor sums = weights.cumsum(-1);
      const at::Tensor at = numbers({Law::Kind::kUniform}) * sums.narrow(-1, sums.size(-1) - 1, 1);
      return at::searchsorted(sums, at.contiguous(), /*out_int32=*/false, /*right=*/true);
    }
    const at::Tensor times =
        random_numbers(stream_, {Law::Kind::kExponential, 1}, weights.sizes().vec(), cut_, device_);
    const at::Tensor scores = weights / times;
    if (count == 1) return scores.argmax(-1, /*keepdim=*/true);
    return std::get<1>(scores.topk(count, -1));
  }

  const c10::FunctionSchema& schema_;
  const torch::jit::Stack arguments_;
  const RandomStream stream_;
  const Cut cut_;
  const at::Device device_;
  const std::string name_;
  std::vector<std::int64_t> sizes_;
  at::ScalarType dtype_ = at::kFloat;
};

}  // namespace

Cut drawn_cut(const graph::SplitRule& rule, const DrawnSlice& slice) {
  if (rule.kind != graph::SplitKind::kConcat) return {};
  return {rule.dim, rule.outer, slice.batch, slice.begin, slice.end - slice.begin};
}

std::vector<at::Tensor> draw(const graph::ModelGraph& graph, const OperatorCall& call,
                             std::span<const at::Tensor> operands, const DrawnSlice& slice,
                             const graph::SplitRule& rule, const ExecuteOptions& options) {
  Drawing drawing(graph, call, operands, slice, rule, options);
  return drawing.run(graph.facts(slice.stream.op).draw);
}

}  // namespace heterog::runtime
