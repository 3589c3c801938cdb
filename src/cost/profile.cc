// Fits of measured costs, and the cost model made of them.
#include "cost/profile.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"

namespace heterog::cost {
namespace {

// Of an operator that a model says takes none.
constexpr double kLeastOfModel = 1e-9;

struct Point {
  double x = 0;
  double y = 0;
};

// y = intercept + slope · x.
struct Line {
  double intercept = 0;
  double slope = 0;
};

// Least squares of ((intercept + slope · x − y) / y)² with neither coefficient below zero: the
// optimum lies inside or on one of the two edges. All x ≥ 0, all y > 0.
Line fit_relative(std::span<const Point> points) {
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (const Point& p : points) {
    const double weight = 1 / (p.y * p.y);
    w += weight;
    wx += weight * p.x;
    wy += weight * p.y;
    wxx += weight * p.x * p.x;
    wxy += weight * p.x * p.y;
  }
  const double determinant = w * wxx - wx * wx;
  const Line flat{wy / w, 0};
  if (points.size() < 2 || determinant <= 1e-12 * w * wxx) return flat;
  const Line best{(wxx * wy - wx * wxy) / determinant, (w * wxy - wx * wy) / determinant};
  if (best.slope < 0) return flat;
  if (best.intercept < 0) return {0, wxy / wxx};
  return best;
}

// 1 where there is nothing to explain.
double r_squared(std::span<const Point> points, const Line& line) {
  double mean = 0;
  for (const Point& p : points) mean += p.y / static_cast<double>(points.size());
  double residual = 0, total = 0;
  for (const Point& p : points) {
    const double off = line.intercept + line.slope * p.x - p.y;
    residual += off * off;
    total += (p.y - mean) * (p.y - mean);
  }
  return total > 0 ? 1 - residual / total : 1;
}

// Collects relative errors of predictions.
class Errors {
 public:
  explicit Errors(std::int64_t samples) { error_.samples = samples; }
  void add(const ProfiledOperator& op, double predicted, double measured) {
    const double off = std::abs(predicted / measured - 1);
    if (off > error_.worst) {
      error_.worst = off;
      error_.worst_form = op.form;
    }
    offs_.push_back(off);
    const auto count = static_cast<double>(op.ops.size());
    predicted_ += count * predicted;
    measured_ += count * measured;
  }
  FitError done() {
    error_.count = offs_.size();
    if (offs_.empty()) return error_;
    std::sort(offs_.begin(), offs_.end());
    error_.median = (offs_[(offs_.size() - 1) / 2] + offs_[offs_.size() / 2]) / 2;
    error_.total = predicted_ / measured_ - 1;
    return error_;
  }

