// Least work by op and type of device, and a chain of ops, with weights by search; the longest
// chain.
#include "sim/least_step.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <functional>
#include <limits>
#include <map>
#include <span>
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

constexpr double kNever = std::numeric_limits<double>::infinity();
// Times are rounded to nanoseconds, each by half of one at most.
double seconds(Nanoseconds time) { return std::max(0.0, to_seconds(time) - 1e-9); }

// Ops of which the slices that hold one sample follow one another: of neighbours, the later one
// reads the samples of the earlier one. Of all such chains the one that takes longest where the
// batch is dealt out evenly.
std::vector<bool> chain_of_samples(const Problem& problem) {
  const graph::ModelGraph& graph = *problem.graph;
  const auto devices = static_cast<std::int64_t>(problem.cluster->device_count());
  const std::int64_t even = std::max<std::int64_t>(1, problem.batch / devices);
  IdVector<OpId, Nanoseconds> end(graph.op_count(), 0);
  IdVector<OpId, OpId> before(graph.op_count());
  OpId last;
  for (OpId op : problem.folded->ops) {
    if (graph.op(op).phase == Phase::kUpdate) continue;
    for (const graph::Read& read : problem.folded->reads[op]) {
      const bool follows =
          read.use == graph::OperandUse::kSlice || read.use == graph::OperandUse::kLocal ||
          read.use == graph::OperandUse::kReduced || read.use == graph::OperandUse::kWhole;
      if (!read.producer.valid() || !follows || end[read.producer] <= end[op]) continue;
      end[op] = end[read.producer];
      before[op] = read.producer;
    }
    const std::int64_t samples = problem.splits->sliceable[op] ? even : problem.batch;
    Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
    for (DeviceTypeId type : id_range<DeviceTypeId>(problem.cluster->type_count())) {
      least = std::min(least, problem.costs.duration(op, type, samples));
    }
    end[op] += least;
    if (!last.valid() || end[op] > end[last]) last = op;
  }
  std::vector<bool> chain(graph.op_count());
  for (; last.valid(); last = before[last]) chain[last.value()] = true;
  return chain;
}

// A way to cut an op: seconds that a sample waits for its slice, and seconds of work in all slices.
struct Cut {
  double wait = 0;
  double work = 0;
  auto operator<=>(const Cut&) const = default;
};

// Cuts of an op, a list for each kind of device, with the number of ops that have the same: the
// layers of a stack are alike.
using Cuts = std::map<std::vector<std::vector<Cut>>, double>;

// Of these cuts, ascending by wait, those that are best for some weights of wait and work.
std::vector<Cut> best_cuts(const std::vector<Cut>& cuts) {
  std::vector<Cut> best;
  for (const Cut& cut : cuts) {
    if (!best.empty() && cut.work >= best.back().work) continue;
    while (!best.empty() && cut.wait <= best.back().wait) best.pop_back();
    // The one between is above the line from its neighbour to this one.
    while (best.size() > 1) {
      const Cut& a = best[best.size() - 2];
      const Cut& b = best.back();
      if ((b.work - a.work) * (cut.wait - a.wait) < (cut.work - a.work) * (b.wait - a.wait)) break;
      best.pop_back();
    }
    best.push_back(cut);
  }
  return best;
}

// The bound for weights of a device of each kind and of the chain.
class LeastWork {
 public:
  explicit LeastWork(const Problem& problem)
      : kinds_(kinds_of(*problem.cluster)), deviation_(kNever) {
    for (DeviceId device : problem.cluster->device_ids()) {
      deviation_ = std::min(deviation_, problem.cluster->type_of(device).step_deviation);
    }
    const std::vector<bool> chain = chain_of_samples(problem);
    for (OpId op : problem.folded->ops) {
      if (problem.graph->op(op).phase == Phase::kUpdate) {
        add_update(problem, op);
      } else {
        add_slices(problem, op, chain[op.value()]);
      }
    }
    for (const graph::UpdateChain& updates : problem.folded->chains) {
      for (OpId op : updates.ops) add_update(problem, op);
    }
  }

