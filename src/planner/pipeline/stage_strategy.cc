// Lists of devices for every layer, then the turns of each device in the order of its stage.
#include "planner/pipeline/stage_strategy.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "compiler/accumulate.h"
#include "planner/baselines.h"

namespace heterog::planner {
namespace {

using compiler::Instances;
using compiler::Strategy;
using compiler::Turn;
using compiler::UnitDecision;
using graph::Phase;

// Numbers of units: forward passes of layers, then their backward passes and updates, then what no
// turn may hold.
struct Units {
  std::size_t layers = 0;
  UnitId forward(std::size_t layer) const { return UnitId(layer); }
  UnitId backward(std::size_t layer) const { return UnitId(layers + layer); }
  UnitId apart(std::size_t layer) const { return UnitId(2 * layers + layer); }
};

struct Place {
  std::size_t pipeline = 0;
  std::size_t stage = 0;
};

struct Placement {
  const Pipelines& pipelines;
  std::vector<std::vector<StageTurns>> turns;  // [pipeline][stage]
  std::vector<Place> of_device;
};

Placement place(const cost::Problem& problem, const Pipelines& pipelines, const Staging& staging) {
  Placement placement{pipelines, {}, std::vector<Place>(problem.cluster->device_count())};
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    placement.turns.push_back(
        stage_turns(staging.schedule, pipelines[p].size(), staging.micro_batches));
    for (std::size_t s = 0; s < pipelines[p].size(); ++s) {
      for (DeviceId device : pipelines[p][s].devices) placement.of_device[device.value()] = {p, s};
    }
  }
  return placement;
}

// A number of samples for each weight, all together `samples`.
std::vector<std::int64_t> shared_out(const std::vector<double>& weights, std::int64_t samples) {
  std::vector<compiler::Replica> replicas;
  for (double weight : weights) replicas.push_back({DeviceId(0), weight});
  std::vector<std::int64_t> sizes;
  const UnitDecision decision{.replicas = replicas, .instances = Instances::kPerEntry};
  for (const compiler::Slice& slice : compiler::entry_slices(decision, samples)) {
    sizes.push_back(slice.size());
  }
  return sizes;
}

// All samples to the entry of which most is left, which may have less left than that.
std::vector<std::int64_t> all_to_one(const std::vector<std::int64_t>& left, std::int64_t samples) {
  std::vector<std::int64_t> part(left.size(), 0);
  part[static_cast<std::size_t>(std::ranges::max_element(left) - left.begin())] = samples;
  return part;
}

// The list of each layer. Each pipeline has its part of every micro-batch, the same in all of its
// stages, so that pipelines side by side never wait for each other; of that each device has its
// own.
std::vector<UnitDecision> layer_decisions(const Chain& chain, const StageCosts& costs,
                                          const Pipelines& pipelines,
                                          const std::vector<std::int64_t>& begins,
                                          Sharing sharing) {
  std::vector<double> speeds;
  for (const std::vector<Stage>& stages : pipelines) {
    double slowest = 0;
    for (const Stage& stage : stages) {
      slowest = std::max(slowest, costs.compute(stage.begin, stage.end, stage.devices));
    }
    speeds.push_back(1 / slowest);
  }
  const std::vector<std::int64_t> of_pipeline = shared_out(speeds, begins.back());
  std::vector<std::int64_t> pipeline_left = of_pipeline;
  std::vector<std::vector<std::vector<std::int64_t>>> device_left;  // [pipeline][stage][device]
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    auto& of_stage = device_left.emplace_back();
    for (const Stage& stage : pipelines[p]) {
      std::vector<double> each;
      for (DeviceId device : stage.devices) {
        each.push_back(costs.speed(stage.begin, stage.end, device, stage.devices.size()));
      }
      of_stage.push_back(shared_out(each, of_pipeline[p]));
    }
  }
  std::vector<UnitDecision> decisions(
      chain.layers.size(), UnitDecision{.replicas = {}, .instances = Instances::kPerEntry});
  for (std::size_t m = 0; m + 1 < begins.size(); ++m) {
    const auto of_all = compiler::next_part(pipeline_left, begins[m + 1] - begins[m]);
    for (std::size_t p = 0; p < pipelines.size(); ++p) {
      pipeline_left[p] -= of_all[p];
      if (of_all[p] == 0) continue;
      for (std::size_t s = 0; s < pipelines[p].size(); ++s) {
        const Stage& stage = pipelines[p][s];
        std::vector<std::int64_t>& left = device_left[p][s];
        const auto part = sharing == Sharing::kInTurn ? all_to_one(left, of_all[p])
                                                      : compiler::next_part(left, of_all[p]);
        for (std::size_t i = 0; i < part.size(); ++i) {
          left[i] -= part[i];
          if (part[i] == 0) continue;
          for (std::size_t layer = stage.begin; layer < stage.end; ++layer) {
            decisions[layer].replicas.push_back({stage.devices[i], static_cast<double>(part[i])});
          }
        }
      }
    }
  }
  return decisions;
}

