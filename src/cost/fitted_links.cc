// Gauss-Newton over the links that flows cross.
#include "cost/fitted_links.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/check.h"

namespace heterog::cost {
namespace {

constexpr double kSigma = 0.1, kTau = 0.5;
constexpr int kSteps = 12, kHalvings = 5;
// Of a logarithm, on both sides. Links of equal bandwidth in a row share what one alone would have.
constexpr double kDifference = 0.02;
constexpr double kLeastSeconds = 1e-9;
// exp(±3): what no wire is off by.
constexpr double kMostLog = 3;

// Flows that are alike, once.
struct Alike {
  MeasuredFlow flow;  // the mean
  double weight = 0;
};

// Whether it takes long for its bytes.
bool says_bandwidth(const cluster::Cluster& cluster, const MeasuredFlow& flow) {
  MeasuredFlow least = flow;
  least.bytes = 1;
  return predicted_seconds(cluster, flow) > 2 * predicted_seconds(cluster, least);
}

std::vector<Alike> together(const cluster::Cluster& cluster, std::span<const MeasuredFlow> flows) {
  using Key = std::tuple<MeasuredFlow::Kind, std::vector<DeviceId>, Bytes>;
  std::map<Key, std::vector<double>> seconds;
  double total = 0, count = 0;
  for (const MeasuredFlow& flow : flows) {
    if (!says_bandwidth(cluster, flow)) continue;
    ++count;
    const double took = std::max(flow.seconds, kLeastSeconds);
    seconds[{flow.kind, flow.devices, flow.bytes}].push_back(took);
    total += took;
  }
  std::vector<Alike> alike;
  for (const auto& [key, all] : seconds) {
    double sum = 0;
    for (double each : all) sum += each;
    const auto& [kind, devices, bytes] = key;
    alike.push_back(
        {{kind, devices, bytes, sum / static_cast<double>(all.size())}, sum / total * count});
  }
  return alike;
}

// x are of the links that are crossed.
class Fit {
 public:
  Fit(const cluster::Cluster& cluster, std::span<const MeasuredFlow> flows)
      : cluster_(cluster), flows_(together(cluster, flows)), index_(cluster.link_count(), kNone) {
    for (std::size_t t = 0; t < flows_.size(); ++t) {
      for (LinkId link : crossed(flows_[t].flow)) {
        if (index_[link] == kNone) {
          index_[link] = links_.size();
          links_.push_back(link);
          flows_over_.emplace_back();
        }
        flows_over_[index_[link]].push_back(t);
      }
    }
    x_.assign(links_.size(), 0.0);
  }

  FittedLinks run() {
    std::vector<double> predicted = predictions(x_);
    const double before = error(predicted);
    double now = objective(x_, predicted);
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<double> way = newton_step(predicted);
      bool helped = false;
      double part = 1;
      for (int halving = 0; halving < kHalvings && !helped; ++halving, part /= 2) {
        std::vector<double> x = x_;
        for (std::size_t i = 0; i < x.size(); ++i) {
          x[i] = std::clamp(x[i] + part * way[i], -kMostLog, kMostLog);
        }
        std::vector<double> then = predictions(x);
        const double value = objective(x, then);
        if (value >= now * (1 - 1e-9)) continue;
        helped = true;
        x_ = std::move(x);
        predicted = std::move(then);
        now = value;
      }
      if (!helped) break;
    }
    FittedLinks fitted{factors(x_), before, error(predicted), links_};
    std::ranges::sort(fitted.seen);
    return fitted;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::vector<LinkId> crossed(const MeasuredFlow& flow) const {
    std::vector<LinkId> links;
    if (flow.kind == MeasuredFlow::Kind::kAllReduce || flow.kind == MeasuredFlow::Kind::kGather) {
      const CollectiveCost cost = all_reduce_cost(cluster_, flow.devices, flow.bytes);
      for (const auto& [link, held] : cost.links) links.push_back(link);
      return links;
    }
    const auto of_route = cluster_.route(flow.devices[0], flow.devices[1]).links;
    return {of_route.begin(), of_route.end()};
  }

  IdVector<LinkId, double> factors(const std::vector<double>& x) const {
    IdVector<LinkId, double> factors(cluster_.link_count(), 1.0);
    for (std::size_t i = 0; i < links_.size(); ++i) factors[links_[i]] = std::exp(x[i]);
    return factors;
  }
  cluster::Cluster scaled(const std::vector<double>& x) const {
    return cluster::with_scaled_links(cluster_, factors(x));
  }
  // Logarithms of seconds.
  std::vector<double> predictions(const std::vector<double>& x) const {
    const cluster::Cluster cluster = scaled(x);
    std::vector<double> logs;
    logs.reserve(flows_.size());
    for (const Alike& alike : flows_) logs.push_back(log_of(cluster, alike.flow));
    return logs;
  }
  static double log_of(const cluster::Cluster& cluster, const MeasuredFlow& flow) {
    return std::log(std::max(predicted_seconds(cluster, flow), kLeastSeconds));
  }
  double residual(std::size_t t, const std::vector<double>& predicted) const {
    return std::log(flows_[t].flow.seconds) - predicted[t];
  }
  double objective(const std::vector<double>& x, const std::vector<double>& predicted) const {
    double sum = 0;
    for (std::size_t t = 0; t < flows_.size(); ++t) {
      const double off = residual(t, predicted);
      sum += flows_[t].weight * off * off / (kSigma * kSigma);
    }
    for (double one : x) sum += one * one / (kTau * kTau);
    return sum;
  }
  double error(const std::vector<double>& predicted) const {
    double sum = 0, weights = 0;
    for (std::size_t t = 0; t < flows_.size(); ++t) {
      sum += flows_[t].weight * std::abs(residual(t, predicted));
      weights += flows_[t].weight;
    }
    return weights > 0 ? sum / weights : 0;
  }

