// Estimates what each device keeps, cuts and shares by it, and corrects the estimate by simulation.
#include "search/starts/memory_fill.h"

#include <algorithm>
#include <numeric>

#include "cost/collective.h"
#include "space/cluster_summary.h"

namespace heterog::search {

namespace {

using decide::SyncMethod;

// Sums over the groups before each place, so that any block is a difference.
struct Prefix {
  std::vector<double> parameters{0}, optimizer{0}, activations{0};
  IdVector<DeviceTypeId, std::vector<double>> seconds;
};

Prefix prefix_sums(const cost::Problem& problem, const space::GroupSummaries& groups) {
  Prefix prefix;
  prefix.seconds.assign(problem.cluster->type_count(), {0});
  for (const space::GroupSummary& group : groups) {
    prefix.parameters.push_back(prefix.parameters.back() +
                                static_cast<double>(group.parameter_bytes));
    prefix.optimizer.push_back(prefix.optimizer.back() +
                               static_cast<double>(group.optimizer_bytes));
    prefix.activations.push_back(prefix.activations.back() +
                                 static_cast<double>(group.activation_bytes));
    for (DeviceTypeId type : id_range<DeviceTypeId>(prefix.seconds.size())) {
      prefix.seconds[type].push_back(prefix.seconds[type].back() + group.seconds_on[type]);
    }
  }
  return prefix;
}

class Filler {
 public:
  Filler(const cost::Problem& problem, const Prefix& prefix, const BlockTemplate& blocks,
         const IdVector<DeviceId, double>& budget)
      : problem_(problem), prefix_(prefix), template_(blocks), budget_(budget) {}

  // End of each block at this share of the budgets; empty if the groups do not all find a place.
  std::vector<std::size_t> cut(double share) const {
    const std::size_t groups = prefix_.activations.size() - 1;
    std::vector<std::size_t> ends;
    std::size_t begin = 0;
    for (std::size_t block = 0; block < template_.blocks.size(); ++block) {
      // The load of a block only grows with its end: halve the range.
      std::size_t low = begin, high = groups;
      while (low < high) {
        const std::size_t middle = (low + high + 1) / 2;
        if (fits(block, begin, middle, share)) {
          low = middle;
        } else {
          high = middle - 1;
        }
      }
      ends.push_back(begin = low);
    }
    if (begin < groups) ends.clear();
    return ends;
  }

  std::optional<FilledBlocks> fill() const {
    double share = 1;
    std::vector<std::size_t> ends = cut(1);
    if (ends.empty()) return std::nullopt;
    if (!template_.fill_first && template_.blocks.size() > 1) {
      double low = 0;
      for (int step = 0; step < 20; ++step) {
        const double middle = (low + share) / 2;
        std::vector<std::size_t> trial = cut(middle);
        if (trial.empty()) {
          low = middle;
        } else {
          share = middle;
          ends = std::move(trial);
        }
      }
    }
    FilledBlocks filled;
    filled.bytes.assign(problem_.cluster->device_count(), 0);
    std::size_t begin = 0;
    for (std::size_t block = 0; block < ends.size(); ++block) {
      if (ends[block] == begin) continue;
      add_block(block, begin, ends[block], filled);
      begin = ends[block];
    }
    return filled;
  }

 private:
  // Bytes that a device of the block keeps whatever its share: parameters, the optimizer's state
  // (with a server, its part of it) and the gradients that wait to be aggregated, about half.
  double fixed_bytes(std::size_t block, std::size_t begin, std::size_t end) const {
    const double parameters = prefix_.parameters[end] - prefix_.parameters[begin];
    const double optimizer = prefix_.optimizer[end] - prefix_.optimizer[begin];
    const auto devices = static_cast<double>(template_.blocks[block].size());
    if (devices == 1) return parameters + optimizer;
    const bool server = template_.sync == SyncMethod::kParameterServer;
    return 1.5 * parameters + (server ? optimizer / devices : optimizer);
  }
  // The most samples that each device of the block can take.
  std::vector<std::int64_t> most_samples(std::size_t block, std::size_t begin, std::size_t end,
                                         double share) const {
    const double fixed = fixed_bytes(block, begin, end);
    const double a_sample = activation_bytes(begin, end) / static_cast<double>(problem_.batch);
    std::vector<std::int64_t> samples;
    for (DeviceId device : template_.blocks[block]) {
      const double room = budget_[device] * share - fixed;
      if (room < 0) {
        samples.push_back(0);
      } else if (a_sample * static_cast<double>(problem_.batch) <= room) {
        samples.push_back(problem_.batch);
      } else {
        samples.push_back(static_cast<std::int64_t>(room / a_sample));
      }
    }
    return samples;
  }
  double activation_bytes(std::size_t begin, std::size_t end) const {
    return prefix_.activations[end] - prefix_.activations[begin];
  }
  bool fits(std::size_t block, std::size_t begin, std::size_t end, double share) const {
    const std::vector<std::int64_t> samples = most_samples(block, begin, end, share);
    return std::accumulate(samples.begin(), samples.end(), std::int64_t{0}) >= problem_.batch;
  }

