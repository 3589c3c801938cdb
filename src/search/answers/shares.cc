// Balanced starts, then hill climbing over moves of samples between devices.
#include "search/answers/shares.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "decide/decisions.h"
#include "decide/micro_batches.h"
#include "search/answers/leave_out.h"
#include "search/starts/shards.h"

namespace heterog::search {

namespace {

using Devices = std::vector<DeviceId>;

// The donors and receivers of a round: so many of the slowest, and of the fastest.
constexpr std::size_t kEnds = 6;
constexpr int kMemoryRounds = 8;

struct OrderAndBuckets {
  decide::OrderPolicy order;
  Bytes bucket_bytes;
};
// The first is DistributedDataParallel's.
constexpr std::array<OrderAndBuckets, 6> kSettings = {
    {{decide::OrderPolicy::kFifo, decide::kDdpBucketBytes},
     {decide::OrderPolicy::kFifo, 0},
     {decide::OrderPolicy::kRank, decide::kDdpBucketBytes},
     {decide::OrderPolicy::kRank, 0},
     {decide::OrderPolicy::kRankQueued, decide::kDdpBucketBytes},
     {decide::OrderPolicy::kRankQueued, 0}}};

// How many samples a device is known to hold, and not to hold.
class MemoryBounds {
 public:
  explicit MemoryBounds(const cluster::Cluster& cluster)
      : cluster_(cluster), fits_(cluster.device_count()), over_(cluster.device_count()) {}

  void learn(const Samples& samples, const IdVector<DeviceId, Bytes>& peaks) {
    for (DeviceId device : cluster_.device_ids()) {
      const Point point{samples[device], peaks[device]};
      if (point.samples == 0) continue;
      if (point.peak <= cluster_.device(device).memory_bytes) {
        if (point.samples > fits_[device].samples) fits_[device] = point;
      } else if (over_[device].samples == 0 || point.samples < over_[device].samples) {
        over_[device] = point;
      }
    }
  }
  // The most that each device is expected to hold: peaks grow in proportion between what fits and
  // what does not.
  Samples most() const {
    Samples most(cluster_.device_count(), std::numeric_limits<std::int64_t>::max());
    for (DeviceId device : cluster_.device_ids()) {
      const Point &fit = fits_[device], &over = over_[device];
      if (over.samples == 0) continue;
      double part = 0.5;
      if (fit.samples > 0 && over.peak > fit.peak) {
        part = static_cast<double>(cluster_.device(device).memory_bytes - fit.peak) /
               static_cast<double>(over.peak - fit.peak);
      }
      const double expected =
          static_cast<double>(fit.samples) + part * static_cast<double>(over.samples - fit.samples);
      most[device] =
          std::clamp<std::int64_t>(static_cast<std::int64_t>(expected), 0, over.samples - 1);
    }
    return most;
  }

 private:
  struct Point {
    std::int64_t samples = 0;  // 0: none seen
    Bytes peak = 0;
  };
  const cluster::Cluster& cluster_;
  IdVector<DeviceId, Point> fits_;  // the most that fitted
  IdVector<DeviceId, Point> over_;  // the least that did not
};

class Search {
 public:
  Search(BatchEvaluator& evaluator, const SharesOptions& options)
      : evaluator_(evaluator),
        problem_(evaluator.problem()),
        cluster_(*problem_.cluster),
        seconds_(problem_),
        bounds_(cluster_),
        options_(options),
        pass_(problem_.batch / options.micro_batches) {}

  SharesResult run() {
    SharesResult result;
    result.even = at_best_setting(even_samples());
    result.proportional = at_best_setting(samples_of(
        problem_, decide::proportional_decision(problem_, decide::SyncMethod::kAllReduce), pass_));
    best_ = better(result.proportional.evaluation, result.even.evaluation) ? result.proportional
                                                                           : result.even;
    end_ = evaluator_.evaluations() + options_.evaluations;
    for (;;) {
      setting_ = {best_.strategy.order, best_.strategy.bucket_bytes};
      if (done()) break;
      balance_within_memory();
      if (done()) break;
      leave_devices_out();
      if (options_.climb == ClimbShares::kNever) break;
      if (options_.climb == ClimbShares::kIfTheyFit && !best_.evaluation.feasible) break;
      climb();
      // Other shares may like another setting; what is found there is climbed from again.
      Shares again = at_best_setting(best_.samples);
      if (!better(again.evaluation, best_.evaluation)) break;
      best_ = std::move(again);
    }
    if (options_.micro_batches == 1 && options_.climb != ClimbShares::kNever) do_without();
    result.best = std::move(best_);
    result.evaluations = evaluator_.evaluations();
    return result;
  }

 private:
  Samples even_samples() const {
    return samples_of(problem_, decide::even_decision(problem_, decide::SyncMethod::kAllReduce),
                      pass_);
  }

  bool done() const { return options_.climb == ClimbShares::kNever && best_.evaluation.feasible; }

  bool spent() const {
    return evaluator_.used() >= options_.until || evaluator_.evaluations() >= end_;
  }

