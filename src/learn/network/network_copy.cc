// Copies weights there, and what the network says back.
#include "learn/network/network_copy.h"

#include <torch/torch.h>

namespace heterog::learn {

NetworkCopy::NetworkCopy(const TrainConfig& config, torch::Device device)
    : network_(make_network(config, /*seed=*/0)) {
  network_->to(device);
}

PolicyNetwork NetworkCopy::with_weights_of(const PolicyNetwork& network) {
  copy_weights(network, network_);
  return network_;
}

void copy_weights(const PolicyNetwork& from, const PolicyNetwork& to) {
  const torch::NoGradGuard no_grad;
  const auto weights = from->named_parameters();
  for (auto& copy : to->named_parameters()) {
    const torch::Tensor* weight = weights.find(copy.key());
    if (weight != nullptr) copy.value().copy_(*weight);
  }
}

Said say(PolicyNetwork network, const learn::FeatureTensors& features) {
  const torch::Device device = network->parameters().front().device();
  Said said = network->forward(learn::on_device(features, device));
  if (said.formula) return {.log_probabilities = {}, .formula = on_cpu(*said.formula)};
  return {.log_probabilities = said.log_probabilities.cpu(), .formula = std::nullopt};
}

}  // namespace heterog::learn
