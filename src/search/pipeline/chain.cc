// Positions of the forward pass in the order of its ops, what crosses each, and the best cuts.
#include "search/pipeline/chain.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "decide/pass_turns.h"

namespace heterog::search {
namespace {

using graph::Phase;
using graph::Read;

// A function of the samples: fixed + per_sample · samples, which sizes of tensors are.
struct AffineBytes {
  double fixed = 0;
  double per_sample = 0;
  double once = 0;  // of `fixed`, what does not come again with every micro-batch
  double at(double samples) const { return fixed + per_sample * samples; }
  AffineBytes& operator+=(const AffineBytes& other) {
    fixed += other.fixed;
    per_sample += other.per_sample;
    once += other.once;
    return *this;
  }
  AffineBytes operator-() const { return {-fixed, -per_sample, -once}; }
};

AffineBytes bytes_of(const graph::ModelGraph& graph, TensorId tensor) {
  const auto one = static_cast<double>(graph.bytes(tensor, 1));
  const double more = static_cast<double>(graph.bytes(tensor, 2)) - one;
  return {.fixed = one - more, .per_sample = more};
}

bool is_forward(const cost::Problem& problem, OpId op) {
  return problem.graph->op(op).phase == Phase::kForward;
}

// Whether an op works on parameters alone.
IdVector<OpId, std::uint8_t> made_of_parameters(const cost::Problem& problem) {
  IdVector<OpId, std::uint8_t> made(problem.graph->op_count(), 0);
  for (const graph::ParameterOp& one : problem.folded->parameter_ops) made[one.op] = 1;
  return made;
}

// Of each forward op, in order: what is made by it or before and read after it.
std::vector<AffineBytes> crossing(const cost::Problem& problem, const std::vector<OpId>& forward) {
  IdVector<OpId, std::uint32_t> position(problem.graph->op_count(), 0);
  for (std::size_t i = 0; i < forward.size(); ++i) {
    position[forward[i]] = static_cast<std::uint32_t>(i);
  }
  IdVector<TensorId, std::uint32_t> last_read(problem.graph->tensor_count(), 0);
  for (OpId op : forward) {
    for (const Read& read : problem.folded->reads[op]) {
      if (!read.producer.valid() || !is_forward(problem, read.producer)) continue;
      last_read[read.base] = std::max(last_read[read.base], position[op]);
    }
  }
  const IdVector<OpId, std::uint8_t> of_parameters = made_of_parameters(problem);
  std::vector<AffineBytes> change(forward.size() + 1);
  for (OpId op : forward) {
    for (TensorId out : problem.graph->outputs(op)) {
      if (!out.valid() || last_read[out] <= position[op]) continue;
      AffineBytes bytes = bytes_of(*problem.graph, out);
      if (of_parameters[op]) bytes.once = bytes.fixed;
      change[position[op]] += bytes;
      change[last_read[out]] += -bytes;
    }
  }
  std::vector<AffineBytes> crosses;
  AffineBytes now;
  for (std::size_t i = 0; i < forward.size(); ++i) crosses.push_back(now += change[i]);
  return crosses;
}

// Every op by the forward op that it belongs to: aliases by what they view, backward ops by the op
// that they differentiate, or by what they read if that is later or known alone, updates by their
// parameter.
IdVector<OpId, std::uint32_t> assign(const cost::Problem& problem,
                                     const IdVector<OpId, std::uint32_t>& of_forward,
                                     std::uint32_t last) {
  const graph::ModelGraph& graph = *problem.graph;
  constexpr std::uint32_t kUnknown = 0xffffffff;
  IdVector<OpId, std::uint32_t> layer(graph.op_count(), kUnknown);
  // The latest of the layers of a pass that it reads from: in the forward pass the last, in the
  // backward pass the first.
  const auto latest_read = [&](OpId op, Phase phase) {
    std::uint32_t latest = kUnknown;
    for (TensorId in : graph.inputs(op)) {
      const OpId producer = graph.tensor(in).producer;
      if (!producer.valid() || graph.op(producer).phase != phase) continue;
      const std::uint32_t one = layer[producer];
      if (one == kUnknown) continue;
      if (phase == Phase::kBackward) {
        latest = std::min(latest, one);
      } else {
        latest = latest == kUnknown ? one : std::max(latest, one);
      }
    }
    return latest;
  };
  for (OpId op : graph.op_ids()) {
    const graph::Op& one = graph.op(op);
    if (one.phase == Phase::kUpdate) continue;
    if (one.phase == Phase::kForward && !one.alias) {
      layer[op] = of_forward[op];
    } else if (one.phase == Phase::kForward) {
      layer[op] = latest_read(op, Phase::kForward);
    } else {
      // What several layers read has a gradient that is added up where the last one comes in.
      const std::uint32_t reads = latest_read(op, Phase::kBackward);
      // A constant, which may be what an op is said to differentiate, is of no layer.
      const bool known = one.forward.valid() && !decide::same_everywhere(problem, one.forward);
      const std::uint32_t own = known ? layer[one.forward] : latest_read(op, Phase::kForward);
      layer[op] = known || reads == kUnknown ? std::min(reads, own) : reads;
    }
    if (layer[op] == kUnknown) layer[op] = one.phase == Phase::kForward ? 0 : last;
  }
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).phase != Phase::kUpdate) continue;
    const TensorId home = problem.folded->home[op];
    const auto readers = home.valid() ? problem.folded->parameter_readers[home]
                                      : decltype(problem.folded->parameter_readers[home])();
    layer[op] = readers.empty() ? last : layer[readers.front()];
  }
  return layer;
}

