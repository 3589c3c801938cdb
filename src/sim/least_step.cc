// Least work by op and type of device, weights of types by search, and the longest chain.
#include "sim/least_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "compiler/slowest.h"
#include "graph/folded.h"

namespace heterog::sim {
namespace {

using cost::Problem;
using graph::Phase;

// Devices of a type, or hosts that serve parameters, which run updates alone.
struct Kind {
  DeviceTypeId type;
  bool hosts = false;
  double count = 0;
};

std::vector<Kind> kinds_of(const cluster::Cluster& cluster) {
  std::vector<Kind> kinds;
  for (DeviceTypeId type : id_range<DeviceTypeId>(cluster.type_count())) kinds.push_back({type});
  for (DeviceId place : cluster.place_ids()) {
    const DeviceTypeId type = cluster.device(place).type;
    const bool hosts = cluster.is_host(place);
    const auto known = std::ranges::find_if(
        kinds, [&](const Kind& kind) { return kind.type == type && kind.hosts == hosts; });
    if (known == kinds.end()) {
      kinds.push_back({type, hosts, 1});
    } else {
      known->count += 1;
    }
  }
  return kinds;
}

// Seconds that an op takes at the least, by kind of device; rows of as many numbers as there are
// kinds.
class LeastWork {
 public:
  explicit LeastWork(const Problem& problem)
      : kinds_(kinds_of(*problem.cluster)), deviation_(kNever) {
    for (DeviceId device : problem.cluster->device_ids()) {
      deviation_ = std::min(deviation_, problem.cluster->type_of(device).step_deviation);
    }
    for (OpId op : problem.folded->ops) {
      if (problem.graph->op(op).phase == Phase::kUpdate) {
        add_update(problem, op);
      } else {
        add_slices(problem, op);
      }
    }
    for (const graph::UpdateChain& chain : problem.folded->chains) {
      for (OpId op : chain.ops) add_update(problem, op);
    }
  }

  // The bound with these weights of a device of each kind, which need not sum to 1: the least over
  // the numbers of devices that may compute.
  double bound(const std::vector<double>& weights) const {
    const double work = weighed(work_, weights), updates = weighed(updates_, weights);
    double of_hosts = 0;
    std::vector<std::pair<double, double>> of_devices;  // weight, count
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      if (kinds_[i].hosts) {
        of_hosts += kinds_[i].count * weights[i];
      } else {
        of_devices.emplace_back(weights[i], kinds_[i].count);
      }
    }
    std::ranges::sort(of_devices, std::greater());
    double least = kNever, all = of_hosts;
    std::size_t devices = 0;
    for (const auto& [weight, count] : of_devices) {
      for (double i = 0; i < count; ++i) {
        all += weight;
        const double slower = 1 + deviation_ * compiler::expected_largest(++devices);
        least = std::min(least, (slower * work + updates) / all);
      }
    }
    return least;
  }

  // One weight after another, in steps that become smaller.
  double best_bound() const {
    std::vector<double> weights(kinds_.size(), 1);
    double best = bound(weights);
    for (double factor = 2; factor > 1.0005; factor = std::sqrt(factor)) {
      for (bool again = true; again;) {
        again = false;
        for (double& weight : weights) {
          const double before = weight;
          for (double tried : {before * factor, before / factor}) {
            weight = tried;
            const double found = bound(weights);
            if (found > best * (1 + 1e-9)) {
              best = found;
              again = true;
              break;
            }
            weight = before;
          }
        }
      }
    }
    return best;
  }

 private:
  double weighed(const std::vector<double>& work, const std::vector<double>& weights) const {
    double sum = 0;
    for (std::size_t row = 0; row < work.size(); row += kinds_.size()) {
      double least = kNever;
      for (std::size_t i = 0; i < kinds_.size(); ++i) {
        if (kinds_[i].count > 0) least = std::min(least, weights[i] * work[row + i]);
      }
      sum += least;
    }
    return sum;
  }

  // Times are rounded to nanoseconds, each by half of one at most.
  static double seconds(Nanoseconds time) { return std::max(0.0, to_seconds(time) - 1e-9); }
  void add_slices(const Problem& problem, OpId op) {
    for (const Kind& kind : kinds_) {
      double least = kNever;
      for (std::int64_t n : problem.costs.knots()) {
        if (kind.hosts) break;
        const double time = seconds(problem.costs.duration(op, kind.type, n));
        least = std::min(least, time * static_cast<double>(problem.batch) / static_cast<double>(n));
      }
      work_.push_back(least);
    }
  }
  void add_update(const Problem& problem, OpId op) {
    for (const Kind& kind : kinds_) {
      const double launch = problem.cluster->type(kind.type).launch_seconds;
      const auto time = problem.costs.duration(op, kind.type, problem.batch);
      updates_.push_back(std::max(0.0, seconds(time) - launch));
    }
  }

  static constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<Kind> kinds_;
  double deviation_;  // the least of the devices' types
  // Of slices, which run on devices, and of updates, which hosts run too.
  std::vector<double> work_, updates_;
};

Nanoseconds longest_chain(const Problem& problem) {
  IdVector<OpId, Nanoseconds> end(problem.graph->op_count(), 0);
  Nanoseconds longest = 0;
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase == Phase::kUpdate) continue;
    Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
    for (DeviceId device : problem.cluster->device_ids()) {
      const DeviceTypeId type = problem.cluster->device(device).type;
      for (std::int64_t n : problem.costs.knots()) {
        least = std::min(least, problem.costs.duration(op, type, n));
      }
    }
    Nanoseconds ready = 0;
    for (const graph::Read& read : problem.folded->reads[op]) {
      if (!read.producer.valid() || read.use == graph::OperandUse::kOnce) continue;
      ready = std::max(ready, end[read.producer]);
    }
    end[op] = ready + std::max<Nanoseconds>(0, least - 1);
    longest = std::max(longest, end[op]);
  }
  return longest;
}

}  // namespace

Nanoseconds least_step(const Problem& problem) {
  // Costs between knots are interpolated in single precision.
  constexpr double kExact = 1 - 1e-6;
  const double work = LeastWork(problem).best_bound() * kExact;
  return std::max(static_cast<Nanoseconds>(work * 1e9), longest_chain(problem));
}

}  // namespace heterog::sim
