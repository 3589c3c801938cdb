// The table is filled by number of stages; each entry remembers the stage before.
#include "planner/pipeline/stages.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "planner/pipeline/device_order.h"

namespace heterog::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Of a device's memory; the rest is for what the sums here leave out.
constexpr double kUsableMemory = 0.95;
constexpr std::size_t kMostRuns = 12;

double least_bandwidth(const cluster::Cluster& cluster, std::span<const DeviceId> from,
                       std::span<const DeviceId> to) {
  double least = kNever;
  for (DeviceId a : from) {
    for (DeviceId b : to) {
      if (a != b) least = std::min(least, bandwidth(cluster, a, b));
    }
  }
  return least;
}

std::size_t machines_of(const cluster::Cluster& cluster, std::span<const DeviceId> devices) {
  std::vector<MachineId> machines;
  for (DeviceId device : devices) machines.push_back(cluster.device(device).machine);
  std::ranges::sort(machines);
  return static_cast<std::size_t>(std::ranges::unique(machines).begin() - machines.begin());
}

}  // namespace

StageCosts::StageCosts(const cost::Problem& problem, const Chain& chain, std::int64_t micro_batches,
                       bool paper)
    : problem_(problem),
      micro_batch_(static_cast<double>(problem.batch) / static_cast<double>(micro_batches)),
      paper_(paper),
      sums_(chain.layers.size() + 1) {
  for (std::size_t i = 0; i < chain.layers.size(); ++i) {
    const Chain::Layer& layer = chain.layers[i];
    sums_[i + 1] = {.crossing_fixed = layer.crossing_fixed,
                    .crossing_per_sample = layer.crossing_per_sample,
                    .resident = sums_[i].resident + layer.resident,
                    .gradients = sums_[i].gradients + layer.gradients,
                    .saved_fixed = sums_[i].saved_fixed + layer.saved_fixed,
                    .saved_per_sample = sums_[i].saved_per_sample + layer.saved_per_sample};
  }
  for (std::size_t devices = 1; devices <= problem.cluster->device_count(); ++devices) {
    const auto samples = static_cast<std::int64_t>(samples_each(devices));
    auto& of_type = times_.emplace_back();
    for (DeviceTypeId type : id_range<DeviceTypeId>(problem.cluster->type_count())) {
      of_type.push_back(times_before(problem, chain, type, samples));
    }
  }
}

double StageCosts::samples_each(std::size_t devices) const {
  const double each = std::round(micro_batch_ / static_cast<double>(devices));
  return std::clamp(each, 1.0, static_cast<double>(problem_.batch));
}

double StageCosts::speed(std::size_t begin, std::size_t end, DeviceId device,
                         std::size_t devices) const {
  const auto& before = times_[devices - 1][problem_.cluster->device(device).type];
  const double seconds = before[end] - before[begin];
  return seconds > 0 ? samples_each(devices) / seconds : kNever;
}

double StageCosts::compute(std::size_t begin, std::size_t end,
                           std::span<const DeviceId> devices) const {
  if (paper_) {
    const double alone = micro_batch_ / speed(begin, end, devices.back(), 1);
    return alone / static_cast<double>(devices.size());
  }
  double together = 0;
  for (DeviceId device : devices) together += speed(begin, end, device, devices.size());
  return micro_batch_ / together;
}

double StageCosts::channel_bytes(std::size_t end) const {
  return 2 * (sums_[end].crossing_fixed + sums_[end].crossing_per_sample * micro_batch_);
}

double StageCosts::channel_seconds_per_byte(std::span<const DeviceId> from,
                                            std::span<const DeviceId> to) const {
  const cluster::Cluster& cluster = *problem_.cluster;
  const double least = least_bandwidth(cluster, from, to);
  if (paper_) return 1 / (static_cast<double>(from.size() * to.size()) * least);
  // Inside a machine each device has a link of its own; between machines their NICs are shared.
  const std::size_t machines = std::min(machines_of(cluster, from), machines_of(cluster, to));
  const bool one_machine = cluster.same_machine(from.front(), to.front()) &&
                           machines_of(cluster, from) == 1 && machines_of(cluster, to) == 1;
  const std::size_t wide = one_machine ? std::min(from.size(), to.size()) : machines;
  return 1 / (static_cast<double>(wide) * least);
}

double StageCosts::all_reduce_seconds_per_byte(std::span<const DeviceId> devices) const {
  if (devices.size() == 1) return 0;
  const auto count = static_cast<double>(devices.size());
  return 2 * (count - 1) / count / least_bandwidth(*problem_.cluster, devices, devices);
}

bool StageCosts::fits(std::size_t begin, std::size_t end, std::span<const DeviceId> devices,
                      std::int64_t in_flight) const {
  if (paper_) return true;
  const auto resident = static_cast<double>(sums_[end].resident - sums_[begin].resident +
                                            sums_[end].gradients - sums_[begin].gradients);
  const double samples = micro_batch_ / static_cast<double>(devices.size());
  const double saved = sums_[end].saved_fixed - sums_[begin].saved_fixed +
                       (sums_[end].saved_per_sample - sums_[begin].saved_per_sample) * samples;
  for (DeviceId device : devices) {
    const auto has = static_cast<double>(problem_.cluster->device(device).memory_bytes -
                                         problem_.cluster->type_of(device).reserve_bytes);
    if (resident + static_cast<double>(in_flight) * saved > kUsableMemory * has) return false;
  }
  return true;
}

