// Measured costs of a graph's operators on one kind of device, and the cost model made of them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cost/cost_model.h"

namespace heterog::cost {

// One operator on one number of samples.
struct Measurement {
  std::int64_t samples = 0;
  double seconds = 0;         // the median
  double spread_seconds = 0;  // median distance from it
};

// seconds = fixed + per sample · samples (HeteroG §3), neither below zero. Least squares of the
// relative errors, since the noise of a time grows with it.
struct LinearFit {
  double fixed_seconds = 0;
  double seconds_per_sample = 0;
  double r2 = 1;  // 1 − residual / total sum of squares, of seconds; 1 where one size was measured
  double at(std::int64_t samples) const {
    return fixed_seconds + seconds_per_sample * static_cast<double>(samples);
  }
};
// At least one measurement, all positive, distinct numbers of samples.
LinearFit fit_line(std::span<const Measurement> measured);

// Ops of a graph that do the same work: one operator, shapes and attributes.
struct ProfiledOperator {
  std::string form;              // "aten.mm.default(float32[B,32], …)"
  std::vector<std::string> ops;  // their names
  std::vector<Measurement> measured;
  LinearFit fit;
};

// The cost of an operator at any number of samples: its line, scaled to meet every size that was
// measured. Between two of them the scale is linear in the samples; beyond the first and the last
// it is theirs. A line alone loses a step's total: operators that leave a cache as their slice
// grows all bend the same way.
class CostCurve {
 public:
  CostCurve() = default;
  // At least one measurement, distinct numbers of samples, in any order.
  explicit CostCurve(const ProfiledOperator& op);
  double at(std::int64_t samples) const;
  // The same with another curve in place of the line: seconds of a number of samples, above 0.
  double along(std::int64_t samples,
               const std::function<double(std::int64_t samples)>& curve) const;

 private:
  LinearFit line_;
  std::vector<Measurement> knots_;  // ascending
};

// Seconds to bring some bytes from one process to another.
struct Transfer {
  Bytes bytes = 0;
  double seconds = 0;
  double spread_seconds = 0;
};

// seconds = latency + bytes / bandwidth.
struct ProfiledLink {
  std::string between;
  double latency_seconds = 0;
  double bytes_per_second = 0;
  double r2 = 1;
  std::vector<Transfer> measured;
};
ProfiledLink fit_link(std::string between, std::vector<Transfer> measured);

// What an operator costs at sizes that were not measured: by its line, or what the cost model says,
// either scaled to meet those that were. A run measures one size or two, which have no line.
enum class Between : std::uint8_t { kLine, kModel };

struct Profile {
  std::string graph_name;
  std::uint64_t graph_hash = 0;
  std::string device;   // the name of the device type that was measured
  std::string machine;  // which one, for the reader
  std::string torch;    // version of LibTorch
  int threads = 1;      // that executed an operator (CPU)
  int repeat = 0;
  std::vector<std::int64_t> slices;
  Between between = Between::kLine;
  std::vector<ProfiledOperator> operators;
  std::vector<ProfiledLink> links;
  bool finished = false;
};

// How far predictions are from what was measured, relative to it, over the operators whose time was
// measured at more than one size.
struct FitError {
  std::int64_t samples = 0;  // the size predicted; 0: all of them
  std::size_t count = 0;     // predictions
  double median = 0;
  double worst = 0;
  std::string worst_form;  // of which operator
  // Σ predicted / Σ measured − 1, every op of the graph counted: what a whole step is off by.
  double total = 0;
};
// Errors of the lines on the sizes that they were fitted to.
FitError fit_error(const Profile& profile);
// Errors of each size, predicted by curves that were made without it.
std::vector<FitError> held_out_errors(const Profile& profile);

// Costs by a profile on the device type that it was measured on; `otherwise` on all others, and for
// workspaces. The profiles must be of this graph and of different devices: throws an input error
// naming source and field if one is not, and if an op has no cost.
struct ProfileSource {
  Profile profile;
  std::string source;  // its file
};
class ProfiledModel final : public CostModel {
 public:
  ProfiledModel(const graph::ModelGraph& graph, const std::vector<ProfileSource>& profiles,
                const CostModel& otherwise);
  double seconds(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                 const cluster::DeviceType& type) const override;
  Bytes workspace_bytes(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                        const cluster::DeviceType& type) const override;

 private:
  struct Measured {
    std::string device;
    Between between = Between::kLine;
    IdVector<OpId, CostCurve> curves;  // of aliases: empty
  };
  std::vector<Measured> measured_;
  const CostModel& otherwise_;
};

// Throws an input error unless the profiles' devices occur in the cluster.
void check_devices(std::span<const ProfileSource> profiles, const cluster::Cluster& cluster);

}  // namespace heterog::cost
