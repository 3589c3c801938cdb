// Devices and samples of every layer, from the stages that they are in.
#include "search/pipeline/stage_strategy.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "decide/decisions.h"
#include "decide/layout.h"
#include "decide/pass_turns.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

using decide::OrderPolicy;
using decide::Strategy;
using graph::Phase;

// A number of samples for each weight, all together `samples`.
std::vector<std::int64_t> shared_out(const std::vector<double>& weights, std::int64_t samples) {
  std::vector<decide::Replica> replicas;
  for (std::size_t i = 0; i < weights.size(); ++i) replicas.push_back({DeviceId(i), weights[i]});
  std::vector<std::int64_t> sizes(weights.size(), 0);
  for (const decide::Slice& slice : decide::slice_batch(replicas, samples)) {
    sizes[slice.device.value()] = slice.size();
  }
  return sizes;
}

// The replicas of each layer, which have so many samples of each of so many micro-batches.
std::vector<std::vector<decide::Replica>> given_replicas(const Chain& chain,
                                                         const std::vector<Stage>& stages,
                                                         const Staging& staging) {
  std::vector<std::vector<decide::Replica>> replicas(chain.layers.size());
  for (const Stage& stage : stages) {
    EXPECT(stage.devices.size() == staging.samples.size());
    for (std::size_t i = 0; i < stage.devices.size(); ++i) {
      const auto samples = static_cast<double>(staging.samples[i] * staging.micro_batches);
      for (std::size_t layer = stage.begin; layer < stage.end; ++layer) {
        replicas[layer].push_back({stage.devices[i], samples});
      }
    }
  }
  return replicas;
}

// The replicas of each layer, weighed by their samples. Each pipeline has its part of every
// micro-batch, the same in all of its stages, so that pipelines side by side never wait for each
// other; of that each device has its own.
std::vector<std::vector<decide::Replica>> layer_replicas(const Chain& chain,
                                                         const StageCosts& costs,
                                                         const Pipelines& pipelines,
                                                         std::int64_t batch) {
  std::vector<double> speeds;
  for (const std::vector<Stage>& stages : pipelines) {
    double slowest = 0;
    for (const Stage& stage : stages) {
      slowest = std::max(slowest, costs.compute(stage.begin, stage.end, stage.devices));
    }
    speeds.push_back(1 / slowest);
  }
  const std::vector<std::int64_t> of_pipeline = shared_out(speeds, batch);
  std::vector<std::vector<decide::Replica>> replicas(chain.layers.size());
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    for (const Stage& stage : pipelines[p]) {
      std::vector<double> each;
      for (DeviceId device : stage.devices) {
        each.push_back(costs.speed(stage.begin, stage.end, device, stage.devices.size()));
      }
      const std::vector<std::int64_t> samples = shared_out(each, of_pipeline[p]);
      for (std::size_t i = 0; i < samples.size(); ++i) {
        if (samples[i] == 0) continue;
        for (std::size_t layer = stage.begin; layer < stage.end; ++layer) {
          replicas[layer].push_back({stage.devices[i], static_cast<double>(samples[i])});
        }
      }
    }
  }
  return replicas;
}

// Gives what is made of parameters alone units of its own: the devices of all that reads it.
void make_where_read(const cost::Problem& problem, const Chain& chain, Strategy& strategy) {
  for (const graph::ParameterOp& made : problem.folded->parameter_ops) {
    std::vector<decide::Replica> devices;
    bool elsewhere = false;
    for (OpId reader : made.readers) {
      elsewhere |= chain.layer_of[reader] != chain.layer_of[made.op];
      for (const decide::Replica& one : strategy.units[strategy.unit_of_op[reader]].replicas) {
        devices.push_back({one.device, 1});
      }
    }
    if (!elsewhere) continue;
    std::ranges::sort(devices, {}, &decide::Replica::device);
    const auto rest = std::ranges::unique(devices);
    devices.erase(rest.begin(), rest.end());
    strategy.unit_of_op[made.op] = strategy.units.push_back({.replicas = std::move(devices)});
  }
}

struct TiedLayers {
  std::uint32_t first = 0, last = 0;
};

