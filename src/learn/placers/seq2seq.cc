// Encodes once; decodes step by step to draw, all at once where the devices are known.
#include "learn/placers/seq2seq.h"

#include <torch/torch.h>

#include <tuple>

namespace heterog::learn {
namespace {

constexpr std::int64_t kSeqWidth = 64;

using State = std::tuple<torch::Tensor, torch::Tensor>;

torch::Tensor for_all(const torch::Tensor& encoded, std::int64_t samples) {
  return encoded.size(1) == samples ? encoded : encoded.expand({-1, samples, -1});
}

}  // namespace

Seq2SeqImpl::Seq2SeqImpl(std::int64_t features, std::int64_t devices)
    : devices_(devices),
      encoder_(register_module("encoder", torch::nn::LSTM(features, kSeqWidth))),
      device_(register_module("device", torch::nn::Embedding(devices + 1, kSeqWidth))),
      decoder_(register_module("decoder", torch::nn::LSTM(kSeqWidth, kSeqWidth))),
      head_(register_module("head", torch::nn::Linear(2 * kSeqWidth, devices))) {}

torch::Tensor Seq2SeqImpl::devices_of(const torch::Tensor& h, const torch::Tensor& encoded) {
  const auto queries = h.transpose(0, 1), keys = encoded.transpose(0, 1);  // [S, T or L, width]
  const auto weights = torch::softmax(torch::bmm(queries, keys.transpose(1, 2)), 2);
  const auto context = torch::bmm(weights, keys).transpose(0, 1);
  return torch::log_softmax(head_(torch::cat({h, context}, 2)), 2);
}

torch::Tensor Seq2SeqImpl::draw(const torch::Tensor& groups, std::int64_t samples, const Rng& rng) {
  torch::NoGradGuard no_grad;
  const auto encoded = for_all(std::get<0>(encoder_(groups)), samples);
  std::vector<Rng> of_sample;
  for (std::int64_t s = 0; s < samples; ++s) {
    of_sample.push_back(rng.split(static_cast<std::uint64_t>(s)));
  }
  const std::int64_t length = groups.size(0);
  auto draws = torch::empty({samples, length}, torch::kInt64);
  auto before = torch::full({1, samples}, devices_, torch::kInt64);
  State state{torch::zeros({1, samples, kSeqWidth}), torch::zeros({1, samples, kSeqWidth})};
  for (std::int64_t t = 0; t < length; ++t) {
    torch::Tensor h;
    std::tie(h, state) = decoder_(device_(before), state);
    const auto log_p = devices_of(h, encoded).squeeze(0).to(torch::kFloat64).contiguous();
    std::int64_t* chosen = before.data_ptr<std::int64_t>();
    for (std::int64_t s = 0; s < samples; ++s) {
      chosen[s] = drawn(log_p.data_ptr<double>() + s * devices_, devices_, of_sample[s].uniform());
      draws.data_ptr<std::int64_t>()[s * length + t] = chosen[s];
    }
  }
  return draws;
}

Likelihood Seq2SeqImpl::likelihood(const torch::Tensor& groups, const torch::Tensor& draws) {
  const std::int64_t samples = draws.size(0);
  const auto encoded = for_all(std::get<0>(encoder_(groups)), samples);
  const auto none = torch::full({1, samples}, devices_, torch::kInt64);
  const auto before = torch::cat({none, draws.t()}, 0).narrow(0, 0, draws.size(1));  // [L, S]
  const auto log_p = devices_of(std::get<0>(decoder_(device_(before))), encoded);
  return {.log_p = log_p.gather(2, draws.t().unsqueeze(2)).squeeze(2).t(),
          .entropy = -(log_p.exp() * log_p).sum(2).mean()};
}

}  // namespace heterog::learn
