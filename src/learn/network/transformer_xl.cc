// Transformer-XL over the sequence of groups (HeteroG §4.1.2; Dai et al. 2019).
#include "learn/network/transformer_xl.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

namespace heterog::learn {
namespace {

torch::nn::Linear linear_without_bias(std::int64_t width) {
  return torch::nn::Linear(torch::nn::LinearOptions(width, width).bias(false));
}

}  // namespace

torch::Tensor relative_positions(std::int64_t count, std::int64_t width,
                                 const torch::TensorOptions& options) {
  const auto distance = torch::arange(count, options).unsqueeze(1);
  const auto frequency =
      torch::exp(torch::arange(0, width, 2, options) * (-std::log(10000.0) / width));
  const auto angle = distance * frequency;  // [count, ⌈width / 2⌉]
  return torch::cat({angle.sin(), angle.cos()}, 1).slice(1, 0, width);
}

RelativeAttentionImpl::RelativeAttentionImpl(std::int64_t width, std::int64_t heads)
    : heads_(heads),
      head_width_(width / heads),
      query_(register_module("query", linear_without_bias(width))),
      key_(register_module("key", linear_without_bias(width))),
      value_(register_module("value", linear_without_bias(width))),
      position_(register_module("position", linear_without_bias(width))),
      output_(register_module("output", linear_without_bias(width))),
      content_bias_(register_parameter("content_bias", torch::zeros({heads, width / heads}))),
      position_bias_(register_parameter("position_bias", torch::zeros({heads, width / heads}))) {}

torch::Tensor RelativeAttentionImpl::forward(const torch::Tensor& segment,
                                             const torch::Tensor& context) {
  const std::int64_t length = segment.size(0);  // T
  const std::int64_t total = context.size(0);   // L
  const std::int64_t width = segment.size(1);
  const auto split = [&](const torch::Tensor& x) {  // [X, width] → [heads, X, head width]
    return x.view({x.size(0), heads_, head_width_}).transpose(0, 1);
  };
  const auto query = split(query_(segment));
  const auto key = split(key_(context));
  const auto value = split(value_(context));
  const auto position =
      split(position_(relative_positions(total, width, segment.options())));  // by distance

  const auto content = (query + content_bias_.unsqueeze(1)).matmul(key.transpose(1, 2));
  const auto by_distance = (query + position_bias_.unsqueeze(1)).matmul(position.transpose(1, 2));
  // Row i of the segment is at place L − T + i of the context: distance to j is L − T + i − j.
  const auto index = torch::TensorOptions().dtype(torch::kInt64).device(segment.device());
  const auto distance = torch::arange(total - length, total, index).unsqueeze(1) -
                        torch::arange(total, index).unsqueeze(0);  // [T, L]
  const auto shifted =
      by_distance.gather(2, distance.clamp_min(0).unsqueeze(0).expand({heads_, length, total}));
  const auto score =
      ((content + shifted) / std::sqrt(static_cast<double>(head_width_)))
          .masked_fill((distance < 0).unsqueeze(0), -std::numeric_limits<double>::infinity());
  const auto read = torch::softmax(score, -1).matmul(value);  // [heads, T, head width]
  return output_(read.transpose(0, 1).reshape({length, width}));
}

TransformerXlImpl::TransformerXlImpl(const TransformerXlOptions& options) : options_(options) {
  for (std::int64_t i = 0; i < options.layers; ++i) {
    attention_->push_back(RelativeAttention(options.width, options.heads));
    attention_norm_->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})));
    inner_->push_back(torch::nn::Linear(options.width, options.inner_width));
    outer_->push_back(torch::nn::Linear(options.inner_width, options.width));
    outer_norm_->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})));
  }
  register_module("attention", attention_);
  register_module("attention_norm", attention_norm_);
  register_module("inner", inner_);
  register_module("outer", outer_);
  register_module("outer_norm", outer_norm_);
}

torch::Tensor TransformerXlImpl::layer(std::size_t i, const torch::Tensor& segment,
                                       torch::Tensor& memory) {
  const auto context = torch::cat({memory, segment});
  if (options_.memory > 0) {
    const std::int64_t kept = std::min(options_.memory, context.size(0));
    memory = context.slice(0, context.size(0) - kept).detach();
  }
  const auto attended = attention_norm_[i]->as<torch::nn::LayerNorm>()->forward(
      segment + attention_[i]->as<RelativeAttention>()->forward(segment, context));
  const auto inner = torch::relu(inner_[i]->as<torch::nn::Linear>()->forward(attended));
  return outer_norm_[i]->as<torch::nn::LayerNorm>()->forward(
      attended + outer_[i]->as<torch::nn::Linear>()->forward(inner));
}

torch::Tensor TransformerXlImpl::forward(const torch::Tensor& sequence) {
  // Each layer ends in a norm; heads learn in vain from what has none.
  if (attention_->is_empty()) return torch::layer_norm(sequence, {options_.width});
  std::vector<torch::Tensor> memory(options_.layers,
                                    torch::zeros({0, options_.width}, sequence.options()));
  std::vector<torch::Tensor> outputs;
  for (std::int64_t begin = 0; begin < sequence.size(0); begin += options_.segment) {
    torch::Tensor x =
        sequence.slice(0, begin, std::min(begin + options_.segment, sequence.size(0)));
    for (std::size_t i = 0; i < memory.size(); ++i) x = layer(i, x, memory[i]);
    outputs.push_back(x);
  }
  return torch::cat(outputs);
}

}  // namespace heterog::learn