// Of the parameters that several layers read, themselves or as what is made of them alone.
std::vector<TiedLayers> tied_layers(const cost::Problem& problem, const Chain& chain) {
  const graph::FoldedGraph& folded = *problem.folded;
  std::map<OpId, const graph::ParameterOp*> made_by;
  for (const graph::ParameterOp& made : folded.parameter_ops) made_by[made.op] = &made;
  std::vector<TiedLayers> tied;
  for (TensorId parameter : problem.graph->parameters()) {
    TiedLayers layers{.first = static_cast<std::uint32_t>(chain.layers.size()), .last = 0};
    const auto read_in = [&](OpId op) {
      if (problem.graph->op(op).phase != Phase::kForward) return;
      layers.first = std::min(layers.first, chain.layer_of[op]);
      layers.last = std::max(layers.last, chain.layer_of[op]);
    };
    for (OpId op : folded.parameter_readers[parameter]) {
      const auto made = made_by.find(op);
      if (made == made_by.end()) {
        read_in(op);
      } else {
        for (OpId reader : made->second->readers) read_in(reader);
      }
    }
    if (layers.first < layers.last) tied.push_back(layers);
  }
  return tied;
}

}  // namespace

bool ties_layers(const cost::Problem& problem, const Chain& chain) {
  return !tied_layers(problem, chain).empty();
}

bool shares_copies(const cost::Problem& problem, const Chain& chain) {
  return std::ranges::any_of(problem.folded->parameter_ops, [&](const graph::ParameterOp& made) {
    return std::ranges::any_of(made.readers, [&](OpId reader) {
      return chain.layer_of[reader] != chain.layer_of[made.op];
    });
  });
}

Strategy stage_strategy(const cost::Problem& problem, const Chain& chain, const StageCosts& costs,
                        const Pipelines& pipelines, const Staging& staging) {
  Strategy strategy;
  for (OpId op : problem.graph->op_ids()) {
    strategy.unit_of_op.push_back(UnitId(chain.layer_of[op]));
  }
  const bool given = !staging.samples.empty();
  EXPECT(!given || pipelines.size() == 1);
  for (auto& replicas : given ? given_replicas(chain, pipelines.front(), staging)
                              : layer_replicas(chain, costs, pipelines, problem.batch)) {
    strategy.units.push_back({.replicas = std::move(replicas),
                              .recompute = staging.recompute,
                              .in_turn = staging.sharing == Sharing::kInTurn});
  }
  if (staging.tied_together) {
    for (const TiedLayers& tied : tied_layers(problem, chain)) {
      strategy.units[UnitId(tied.first)].replicas = strategy.units[UnitId(tied.last)].replicas;
    }
  }
  if (staging.copies == Copies::kWhereRead) make_where_read(problem, chain, strategy);
  strategy.bucket_bytes = given ? decide::kOneBucketBytes : decide::kHorovodBucketBytes;
  strategy.order = OrderPolicy::kRankQueued;
  if (staging.micro_batches == 1) return strategy;
  strategy.micro_batches = staging.micro_batches;
  strategy.pattern = staging.pattern;
  strategy.strict = staging.strict;
  if (!staging.strict) {
    strategy.order = OrderPolicy::kPriority;
    strategy.order_rounds = staging.order_rounds;
  }
  if (pipelines.size() == 1) return strategy;
  strategy.pipeline_of.assign(problem.cluster->device_count(), 0);
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    for (const Stage& stage : pipelines[p]) {
      for (DeviceId device : stage.devices) {
        strategy.pipeline_of[device] = static_cast<std::uint32_t>(p);
      }
    }
  }
  return strategy;
}

bool in_line(const cost::Problem& problem, const Chain& chain) {
  IdVector<OpId, UnitId> layer_of;
  for (std::uint32_t layer : chain.layer_of) layer_of.push_back(UnitId(layer));
  const IdVector<OpId, std::uint8_t> apart = decide::ops_between_turns(problem, layer_of);
  const auto takes_turns = [&](OpId op) {
    return problem.graph->op(op).phase != Phase::kUpdate && !apart[op];
  };
  // Along the forward pass and back.
  const auto place = [&](OpId op) {
    const std::size_t layer = chain.layer_of[op];
    const bool forward = problem.graph->op(op).phase == Phase::kForward;
    return forward ? layer : 2 * chain.layers.size() - layer;
  };
  for (OpId op : problem.folded->ops) {
    if (!takes_turns(op)) continue;
    // If so, on the samples of all micro-batches together.
    const bool once = decide::runs_once_per_device(problem, op);
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (!read.producer.valid() || !takes_turns(read.producer)) continue;
      const bool same = problem.splits->rules[read.base].kind == graph::SplitKind::kSame;
      if (once && !same) return false;
      if (place(read.producer) > place(op)) return false;
    }
  }
  return true;
}

}  // namespace heterog::search