std::optional<std::vector<Stage>> partition(const Chain& chain, const StageCosts& costs,
                                            std::span<const DeviceId> line,
                                            const PartitionOptions& options) {
  EXPECT(options.stages > 0 && !line.empty());
  // Runs of neighbours in place of devices, where there are many.
  const std::size_t run = (line.size() + kMostRuns - 1) / kMostRuns;
  const auto runs = [&](std::size_t first, std::size_t count) {
    const std::size_t begin = first * run;
    return line.subspan(begin, std::min(count * run, line.size() - begin));
  };
  const std::size_t layers = chain.layers.size(), devices = (line.size() + run - 1) / run;
  if (options.stages > layers || options.stages > devices) return std::nullopt;
  const auto micro_batches = static_cast<double>(options.micro_batches);
  struct Entry {
    double worst = kNever;
    std::uint32_t layers_before = 0;
    std::uint32_t replicas_before = 0;
  };
  // [stage][layers so far][devices so far][replicas of the last stage]
  const std::size_t width = devices + 1;
  const auto at = [&](std::size_t l, std::size_t i, std::size_t r) {
    return (l * width + i) * width + r;
  };
  std::vector<std::vector<Entry>> table(options.stages + 1,
                                        std::vector<Entry>((layers + 1) * width * width));
  for (std::size_t stage = 1; stage <= options.stages; ++stage) {
    const auto behind = static_cast<std::int64_t>(options.stages - stage);
    const std::int64_t in_flight = std::min(options.micro_batches, behind + 1);
    const std::size_t most_replicas = options.replicate ? devices : 1;
    for (std::size_t i = stage; i + static_cast<std::size_t>(behind) <= devices; ++i) {
      for (std::size_t r = 1; r <= std::min(most_replicas, i); ++r) {
        if (stage == 1 && r != i) continue;
        const auto own = runs(i - r, r);
        const double reduced = costs.all_reduce_seconds_per_byte(own);
        std::vector<double> moved(i - r + 1, 0);  // [replicas of the stage before]
        for (std::size_t before = 1; before + r <= i; ++before) {
          moved[before] = costs.channel_seconds_per_byte(runs(i - r - before, before), own);
        }
        for (std::size_t l = stage; l + static_cast<std::size_t>(behind) <= layers; ++l) {
          Entry& entry = table[stage][at(l, i, r)];
          const std::size_t first = stage == 1 ? 0 : stage - 1, last = stage == 1 ? 0 : l - 1;
          for (std::size_t before = first; before <= last; ++before) {
            if (!costs.fits(before, l, own, in_flight)) continue;
            const double busy = micro_batches * costs.compute(before, l, own) +
                                costs.gradient_bytes(before, l) * reduced;
            if (stage == 1) {
              entry = {busy, 0, 0};
              continue;
            }
            if (busy >= entry.worst) continue;
            for (std::size_t r_before = 1; r_before + r <= i; ++r_before) {
              const Entry& earlier = table[stage - 1][at(before, i - r, r_before)];
              if (earlier.worst >= entry.worst) continue;
              const double moves = micro_batches * costs.channel_bytes(before) * moved[r_before];
              const double worst = std::max({earlier.worst, busy, moves});
              if (worst >= entry.worst) continue;
              entry = {worst, static_cast<std::uint32_t>(before),
                       static_cast<std::uint32_t>(r_before)};
            }
          }
        }
      }
    }
  }
  std::size_t r = 0;
  const auto& ends = table[options.stages];
  for (std::size_t one = 1; one <= devices; ++one) {
    if (r == 0 || ends[at(layers, devices, one)].worst < ends[at(layers, devices, r)].worst)
      r = one;
  }
  if (ends[at(layers, devices, r)].worst == kNever) return std::nullopt;
  std::vector<Stage> stages(options.stages);
  std::size_t l = layers, i = devices;
  for (std::size_t stage = options.stages; stage > 0; --stage) {
    const Entry& entry = table[stage][at(l, i, r)];
    const auto own = runs(i - r, r);
    stages[stage - 1] = {entry.layers_before, l, {own.begin(), own.end()}};
    l = entry.layers_before;
    i -= r;
    r = entry.replicas_before;
  }
  return stages;
}

double estimate_step(const StageCosts& costs, std::span<const Stage> stages,
                     std::int64_t micro_batches) {
  double through = 0, slowest = 0, reduced = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    const double busy = costs.compute(stage.begin, stage.end, stage.devices);
    through += busy;
    slowest = std::max(slowest, busy);
    reduced = std::max(reduced, costs.all_reduce(stage.begin, stage.end, stage.devices));
    if (s + 1 == stages.size()) continue;
    const double moves = costs.channel(stage.end, stage.devices, stages[s + 1].devices);
    through += moves;
    slowest = std::max(slowest, moves);
  }
  return through + static_cast<double>(micro_batches - 1) * slowest + reduced;
}

}  // namespace heterog::planner
