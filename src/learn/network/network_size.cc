// How many parameters a network has, counted without making it.
#include "learn/config.h"
#include "learn/formula/plan_choice.h"
#include "learn/network/features.h"
#include "space/action_space.h"

namespace heterog::learn {
namespace {

std::int64_t linear(std::int64_t from, std::int64_t to) { return from * to + to; }
std::int64_t layer_norm(std::int64_t width) { return 2 * width; }

// learn/network/encoder.cc.
std::int64_t encoder(const TrainConfig& c, std::int64_t width) {
  const std::int64_t attention = width * width + 2 * width;
  return linear(learn::feature_count(learn::Subject::kOp), width) + width * width +
         c.gat_layers * (attention + layer_norm(width));
}

// learn/network/transformer_xl.cc.
std::int64_t transformer(const TrainConfig& c) {
  const std::int64_t attention = 5 * c.txl_width * c.txl_width + 2 * c.txl_width;
  return c.txl_layers *
         (attention + 2 * layer_norm(c.txl_width) + linear(c.txl_width, c.txl_inner_width) +
          linear(c.txl_inner_width, c.txl_width));
}

// learn/network/pair_scorer.cc.
std::int64_t pair_scorer(const TrainConfig& c) {
  return linear(c.txl_width, c.head_width) +
         linear(learn::feature_count(learn::Subject::kDevice), c.head_width) +
         linear(learn::feature_count(learn::Subject::kAction), c.head_width) +
         linear(c.head_width, 1) + learn::kSchemes * c.head_width;
}

// learn/network/action_head.cc.
std::int64_t head(const TrainConfig& c) {
  const auto replicated = static_cast<std::int64_t>(space::kReplicated.size());
  if (begins_as_formula(c)) {  // learn/network/formula_head.cc
    return pair_scorer(c) + linear(c.txl_width, 3) +
           linear(c.txl_width + kLayoutFeatures, c.head_width) +
           linear(c.head_width, 1 + kOtherKnobValues) + 1;
  }
  if (c.fixed_devices > 0) return linear(c.txl_width, c.fixed_devices + replicated);
  return pair_scorer(c);
}

}  // namespace

std::int64_t parameter_count(const TrainConfig& c) {
  const std::int64_t width = c.gat_heads * c.gat_head_width;
  return encoder(c, width) +
         linear(width + learn::feature_count(learn::Subject::kGroup), c.txl_width) +
         linear(learn::feature_count(learn::Subject::kDevice), c.txl_width) + transformer(c) +
         head(c);
}

}  // namespace heterog::learn
