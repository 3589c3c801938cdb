// Implementation of policy::Policy, the network, for the files of this folder only.
#pragma once

#include "learn/api.h"
#include "learn/network/network.h"

namespace heterog::learn {

struct Policy::Impl {
  TrainConfig config;
  mutable PolicyNetwork network;  // forward() is not const in LibTorch; nothing in it changes
};

Policy make_policy(const TrainConfig& config, const PolicyNetwork& network);

// A network of its own with the same weights.
PolicyNetwork clone(const PolicyNetwork& network, const TrainConfig& config);

}  // namespace heterog::learn
