// Configs of networks that are small enough for tests.
#pragma once

#include "learn/config.h"

namespace heterog::learn {

// A few hundred weights, for differences of each and sums by hand.
inline TrainConfig tiny_network() {
  TrainConfig config;
  config.gat_heads = 2;
  config.gat_head_width = 3;
  config.txl_width = 6;
  config.txl_heads = 2;
  config.txl_inner_width = 8;
  config.head_width = 5;
  return config;
}

// As small as still learns something, over several segments.
inline TrainConfig small_network() {
  TrainConfig config;
  config.gat_head_width = 4;
  config.txl_width = 16;
  config.txl_inner_width = 16;
  config.txl_segment = 8;
  config.head_width = 16;
  return config;
}

}  // namespace heterog::learn