  // Samples that end together as far as memory lets them: one after another to the device that
  // would be done with it first.
  void add_block(std::size_t block, std::size_t begin, std::size_t end,
                 FilledBlocks& filled) const {
    const std::vector<DeviceId>& devices = template_.blocks[block];
    // Memory at hand is all of the budget, however little of it the cut needed.
    const std::vector<std::int64_t> most = most_samples(block, begin, end, 1);
    std::vector<double> seconds;  // a sample
    for (DeviceId device : devices) {
      const std::vector<double>& sums = prefix_.seconds[problem_.cluster->device(device).type];
      seconds.push_back(std::max(1e-9, sums[end] - sums[begin]) /
                        static_cast<double>(problem_.batch));
    }
    std::vector<std::int64_t> samples(devices.size(), 0);
    const auto done_at = [&](std::size_t i) {
      return static_cast<double>(samples[i] + 1) * seconds[i];
    };
    double slowest = 0;
    for (std::int64_t sample = 0; sample < problem_.batch; ++sample) {
      std::size_t next = devices.size();
      for (std::size_t i = 0; i < devices.size(); ++i) {
        if (samples[i] >= most[i]) continue;
        if (next == devices.size() || done_at(i) < done_at(next)) next = i;
      }
      EXPECT(next < devices.size());
      slowest = std::max(slowest, done_at(next));
      ++samples[next];
    }
    decide::UnitDecision decision{.sync = template_.sync};
    std::vector<DeviceId> used;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (samples[i] == 0) continue;
      decision.replicas.push_back({devices[i], static_cast<double>(samples[i])});
      used.push_back(devices[i]);
      filled.bytes[devices[i]] += fixed_bytes(block, begin, end) +
                                  activation_bytes(begin, end) * static_cast<double>(samples[i]) /
                                      static_cast<double>(problem_.batch);
    }
    filled.seconds += slowest;
    if (used.size() > 1) {
      std::sort(used.begin(), used.end());
      const auto bytes = static_cast<Bytes>(prefix_.parameters[end] - prefix_.parameters[begin]);
      filled.seconds += to_seconds(cost::all_reduce_cost(*problem_.cluster, used, bytes).duration);
    }
    for (std::size_t group = begin; group < end; ++group) {
      filled.strategy.units.push_back(decision);
    }
  }

  const cost::Problem& problem_;
  const Prefix& prefix_;
  const BlockTemplate& template_;
  const IdVector<DeviceId, double>& budget_;
};

// Devices by speed of the whole model, the fastest first.
std::vector<DeviceId> by_speed(const cost::Problem& problem) {
  std::vector<DeviceId> devices;
  for (DeviceId device : problem.cluster->device_ids()) devices.push_back(device);
  std::stable_sort(devices.begin(), devices.end(), [&](DeviceId a, DeviceId b) {
    return problem.costs.model_speed(problem.cluster->device(a).type) >
           problem.costs.model_speed(problem.cluster->device(b).type);
  });
  return devices;
}

// Devices with the same key in one block, blocks in order of their first device.
template <class Key>
std::vector<std::vector<DeviceId>> blocks_by(const std::vector<DeviceId>& devices, const Key& key) {
  std::vector<std::vector<DeviceId>> blocks;
  for (DeviceId device : devices) {
    auto it = std::find_if(blocks.begin(), blocks.end(),
                           [&](const auto& block) { return key(block.front()) == key(device); });
    if (it == blocks.end()) {
      blocks.push_back({device});
    } else {
      it->push_back(device);
    }
  }
  return blocks;
}

struct Trial {
  BlockTemplate blocks;
  IdVector<DeviceId, double> budget;
  FilledBlocks filled;
  Evaluation evaluation;
};

IdVector<DeviceId, double> whole_budget(const cost::Problem& problem) {
  IdVector<DeviceId, double> budget;
  for (DeviceId device : problem.cluster->device_ids()) {
    budget.push_back(space::capacity_bytes(problem, device));
  }
  return budget;
}

}  // namespace