// Where to cut forward ops into layers of about equal time: the op after which each one ends. The
// first layer is shorter by part `ahead` of a layer's time.
std::vector<std::size_t> cuts(const cost::Problem& problem, const std::vector<OpId>& forward,
                              const std::vector<AffineBytes>& crosses, std::size_t layers,
                              double ahead = 0) {
  double total = 0;
  for (OpId op : forward) total += problem.costs.mean_seconds(op);
  const double length = total / static_cast<double>(layers);
  const auto batch = static_cast<double>(problem.batch);
  std::vector<std::size_t> found;
  double now = ahead * length;
  std::size_t best = forward.size();
  std::size_t window = 1;  // of time [window − 1/4, window + 1/4] · length
  for (std::size_t i = 0; i + 1 < forward.size() && window < layers; ++i) {
    now += problem.costs.mean_seconds(forward[i]);
    const double place = now / length - static_cast<double>(window);
    if (place < -0.25) continue;
    if (best == forward.size() || crosses[i].at(batch) < crosses[best].at(batch)) best = i;
    const double next = (now + problem.costs.mean_seconds(forward[i + 1])) / length;
    if (next - static_cast<double>(window) <= 0.25) continue;
    if (found.empty() || found.back() < best) found.push_back(best);
    best = forward.size();
    // An op may be longer than a layer.
    window = std::max<std::size_t>(window + 1, static_cast<std::size_t>(now / length + 0.75));
  }
  return found;
}

// The same, and between them where far fewer bytes cross than at both neighbours, as between blocks
// of a model. The first layer, for a table that it reads, ends at the best of the first few.
std::vector<std::size_t> cuts_of_blocks(const cost::Problem& problem,
                                        const std::vector<OpId>& forward, std::size_t layers) {
  constexpr double kFarFewer = 0.5;
  constexpr std::size_t kFirst = 3;
  const std::vector<AffineBytes> crosses = crossing(problem, forward);
  const std::vector<std::size_t> even = cuts(problem, forward, crosses, layers);
  std::vector<std::size_t> all = cuts(problem, forward, crosses, layers, 0.5);
  all.insert(all.end(), even.begin(), even.end());
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  const auto bytes = [&](std::size_t i) {
    return crosses[all[i]].at(static_cast<double>(problem.batch));
  };
  std::size_t first = 0;
  for (std::size_t i = 1; i < std::min(all.size(), kFirst); ++i) {
    if (bytes(i) < bytes(first)) first = i;
  }
  std::vector<std::size_t> found;
  for (std::size_t i = first; i < all.size(); ++i) {
    const bool fewer = (i == 0 || bytes(i) < kFarFewer * bytes(i - 1)) &&
                       (i + 1 == all.size() || bytes(i) < kFarFewer * bytes(i + 1));
    if (i == first || fewer || std::ranges::binary_search(even, all[i])) found.push_back(all[i]);
  }
  return found;
}

}  // namespace

std::vector<OpId> forward_ops(const cost::Problem& problem) {
  std::vector<OpId> forward;
  for (OpId op : problem.folded->ops) {
    if (is_forward(problem, op)) forward.push_back(op);
  }
  return forward;
}

Chain make_chain(const cost::Problem& problem, std::size_t layers) {
  EXPECT(layers > 0);
  const std::vector<OpId> forward = forward_ops(problem);
  return chain_cut_after(problem, cuts(problem, forward, crossing(problem, forward), layers));
}

Chain make_chain_of_blocks(const cost::Problem& problem, std::size_t layers) {
  EXPECT(layers > 0);
  return chain_cut_after(problem, cuts_of_blocks(problem, forward_ops(problem), layers));
}

