// The expected largest of n by its integral; durations on compute streams are multiplied.
#include "compiler/slowest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace heterog::compiler {
namespace {

using Table = std::array<double, cluster::kMaxDevices + 1>;

// E[max] = ∫ 1 − F(x)^n − F(−x)^n dx over x ≥ 0, F the normal distribution's. By trapezoids, whose
// error vanishes for a function as smooth as this; powers of all n grow side by side.
Table expectations() {
  constexpr double kWidth = 1.0 / 16;
  constexpr int kPoints = 16 * 7;  // up to 7 deviations: of a thousand draws none is larger
  Table table{};
  for (int i = 0; i <= kPoints; ++i) {
    const double above = std::erfc(i * kWidth / std::numbers::sqrt2) / 2;
    const double weight = i == 0 ? kWidth / 2 : kWidth;
    double below_all = 1, above_all = 1;
    for (std::size_t n = 1; n < table.size(); ++n) {
      below_all *= 1 - above;
      above_all *= above;
      table[n] += weight * (1 - below_all - above_all);
    }
  }
  return table;
}

}  // namespace

double expected_largest(std::size_t n) {
  static const Table table = expectations();
  EXPECT(n >= 1 && n < table.size());
  return table[n];
}

void wait_for_slowest(const cluster::Cluster& cluster, Plan& plan, const Symmetry* symmetry) {
  double greatest = 0;
  for (DeviceId device : cluster.device_ids()) {
    greatest = std::max(greatest, cluster.type_of(device).step_deviation);
  }
  if (greatest == 0) return;
  IdVector<DeviceId, std::uint8_t> computes(plan.device_count, 0);
  std::size_t devices = 0;
  for (TaskId task : plan.task_ids()) {
    if (plan.kind[task] != TaskKind::kCompute && plan.kind[task] != TaskKind::kUpdate) continue;
    if (plan.duration[task] == 0 || computes[plan.device[task]]) continue;
    const DeviceId place = plan.device[task];
    if (cluster.is_host(device_of(symmetry, place))) continue;  // it updates what is there, when it
    computes[place] = 1;                                        // is there
    devices += symmetry ? symmetry->sizes[place.value()] : 1;
  }
  if (devices < 2) return;
  IdVector<DeviceId, double> factor;
  for (DeviceId place : id_range<DeviceId>(plan.device_count)) {
    const DeviceId device = device_of(symmetry, place);
    const double deviation = cluster.is_host(device) ? 0 : cluster.type_of(device).step_deviation;
    factor.push_back(1 + deviation * expected_largest(devices));
  }
  for (TaskId task : plan.task_ids()) {
    if (is_communication(plan.kind[task])) continue;
    const double slower = factor[plan.device[task]];
    for (Hold& hold : plan.holds.mutable_row(task)) {  // its compute stream, if anything
      hold.duration = static_cast<Nanoseconds>(static_cast<double>(hold.duration) * slower + 0.5);
      plan.duration[task] = hold.duration;
    }
  }
}

}  // namespace heterog::compiler