  Shares at_best_setting(const Samples& samples) {
    const std::size_t settings = options_.as_ddp ? 1 : kSettings.size();
    std::vector<decide::Strategy> strategies;
    for (std::size_t i = 0; i < settings; ++i) {
      strategies.push_back(strategy(samples, kSettings[i]));
    }
    const std::vector<Measured> measured = evaluator_.evaluate(strategies);
    std::size_t best = 0;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      bounds_.learn(samples, measured[i].peak_bytes);
      if (better(measured[i].evaluation, measured[best].evaluation)) best = i;
    }
    return {samples, std::move(strategies[best]), measured[best].evaluation};
  }

  decide::Strategy strategy(const Samples& samples, const OrderAndBuckets& setting) const {
    decide::Strategy strategy = shares_strategy(problem_, samples);
    strategy.order = setting.order;
    strategy.bucket_bytes = setting.bucket_bytes;
    if (options_.in_shards) strategy = sharded(std::move(strategy));
    return decide::accumulate(problem_, std::move(strategy), options_.micro_batches);
  }

  // Measures them all; true if one is better than the best so far, which it then is.
  bool improve(const std::vector<Samples>& candidates) {
    if (candidates.empty() || spent()) return false;
    std::vector<decide::Strategy> strategies;
    const std::int64_t left =
        std::min(end_ - evaluator_.evaluations(), evaluator_.evaluations_left());
    for (const Samples& samples : candidates) {
      if (static_cast<std::int64_t>(strategies.size()) == left) break;
      strategies.push_back(strategy(samples, setting_));
    }
    const std::vector<Measured> measured = evaluator_.evaluate(strategies);
    bool improved = false;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      bounds_.learn(candidates[i], measured[i].peak_bytes);
      if (!better(measured[i].evaluation, best_.evaluation)) continue;
      best_ = {candidates[i], std::move(strategies[i]), measured[i].evaluation};
      improved = true;
    }
    return improved;
  }

  void balance_within_memory() {
    Samples last;
    for (int round = 0; round < kMemoryRounds; ++round) {
      const auto balanced = balance(seconds_, pass_, bounds_.most());
      if (!balanced || (!last.empty() && *balanced == last)) return;
      last = *balanced;
      improve({last});
    }
  }