 private:
  FitError error_;
  std::vector<double> offs_;
  double predicted_ = 0;
  double measured_ = 0;
};

}  // namespace

LinearFit fit_line(std::span<const Measurement> measured) {
  EXPECT(!measured.empty());
  std::vector<Point> points;
  for (const Measurement& m : measured) {
    EXPECT(m.seconds > 0);
    points.push_back({static_cast<double>(m.samples), m.seconds});
  }
  const Line line = fit_relative(points);
  return {line.intercept, line.slope, r_squared(points, line)};
}

CostCurve::CostCurve(const ProfiledOperator& op) : line_(op.fit), knots_(op.measured) {
  EXPECT(!knots_.empty());
  std::ranges::sort(knots_, {}, &Measurement::samples);
}

double CostCurve::at(std::int64_t samples) const {
  return along(samples, [this](std::int64_t size) { return line_.at(size); });
}

double CostCurve::along(std::int64_t samples,
                        const std::function<double(std::int64_t)>& curve) const {
  const auto scale = [&](const Measurement& knot) { return knot.seconds / curve(knot.samples); };
  const auto above = std::ranges::find_if(
      knots_, [&](const Measurement& knot) { return knot.samples >= samples; });
  if (above == knots_.end()) return curve(samples) * scale(knots_.back());
  if (above == knots_.begin()) return curve(samples) * scale(*above);
  const Measurement& below = *std::prev(above);
  const double part = static_cast<double>(samples - below.samples) /
                      static_cast<double>(above->samples - below.samples);
  return curve(samples) * (scale(below) + part * (scale(*above) - scale(below)));
}

ProfiledLink fit_link(std::string between, std::vector<Transfer> measured) {
  EXPECT(measured.size() >= 2);
  std::vector<Point> points;
  points.reserve(measured.size());
  for (const Transfer& t : measured) points.push_back({static_cast<double>(t.bytes), t.seconds});
  const Line line = fit_relative(points);
  VALIDATE(line.slope > 0, "{}: more bytes do not take longer; measure again on a quieter machine",
           between);
  return {.between = std::move(between),
          .latency_seconds = line.intercept,
          .bytes_per_second = 1 / line.slope,
          .r2 = r_squared(points, line),
          .measured = std::move(measured)};
}

FitError fit_error(const Profile& profile) {
  Errors errors(0);
  for (const ProfiledOperator& op : profile.operators) {
    if (op.measured.size() < 2) continue;
    for (const Measurement& m : op.measured) errors.add(op, op.fit.at(m.samples), m.seconds);
  }
  return errors.done();
}

std::vector<FitError> held_out_errors(const Profile& profile) {
  std::vector<FitError> result;
  for (std::int64_t samples : profile.slices) {
    Errors errors(samples);
    for (const ProfiledOperator& op : profile.operators) {
      std::vector<Measurement> others = op.measured;
      const auto held = std::find_if(others.begin(), others.end(),
                                     [&](const Measurement& m) { return m.samples == samples; });
      if (held == others.end() || others.size() < 3) continue;
      const double seconds = held->seconds;
      others.erase(held);
      const CostCurve curve({.measured = others, .fit = fit_line(others)});
      errors.add(op, curve.at(samples), seconds);
    }
    const FitError error = errors.done();
    if (error.count > 0) result.push_back(error);
  }
  return result;
}

ProfiledModel::ProfiledModel(const graph::ModelGraph& graph,
                             const std::vector<ProfileSource>& profiles, const CostModel& otherwise)
    : otherwise_(otherwise) {
  std::unordered_map<std::string_view, OpId> by_name;
  for (OpId op : graph.op_ids()) by_name.emplace(graph.op(op).name, op);
  for (const auto& [profile, source] : profiles) {
    VALIDATE(profile.graph_hash == graph.hash(),
             "{}: graph.hash: measured on '{}' ({}), but this is '{}' ({}); profile this graph",
             source, printable(profile.graph_name), hash_text(profile.graph_hash), graph.name(),
             hash_text(graph.hash()));
    VALIDATE(profile.finished,
             "{}: finished: the measuring was interrupted after {} operators; run the same heterog "
             "profile again, it goes on",
             source, profile.operators.size());
    for (const Measured& other : measured_) {
      VALIDATE(other.device != profile.device,
               "{}: device: {} is in another profile already; give one for each device type",
               source, printable(profile.device));
    }
    Measured measured{.device = profile.device,
                      .between = profile.between,
                      .curves = IdVector<OpId, CostCurve>(graph.op_count())};
    std::vector<bool> known(graph.op_count());
    for (std::size_t i = 0; i < profile.operators.size(); ++i) {
      const CostCurve curve(profile.operators[i]);
      for (const std::string& name : profile.operators[i].ops) {
        const auto found = by_name.find(name);
        VALIDATE(found != by_name.end(),
                 "{}: operators[{}].ops: the graph has no op '{}'; profile it again", source, i,
                 printable(name));
        measured.curves[found->second] = curve;
        known[found->second.value()] = true;
      }
    }
    for (OpId op : graph.op_ids()) {
      VALIDATE(graph.op(op).alias || known[op.value()],
               "{}: operators: the cost of op '{}' is missing; profile the graph again", source,
               printable(graph.op(op).name));
    }
    measured_.push_back(std::move(measured));
  }
}

double ProfiledModel::seconds(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                              const cluster::DeviceType& type) const {
  for (const Measured& measured : measured_) {
    if (measured.device != type.name) continue;
    const CostCurve& curve = measured.curves[op];
    if (measured.between == Between::kLine) return curve.at(samples);
    return curve.along(samples, [&](std::int64_t size) {
      return std::max(otherwise_.seconds(graph, op, size, type), kLeastOfModel);
    });
  }
  return otherwise_.seconds(graph, op, samples, type);
}

Bytes ProfiledModel::workspace_bytes(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                                     const cluster::DeviceType& type) const {
  return otherwise_.workspace_bytes(graph, op, samples, type);
}

void check_devices(std::span<const ProfileSource> profiles, const cluster::Cluster& cluster) {
  for (const auto& [profile, source] : profiles) {
    std::string types;
    bool found = false;
    for (DeviceTypeId id : id_range<DeviceTypeId>(cluster.place_type_count())) {
      found |= cluster.type(id).name == profile.device;
      types += (types.empty() ? "" : ", ") + cluster.type(id).name;
    }
    VALIDATE(found, "{}: device: measured on {}, but cluster '{}' has {}; give a profile of these",
             source, printable(profile.device), cluster.name(), types);
  }
}

}  // namespace heterog::cost