  // (JᵀWJ / σ² + I / τ²) step = JᵀW r / σ² − x / τ².
  std::vector<double> newton_step(const std::vector<double>& predicted) const {
    const std::size_t n = x_.size();
    std::vector<std::vector<double>> slopes(n);  // parallel to flows_over_
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<double> x = x_;
      x[i] = x_[i] + kDifference;
      const cluster::Cluster above = scaled(x);
      x[i] = x_[i] - kDifference;
      const cluster::Cluster below = scaled(x);
      for (std::size_t t : flows_over_[i]) {
        const MeasuredFlow& flow = flows_[t].flow;
        slopes[i].push_back((log_of(above, flow) - log_of(below, flow)) / (2 * kDifference));
      }
    }
    std::vector<double> matrix(n * n, 0.0), right(n, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      matrix[i * n + i] = 1 / (kTau * kTau);
      right[i] = -x_[i] / (kTau * kTau);
    }
    // By flow: which x it depends on, and how.
    std::vector<std::vector<std::pair<std::size_t, double>>> of_flow(flows_.size());
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < flows_over_[i].size(); ++k) {
        of_flow[flows_over_[i][k]].emplace_back(i, slopes[i][k]);
      }
    }
    for (std::size_t t = 0; t < flows_.size(); ++t) {
      const double weight = flows_[t].weight / (kSigma * kSigma);
      for (const auto& [i, slope] : of_flow[t]) {
        right[i] += weight * slope * residual(t, predicted);
        for (const auto& [j, other] : of_flow[t]) matrix[i * n + j] += weight * slope * other;
      }
    }
    return solved(std::move(matrix), std::move(right));
  }

  // Cholesky; the matrix is symmetric and, by its ridge, positive definite.
  static std::vector<double> solved(std::vector<double> a, std::vector<double> b) {
    const std::size_t n = b.size();
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t k = 0; k < j; ++k) a[j * n + j] -= a[j * n + k] * a[j * n + k];
      a[j * n + j] = std::sqrt(a[j * n + j]);
      for (std::size_t i = j + 1; i < n; ++i) {
        for (std::size_t k = 0; k < j; ++k) a[i * n + j] -= a[i * n + k] * a[j * n + k];
        a[i * n + j] /= a[j * n + j];
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < i; ++k) b[i] -= a[i * n + k] * b[k];
      b[i] /= a[i * n + i];
    }
    for (std::size_t i = n; i-- > 0;) {
      for (std::size_t k = i + 1; k < n; ++k) b[i] -= a[k * n + i] * b[k];
      b[i] /= a[i * n + i];
    }
    return b;
  }

  const cluster::Cluster& cluster_;
  std::vector<Alike> flows_;
  IdVector<LinkId, std::size_t> index_;
  std::vector<LinkId> links_;                         // that are crossed
  std::vector<std::vector<std::size_t>> flows_over_;  // by x
  std::vector<double> x_;
};

}  // namespace

double predicted_seconds(const cluster::Cluster& cluster, const MeasuredFlow& flow) {
  using Kind = MeasuredFlow::Kind;
  if (flow.kind == Kind::kAllReduce) {
    return to_seconds(all_reduce_cost(cluster, flow.devices, flow.bytes).duration);
  }
  if (flow.kind == Kind::kGather)
    return all_gather_shape(cluster, flow.devices).seconds(flow.bytes);
  EXPECT(flow.devices.size() == 2);
  return to_seconds(transfer_duration(
      cluster, cluster.route(flow.devices[0], flow.devices[1]), flow.bytes,
      flow.kind == Kind::kServerTransfer ? TransferUse::kServer : TransferUse::kValue));
}

FittedLinks fit_links(const cluster::Cluster& cluster, std::span<const MeasuredFlow> flows) {
  return Fit(cluster, flows).run();
}

FittedLinks with_unseen_expected(FittedLinks fitted) {
  if (fitted.seen.empty()) return fitted;
  for (const LinkId link : id_range<LinkId>(fitted.bandwidth.size())) {
    if (std::ranges::binary_search(fitted.seen, link)) continue;
    fitted.bandwidth[link] *= std::exp(-kTau * kTau / 2);
  }
  return fitted;
}

cluster::Cluster with_fitted_links(const cluster::Cluster& cluster, const FittedLinks& fitted) {
  return cluster::with_scaled_links(cluster, fitted.bandwidth);
}

}  // namespace heterog::cost