Chain chain_cut_after(const cost::Problem& problem, const std::vector<std::size_t>& ends) {
  const graph::ModelGraph& graph = *problem.graph;
  const std::vector<OpId> forward = forward_ops(problem);
  IdVector<OpId, std::uint32_t> of_forward(graph.op_count(), 0);
  for (std::size_t i = 0; i < forward.size(); ++i) {
    of_forward[forward[i]] =
        static_cast<std::uint32_t>(std::lower_bound(ends.begin(), ends.end(), i) - ends.begin());
  }
  Chain chain;
  chain.layers.resize(ends.size() + 1);
  chain.layer_of = assign(problem, of_forward, static_cast<std::uint32_t>(chain.layers.size() - 1));

  const std::vector<AffineBytes> crosses = crossing(problem, forward);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    chain.layers[i].crossing_fixed = crosses[ends[i]].fixed - crosses[ends[i]].once;
    chain.layers[i].crossing_once = crosses[ends[i]].once;
    chain.layers[i].crossing_per_sample = crosses[ends[i]].per_sample;
  }
  for (TensorId tensor : graph.tensor_ids()) {
    const graph::Tensor& one = graph.tensor(tensor);
    const TensorId parameter = one.role == graph::TensorRole::kParameter ? tensor : one.of;
    const bool stays =
        one.role == graph::TensorRole::kParameter || one.role == graph::TensorRole::kOptimizerState;
    if (!stays || !parameter.valid()) continue;
    const auto readers = problem.folded->parameter_readers[parameter];
    if (readers.empty()) continue;
    Chain::Layer& layer = chain.layers[chain.layer_of[readers.front()]];
    layer.resident += graph.bytes(tensor, 1);
    if (tensor == parameter) layer.gradients += graph.bytes(tensor, 1);
  }
  const IdVector<OpId, std::uint8_t> of_parameters = made_of_parameters(problem);
  for (const auto& [producer, tensor] : made_for_others(problem, chain.layer_of)) {
    if (of_parameters[producer]) continue;
    Chain::Layer& layer = chain.layers[chain.layer_of[producer]];
    const AffineBytes bytes = bytes_of(graph, tensor);
    layer.made_fixed += bytes.fixed;
    layer.made_per_sample += bytes.per_sample;
  }
  IdVector<TensorId, std::uint8_t> saved(graph.tensor_count(), 0);
  for (OpId op : problem.folded->ops) {
    if (graph.op(op).phase != Phase::kBackward) continue;
    for (const Read& read : problem.folded->reads[op]) {
      if (!read.producer.valid() || saved[read.base] || !is_forward(problem, read.producer)) {
        continue;
      }
      saved[read.base] = 1;
      Chain::Layer& layer = chain.layers[chain.layer_of[read.producer]];
      const AffineBytes bytes = bytes_of(graph, read.base);
      layer.saved_fixed += bytes.fixed;
      layer.saved_per_sample += bytes.per_sample;
    }
  }
  return chain;
}

std::vector<MadeForOthers> made_for_others(const cost::Problem& problem,
                                           const IdVector<OpId, std::uint32_t>& part_of) {
  std::vector<MadeForOthers> made;
  IdVector<TensorId, std::uint8_t> known(problem.graph->tensor_count(), 0);
  for (OpId op : forward_ops(problem)) {
    for (const Read& read : problem.folded->reads[op]) {
      if (!read.producer.valid() || !is_forward(problem, read.producer)) continue;
      if (part_of[read.producer] == part_of[op] || std::exchange(known[read.base], 1)) continue;
      made.push_back({read.producer, read.base});
    }
  }
  return made;
}

Chain recomputed(Chain chain) {
  chain.recompute = true;
  for (Chain::Layer& layer : chain.layers) {
    chain.again_fixed = std::max(chain.again_fixed, layer.saved_fixed);
    chain.again_per_sample = std::max(chain.again_per_sample, layer.saved_per_sample);
    layer.saved_fixed = layer.made_fixed;
    layer.saved_per_sample = layer.made_per_sample;
  }
  return chain;
}

std::vector<double> times_before(const cost::Problem& problem, const Chain& chain,
                                 DeviceTypeId type, std::int64_t samples) {
  std::vector<double> before(chain.layers.size() + 1, 0);
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase == Phase::kUpdate) continue;
    const double seconds = to_seconds(problem.costs.duration(op, type, samples));
    before[chain.layer_of[op] + 1] +=
        is_forward(problem, op) && chain.recompute ? 2 * seconds : seconds;
  }
  for (std::size_t i = 1; i < before.size(); ++i) before[i] += before[i - 1];
  return before;
}

}  // namespace heterog::search