// The entry of each micro-batch on the device in a unit's list; none where it has no samples.
std::vector<std::optional<std::uint32_t>> entries_of(const UnitDecision& unit, DeviceId device,
                                                     std::int64_t batch,
                                                     std::int64_t micro_batches) {
  std::vector<std::optional<std::uint32_t>> entries(static_cast<std::size_t>(micro_batches));
  const std::vector<compiler::Slice> slices = compiler::entry_slices(unit, batch);
  std::size_t micro_batch = 0;
  for (std::uint32_t entry = 0; entry < slices.size(); ++entry) {
    const auto end = [&] {
      return batch * static_cast<std::int64_t>(micro_batch + 1) / micro_batches;
    };
    while (slices[entry].begin >= end()) ++micro_batch;
    if (slices[entry].device == device) entries[micro_batch] = entry;
  }
  return entries;
}

// A stage's layers in runs of one list each: pipelines side by side cut at different places.
std::vector<std::pair<std::size_t, std::size_t>> runs_of(const Strategy& strategy,
                                                         const Stage& stage) {
  std::vector<std::pair<std::size_t, std::size_t>> runs;
  for (std::size_t layer = stage.begin; layer < stage.end; ++layer) {
    const bool goes_on = layer > stage.begin && strategy.units[UnitId(layer)].replicas ==
                                                    strategy.units[UnitId(layer - 1)].replicas;
    if (!goes_on) runs.emplace_back(layer, layer);
    runs.back().second = layer + 1;
  }
  return runs;
}

std::vector<Turn> turns_of(const cost::Problem& problem, const Strategy& strategy,
                           const Units& units, const Stage& stage, const StageTurns& turns,
                           DeviceId device) {
  const std::size_t micro_batches = turns.forward.size();
  struct Pass {
    std::size_t micro_batch = 0;
    bool forward = true;
  };
  std::vector<Pass> passes(2 * micro_batches);
  for (std::size_t m = 0; m < micro_batches; ++m) {
    passes[static_cast<std::size_t>(turns.forward[m])] = {m, true};
    passes[static_cast<std::size_t>(turns.backward[m])] = {m, false};
  }
  const auto runs = runs_of(strategy, stage);
  std::vector<std::vector<std::optional<std::uint32_t>>> entries;
  for (const auto& [begin, end] : runs) {
    entries.push_back(entries_of(strategy.units[units.forward(begin)], device, problem.batch,
                                 static_cast<std::int64_t>(micro_batches)));
  }
  std::vector<Turn> made;
  for (const Pass& pass : passes) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::size_t run = pass.forward ? i : runs.size() - 1 - i;
      const auto& entry = entries[run][pass.micro_batch];
      if (!entry) continue;
      const auto [begin, end] = runs[run];
      const auto unit = [&](std::size_t layer) {
        return pass.forward ? units.forward(layer) : units.backward(layer);
      };
      made.push_back({unit(begin), UnitId(unit(end - 1).value() + 1), *entry});
    }
  }
  return made;
}

// Ops of no turn: what every micro-batch needs of all others, and what adds up gradients of a
// parameter that several layers read, of which those of other stages come when they are whole.
IdVector<OpId, std::uint8_t> ops_apart(const cost::Problem& problem, const Chain& chain) {
  IdVector<OpId, std::uint8_t> apart = compiler::needed_by_all(problem);
  for (OpId op : problem.folded->ops) {
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (!read.producer.valid() || read.use != graph::OperandUse::kPartial) continue;
      const bool elsewhere = chain.layer_of[read.producer] != chain.layer_of[op];
      if (elsewhere || apart[read.producer]) apart[op] = 1;
    }
  }
  return apart;
}