std::vector<BlockTemplate> block_templates(const cost::Problem& problem) {
  const cluster::Cluster& cluster = *problem.cluster;
  const std::vector<DeviceId> devices = by_speed(problem);
  const auto type = [&](DeviceId device) { return cluster.device(device).type; };
  const auto machine = [&](DeviceId device) { return cluster.device(device).machine; };

  std::vector<std::vector<std::vector<DeviceId>>> divisions = {{devices}};
  // The faster types alone.
  for (std::size_t n = devices.size() - 1; n >= 1; --n) {
    if (type(devices[n]) != type(devices[n - 1])) {
      divisions.push_back({{devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(n)}});
    }
  }
  // Like mixtures: devices dealt round, as to players.
  for (std::size_t n = 2; n <= 4 && 2 * n <= devices.size(); ++n) {
    std::vector<std::vector<DeviceId>> blocks(n);
    for (std::size_t i = 0; i < devices.size(); ++i) blocks[i % n].push_back(devices[i]);
    divisions.push_back(std::move(blocks));
  }
  divisions.push_back(blocks_by(devices, type));
  divisions.push_back(blocks_by(devices, machine));
  divisions.push_back(blocks_by(devices, [](DeviceId device) { return device; }));

  std::vector<BlockTemplate> templates;
  for (const auto& division : divisions) {
    const bool replicated = std::any_of(division.begin(), division.end(),
                                        [](const auto& block) { return block.size() > 1; });
    for (SyncMethod sync : {SyncMethod::kAllReduce, SyncMethod::kParameterServer}) {
      if (!replicated && sync == SyncMethod::kParameterServer) continue;
      templates.push_back({.blocks = division, .sync = sync});
      if (division.size() == 1) continue;
      templates.push_back({.blocks = division, .sync = sync, .fill_first = true});
      auto backwards = division;
      std::reverse(backwards.begin(), backwards.end());
      templates.push_back({.blocks = backwards, .sync = sync});
      templates.push_back({.blocks = backwards, .sync = sync, .fill_first = true});
    }
  }
  return templates;
}

std::optional<FilledBlocks> fill_blocks(const cost::Problem& problem,
                                        const space::GroupSummaries& groups,
                                        const BlockTemplate& blocks,
                                        const IdVector<DeviceId, double>& budget) {
  const Prefix prefix = prefix_sums(problem, groups);
  return Filler(problem, prefix, blocks, budget).fill();
}

std::vector<Tried> memory_fill(BatchEvaluator& evaluator, const MemoryFillOptions& options) {
  const cost::Problem& problem = evaluator.problem();
  const space::GroupSummaries groups = space::summarize_groups(problem);
  const Prefix prefix = prefix_sums(problem, groups);
  std::vector<Trial> trials;
  for (BlockTemplate& blocks : block_templates(problem)) {
    if (options.single_block && blocks.blocks.size() > 1) continue;
    Trial trial{.blocks = std::move(blocks), .budget = whole_budget(problem)};
    auto filled = Filler(problem, prefix, trial.blocks, trial.budget).fill();
    if (!filled) continue;
    trial.filled = std::move(*filled);
    trials.push_back(std::move(trial));
  }
  std::stable_sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) {
    return a.filled.seconds < b.filled.seconds;
  });
  if (trials.size() > options.templates) trials.resize(options.templates);

  std::vector<Tried> tried;
  for (int round = 0; round < options.rounds && !trials.empty(); ++round) {
    std::vector<decide::Strategy> strategies;
    for (const Trial& trial : trials) strategies.push_back(trial.filled.strategy);
    const std::vector<Measured> measured = evaluator.evaluate(strategies);
    std::vector<Trial> again;
    for (std::size_t i = 0; i < trials.size(); ++i) {
      tried.push_back({std::move(trials[i].filled.strategy), measured[i].evaluation});
      if (measured[i].evaluation.feasible) continue;
      // What the estimate left out (workspace, what is in flight) stays left out: a budget is the
      // memory without it, less a two-hundredth for what varies with the cut.
      for (DeviceId device : problem.cluster->device_ids()) {
        if (trials[i].filled.bytes[device] == 0) continue;
        const auto memory = static_cast<double>(problem.cluster->device(device).memory_bytes);
        const double left_out =
            static_cast<double>(measured[i].peak_bytes[device]) - trials[i].filled.bytes[device];
        trials[i].budget[device] = 0.995 * memory - left_out;
      }
      auto filled = Filler(problem, prefix, trials[i].blocks, trials[i].budget).fill();
      if (!filled) continue;
      trials[i].filled = std::move(*filled);
      again.push_back(std::move(trials[i]));
    }
    trials = std::move(again);
  }
  std::stable_sort(tried.begin(), tried.end(), [](const Tried& a, const Tried& b) {
    return better(a.evaluation, b.evaluation);
  });
  return tried;
}

}  // namespace heterog::search
