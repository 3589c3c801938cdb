// Copies weights there, and what the network says back.
#include "policy/network_copy.h"

#include <torch/torch.h>

#include <utility>

namespace heterog::policy {

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

Said say(PolicyNetwork network, const gnn::FeatureTensors& features,
         const IncumbentFeatures& incumbent) {
  const torch::Device device = network->parameters().front().device();
  IncumbentFeatures there = incumbent;
  if (incumbent.known()) {
    there = {incumbent.groups.to(device), incumbent.devices.to(device), incumbent.taken.to(device)};
  }
  Said said = network->say(gnn::on_device(features, device), there);
  said.log_probabilities = said.log_probabilities.cpu();
  if (said.schedule.defined()) said.schedule = said.schedule.cpu();
  return said;
}

Said say(PolicyNetwork network, const Case& c, const IncumbentFeatures& incumbent) {
  Said said = say(std::move(network), c.features, incumbent);
  if (said.schedule.defined()) said.schedule = schedule_logits(said.schedule, c.schedules);
  return said;
}

Schedule likely_schedule(const Said& said, const Case& c) {
  return said.schedule.defined() ? most_likely_schedule(said.schedule) : c.schedules.usual;
}

}  // namespace heterog::policy