// Gives what is made of parameters alone units of its own: the devices of all that reads it.
void make_where_read(const cost::Problem& problem, const Chain& chain, Strategy& strategy) {
  for (const graph::ParameterOp& made : problem.folded->parameter_ops) {
    std::vector<compiler::Replica> devices;
    bool elsewhere = false;
    for (OpId reader : made.readers) {
      elsewhere |= chain.layer_of[reader] != chain.layer_of[made.op];
      for (const compiler::Replica& one : strategy.units[strategy.unit_of_op[reader]].replicas) {
        devices.push_back({one.device, 1});
      }
    }
    if (!elsewhere) continue;
    std::ranges::sort(devices, {}, &compiler::Replica::device);
    const auto rest = std::ranges::unique(devices);
    devices.erase(rest.begin(), rest.end());
    strategy.unit_of_op[made.op] = strategy.units.push_back({.replicas = std::move(devices)});
  }
}

}  // namespace

bool shares_copies(const cost::Problem& problem, const Chain& chain) {
  return std::ranges::any_of(problem.folded->parameter_ops, [&](const graph::ParameterOp& made) {
    return std::ranges::any_of(made.readers, [&](OpId reader) {
      return chain.layer_of[reader] != chain.layer_of[made.op];
    });
  });
}

Strategy stage_strategy(const cost::Problem& problem, const Chain& chain, const StageCosts& costs,
                        const Pipelines& pipelines, const Staging& staging) {
  const Units units{chain.layers.size()};
  const IdVector<OpId, std::uint8_t> apart = ops_apart(problem, chain);
  Strategy strategy;
  for (OpId op : problem.graph->op_ids()) {
    const std::size_t layer = chain.layer_of[op];
    const bool forward = problem.graph->op(op).phase == Phase::kForward;
    strategy.unit_of_op.push_back(apart[op] ? units.apart(layer)
                                  : forward ? units.forward(layer)
                                            : units.backward(layer));
  }
  const std::vector<UnitDecision> layers = layer_decisions(
      chain, costs, pipelines,
      compiler::micro_batch_boundaries(problem.batch, staging.micro_batches), staging.sharing);
  for (int phase = 0; phase < 3; ++phase) {
    for (const UnitDecision& decision : layers) {
      strategy.units.push_back(decision);
      if (phase == 0) strategy.units.raw().back().recompute = staging.recompute;
    }
  }
  if (staging.copies == Copies::kWhereRead) make_where_read(problem, chain, strategy);
  strategy.bucket_bytes = kHorovodBucketBytes;
  strategy.order = compiler::OrderPolicy::kRankQueued;
  if (staging.micro_batches == 1) return strategy;
  const Placement placement = place(problem, pipelines, staging);
  if (staging.keeping == Keeping::kAsPriorities) {
    return compiler::with_turns(problem, std::move(strategy), staging.micro_batches,
                                [&](OpId op, DeviceId device, std::int64_t micro_batch) {
                                  const Place at = placement.of_device[device.value()];
                                  const StageTurns& turns = placement.turns[at.pipeline][at.stage];
                                  const auto m = static_cast<std::size_t>(micro_batch);
                                  const bool forward =
                                      problem.graph->op(op).phase == Phase::kForward;
                                  return forward ? turns.forward[m] : turns.backward[m];
                                });
  }
  strategy.sequence.assign(problem.cluster->device_count(), {});
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    for (std::size_t s = 0; s < pipelines[p].size(); ++s) {
      for (DeviceId device : pipelines[p][s].devices) {
        strategy.sequence[device] =
            turns_of(problem, strategy, units, pipelines[p][s], placement.turns[p][s], device);
      }
    }
  }
  return strategy;
}

bool in_line(const cost::Problem& problem, const Chain& chain) {
  const IdVector<OpId, std::uint8_t> apart = ops_apart(problem, chain);
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
    const auto outputs = problem.graph->outputs(op);
    // Such an op runs once a device, on the samples of all micro-batches together.
    const bool replaces = std::ranges::any_of(outputs, [&](TensorId out) {
      return out.valid() && problem.graph->tensor(out).replaces.valid();
    });
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (!read.producer.valid() || !takes_turns(read.producer)) continue;
      if (replaces && problem.splits->rules[read.base].kind != graph::SplitKind::kSame) {
        return false;
      }
      if (place(read.producer) > place(op)) return false;
    }
  }
  return true;
}

}  // namespace heterog::planner