  // Weights of a device of each kind, then of the chain; they need not sum to 1. The least over the
  // numbers of devices that may compute.
  double bound(const std::vector<double>& weights) const {
    const double work = weighed(slices_, weights), updates = weighed(updates_, weights);
    double all = weights.back();
    std::vector<std::pair<double, double>> of_devices;  // weight, count
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      if (kinds_[i].hosts) {
        all += kinds_[i].count * weights[i];
      } else {
        of_devices.emplace_back(weights[i], kinds_[i].count);
      }
    }
    std::ranges::sort(of_devices, std::greater());
    double least = kNever;
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

  // One weight after another, in steps that become smaller: without the chain, then with it.
  double best_bound() const {
    std::vector<double> weights(kinds_.size() + 1, 1);
    weights.back() = 0;
    double best = climbed(weights);
    double devices = 0;
    for (std::size_t i = 0; i < kinds_.size(); ++i) devices += kinds_[i].count * weights[i];
    weights.back() = devices / 4;
    return std::max(best, climbed(weights));
  }

 private:
  double climbed(std::vector<double>& weights) const {
    double best = bound(weights);
    for (double factor = 2; factor > 1.0005; factor = std::sqrt(factor)) {
      for (bool again = true; again;) {
        again = false;
        for (double& weight : weights) {
          const double before = weight;
          if (before == 0) continue;
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

  static double weighed(const Cuts& ops, const std::vector<double>& weights) {
    double sum = 0;
    for (const auto& [of_kind, count] : ops) {
      double least = kNever;
      for (std::size_t i = 0; i < of_kind.size(); ++i) {
        for (const Cut& cut : of_kind[i]) {
          least = std::min(least, weights.back() * cut.wait + weights[i] * cut.work);
        }
      }
      sum += count * least;
    }
    return sum;
  }

  void add_slices(const Problem& problem, OpId op, bool on_chain) {
    const std::span<const std::int64_t> knots = problem.costs.knots();
    const double between = least_between(knots);
    std::vector<std::vector<Cut>> of_kind;
    for (const Kind& kind : kinds_) {
      std::vector<Cut> cuts;
      if (kind.count > 0 && !kind.hosts) {
        for (std::int64_t n : knots) {
          if (n < problem.batch && !problem.splits->sliceable[op]) continue;
          const double time = between * seconds(problem.costs.duration(op, kind.type, n));
          cuts.push_back({on_chain ? time : 0,
                          time * static_cast<double>(problem.batch) / static_cast<double>(n)});
        }
      }
      of_kind.push_back(best_cuts(cuts));
    }
    slices_[of_kind] += 1;
  }

  void add_update(const Problem& problem, OpId op) {
    std::vector<std::vector<Cut>> of_kind;
    for (const Kind& kind : kinds_) {
      of_kind.emplace_back();
      if (kind.count == 0) continue;
      const double launch = problem.cluster->type(kind.type).launch_seconds;
      const Nanoseconds time = problem.costs.duration(op, kind.type, problem.batch);
      of_kind.back().push_back({0, std::max(0.0, seconds(time) - launch)});
    }
    updates_[of_kind] += 1;
  }

  // Between two knots, from n to r n samples, costs are a + b n, and wait and work with their
  // weights A + P n + Q / n. The least of P n + Q / n is 2 √(P Q), at some m; at m exp(t) it is
  // that times cosh t, and the nearer knot has |t| ≤ ln r / 2. So the nearer knot is at most
  // cosh(ln r / 2) times the least between them.
  static double least_between(std::span<const std::int64_t> knots) {
    double largest = 1;
    for (std::size_t i = 1; i < knots.size(); ++i) {
      if (knots[i] == knots[i - 1] + 1) continue;
      const double ratio = static_cast<double>(knots[i]) / static_cast<double>(knots[i - 1]);
      largest = std::max(largest, std::cosh(std::log(ratio) / 2));
    }
    return 1 / largest;
  }

  std::vector<Kind> kinds_;
  double deviation_;  // the least of the devices' types
  // Of slices, which run on devices, and of updates, which hosts run too.
  Cuts slices_, updates_;
};

Nanoseconds longest_chain(const Problem& problem) {
  IdVector<OpId, Nanoseconds> end(problem.graph->op_count(), 0);
  Nanoseconds longest = 0;
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase == Phase::kUpdate) continue;
    Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
    for (DeviceTypeId type : id_range<DeviceTypeId>(problem.cluster->type_count())) {
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