  // A slow device, or one behind a slow wire, may cost more than it computes.
  void leave_devices_out() {
    std::vector<Samples> rooms;
    const Samples most = bounds_.most();
    const auto without = [&](auto&& left_out) {
      Samples room = most;
      for (DeviceId device : cluster_.device_ids()) {
        if (left_out(device)) room[device] = 0;
      }
      rooms.push_back(std::move(room));
    };
    for (DeviceTypeId type : id_range<DeviceTypeId>(cluster_.type_count())) {
      without([&](DeviceId device) { return cluster_.device(device).type == type; });
      without([&](DeviceId device) { return cluster_.device(device).type != type; });
    }
    Devices order = by_seconds(even_samples());
    for (std::size_t count = 1; count < std::min<std::size_t>(order.size(), 2 * kEnds); ++count) {
      without([&](DeviceId device) {
        return std::find(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count),
                         device) != order.begin() + static_cast<std::ptrdiff_t>(count);
      });
    }
    std::vector<MachineId> machines;
    for (DeviceId device : order) {
      const MachineId machine = cluster_.device(device).machine;
      if (std::find(machines.begin(), machines.end(), machine) != machines.end()) continue;
      machines.push_back(machine);
      if (machines.size() > 2 * kEnds) break;
      without([&](DeviceId other) { return cluster_.device(other).machine == machine; });
      without([&](DeviceId other) { return cluster_.device(other).machine != machine; });
    }
    std::vector<Samples> candidates;
    for (const Samples& room : rooms) {
      if (auto balanced = balance(seconds_, pass_, room)) {
        candidates.push_back(std::move(*balanced));
      }
    }
    improve(candidates);
  }

  // Moves have to make the step shorter: what makes no difference is left behind by them.
  void do_without() {
    const auto fewer =
        leave_out(evaluator_, best_.strategy, best_.evaluation,
                  {.most = std::min(affordable_tries(problem_), end_ - evaluator_.evaluations())});
    if (!fewer) return;
    best_ = {samples_of(problem_, fewer->strategy.units[UnitId(0)], pass_), fewer->strategy,
             fewer->evaluation};
  }

  // Slowest first; ties: the earlier device.
  Devices by_seconds(const Samples& samples) const {
    Devices order;
    for (DeviceId device : cluster_.device_ids()) order.push_back(device);
    std::stable_sort(order.begin(), order.end(), [&](DeviceId a, DeviceId b) {
      return seconds_(a, samples[a]) > seconds_(b, samples[b]);
    });
    return order;
  }

  void climb() {
    std::int64_t most = 0;
    for (std::int64_t n : best_.samples) most = std::max(most, n);
    std::int64_t amount = 1;
    while (2 * amount <= most) amount *= 2;
    while (amount >= 1 && !spent()) {
      if (!improve(moves(amount))) amount /= 2;
    }
  }

  // The samples after each of `from` has given up to `amount`, spread over `to`.
  Samples moved(const Devices& from, const Devices& to, std::int64_t amount) const {
    Samples samples = best_.samples;
    std::int64_t hand = 0;
    for (DeviceId device : from) {
      const std::int64_t given = std::min(amount, samples[device]);
      samples[device] -= given;
      hand += given;
    }
    const auto receivers = static_cast<std::int64_t>(to.size());
    for (std::int64_t i = 0; i < receivers; ++i) {
      samples[to[static_cast<std::size_t>(i)]] += hand / receivers + (i < hand % receivers ? 1 : 0);
    }
    return samples;
  }

  // Sets of devices that act together: single ones, those of a machine and of a type, and those
  // that are as slow as the slowest; the slowest sets first.
  std::vector<Devices> sets() const {
    const Devices order = by_seconds(best_.samples);
    std::vector<Devices> sets;
    const auto add = [&](auto&& member) {
      Devices set;
      for (DeviceId device : order) {
        if (member(device)) set.push_back(device);
      }
      if (std::find(sets.begin(), sets.end(), set) == sets.end()) sets.push_back(std::move(set));
    };
    const double longest = seconds_(order[0], best_.samples[order[0]]);
    add([&](DeviceId d) { return seconds_(d, best_.samples[d]) >= 0.99 * longest; });
    for (DeviceId one : order) {
      const cluster::Device& device = cluster_.device(one);
      // Of devices that are alike in all, one stands for the others.
      const bool again = std::any_of(order.begin(), order.end(), [&](DeviceId d) {
        const cluster::Device& other = cluster_.device(d);
        return d.value() < one.value() && other.type == device.type &&
               other.machine == device.machine && best_.samples[d] == best_.samples[one];
      });
      if (!again) add([&](DeviceId d) { return d == one; });
      add([&](DeviceId d) { return cluster_.device(d).machine == device.machine; });
      add([&](DeviceId d) { return cluster_.device(d).type == device.type; });
    }
    return sets;
  }

  std::vector<Samples> moves(std::int64_t amount) const {
    const std::vector<Devices> all = sets();
    std::vector<Devices> receivers(all.rbegin(), all.rend());
    std::vector<Devices> donors = all;
    const auto keep = 2 * kEnds;
    if (donors.size() > keep) donors.resize(keep);
    if (receivers.size() > keep) receivers.resize(keep);
    std::vector<Samples> moves;
    const auto add = [&](const Devices& from, const Devices& to) {
      const bool apart = std::none_of(to.begin(), to.end(), [&](DeviceId device) {
        return std::find(from.begin(), from.end(), device) != from.end();
      });
      if (!apart || to.empty()) return;
      Samples samples = moved(from, to, amount);
      if (samples == best_.samples) return;
      if (std::find(moves.begin(), moves.end(), samples) == moves.end()) {
        moves.push_back(std::move(samples));
      }
    };
    for (const Devices& from : donors) {
      for (const Devices& to : receivers) add(from, to);
      Devices others;
      for (DeviceId device : cluster_.device_ids()) {
        if (std::find(from.begin(), from.end(), device) == from.end()) others.push_back(device);
      }
      add(from, others);
    }
    return moves;
  }

  BatchEvaluator& evaluator_;
  const cost::Problem& problem_;
  const cluster::Cluster& cluster_;
  const ModelSeconds seconds_;
  MemoryBounds bounds_;
  SharesOptions options_;
  std::int64_t pass_;  // samples of a micro-batch, on all devices
  OrderAndBuckets setting_ = kSettings[0];
  Shares best_;
  std::int64_t end_ = 0;
};

}  // namespace

Samples samples_of(const cost::Problem& problem, const decide::UnitDecision& decision,
                   std::int64_t batch) {
  Samples samples(problem.cluster->device_count(), 0);
  for (const decide::Slice& slice : decide::slice_batch(decision.replicas, batch)) {
    samples[slice.device] = slice.size();
  }
  return samples;
}

decide::Strategy shares_strategy(const cost::Problem& problem, const Samples& samples) {
  decide::UnitDecision decision{.replicas = {}, .sync = decide::SyncMethod::kAllReduce};
  for (DeviceId device : problem.cluster->device_ids()) {
    if (samples[device] > 0) {
      decision.replicas.push_back({device, static_cast<double>(samples[device])});
    }
  }
  return decide::uniform_strategy(problem, decision);
}

decide::Strategy ddp_strategy(const cost::Problem& problem, const Samples& samples,
                              std::int64_t micro_batches) {
  decide::Strategy strategy = shares_strategy(problem, samples);
  strategy.order = kSettings[0].order;
  strategy.bucket_bytes = kSettings[0].bucket_bytes;
  return decide::accumulate(problem, std::move(strategy), micro_batches);
}

decide::Strategy fsdp2_strategy(const cost::Problem& problem, const Samples& samples,
                                std::int64_t micro_batches) {
  return sharded(ddp_strategy(problem, samples, micro_batches));
}

SharesResult search_shares(BatchEvaluator& evaluator, const SharesOptions& options) {
  return Search(evaluator, options).run();
}

}  // namespace heterog::search
