// The table is filled by the number of stages behind; each entry remembers the next one. Of equal
// ones, that whose stages and channels are busy for less altogether.
#include "search/pipeline/stages.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "space/cluster_summary.h"

namespace heterog::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Of a device's memory; the rest is for what the sums here leave out.
constexpr double kUsableMemory = 0.95;
constexpr std::size_t kMostRuns = 12;

std::size_t least_run(std::size_t devices) { return (devices + kMostRuns - 1) / kMostRuns; }

// Equal parts of a machine, or whole machines, where these are alike and that makes no run twice as
// long: a stage with parts of two machines has all its all-reduces over the network.
std::size_t run_length(const cluster::Cluster& cluster, std::size_t devices) {
  std::size_t common = 0;
  for (MachineId machine : id_range<MachineId>(cluster.machine_count())) {
    common = std::gcd(common, cluster.machine(machine).devices.size());
  }
  const std::size_t least = least_run(devices);
  if (least == 1) return 1;
  for (std::size_t length = least; length < 2 * least; ++length) {
    if (common % length == 0 || length % common == 0) return common == 1 ? least : length;
  }
  return least;
}

std::size_t runs_of(const cluster::Cluster& cluster, std::size_t devices) {
  const std::size_t run = run_length(cluster, devices);
  return (devices + run - 1) / run;
}

std::size_t machines_of(const cluster::Cluster& cluster, std::span<const DeviceId> devices) {
  std::vector<MachineId> machines;
  for (DeviceId device : devices) machines.push_back(cluster.device(device).machine);
  std::ranges::sort(machines);
  return static_cast<std::size_t>(std::ranges::unique(machines).begin() - machines.begin());
}

}  // namespace

const std::vector<double>& LayerTimes::before(DeviceTypeId type, std::int64_t samples) {
  const auto [known, is_new] = known_.try_emplace({type, samples});
  if (is_new) known->second = times_before(problem_, chain_, type, samples);
  return known->second;
}

StageCosts::StageCosts(LayerTimes& times, std::int64_t micro_batches, bool paper)
    : problem_(times.problem()),
      micro_batch_(static_cast<double>(problem_.batch) / static_cast<double>(micro_batches)),
      accumulates_(micro_batches > 1),
      paper_(paper),
      recomputes_(times.chain().recompute),
      again_(times.chain().again_fixed + times.chain().again_per_sample * micro_batch_),
      sums_(times.chain().layers.size() + 1) {
  const Chain& chain = times.chain();
  for (std::size_t i = 0; i < chain.layers.size(); ++i) {
    const Chain::Layer& layer = chain.layers[i];
    const double once = layer.crossing_once / static_cast<double>(micro_batches);
    sums_[i + 1] = {.crossing_fixed = layer.crossing_fixed + once,
                    .crossing_per_sample = layer.crossing_per_sample,
                    .resident = sums_[i].resident + layer.resident,
                    .gradients = sums_[i].gradients + layer.gradients,
                    .saved_fixed = sums_[i].saved_fixed + layer.saved_fixed,
                    .saved_per_sample = sums_[i].saved_per_sample + layer.saved_per_sample};
  }
  // Of more devices than runs, stages have whole runs, and perhaps the last one; or they are of one
  // machine.
  const std::size_t all = problem_.cluster->device_count();
  const std::size_t run = run_length(*problem_.cluster, all);
  std::size_t in_machine = 0;
  for (MachineId machine : id_range<MachineId>(problem_.cluster->machine_count())) {
    in_machine = std::max(in_machine, problem_.cluster->machine(machine).devices.size());
  }
  for (std::size_t devices = 1; devices <= all; ++devices) {
    auto& of_type = times_.emplace_back();
    const bool occurs = devices <= std::max(kMostRuns, in_machine) || devices % run == 0 ||
                        devices % run == all % run;
    if (!occurs) continue;
    const auto samples = static_cast<std::int64_t>(samples_each(devices));
    for (DeviceTypeId type : id_range<DeviceTypeId>(problem_.cluster->type_count())) {
      of_type.push_back(times.before(type, samples));
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
  constexpr double kLeast = 1e-12;  // so that shares are numbers where nothing takes time
  return samples_each(devices) / std::max(before[end] - before[begin], kLeast);
}

StageCosts::Group StageCosts::group(std::span<const DeviceId> devices) const {
  Group made{.types = {}, .memory = kNever, .devices = static_cast<double>(devices.size())};
  const cluster::Cluster& cluster = *problem_.cluster;
  const auto add = [&](DeviceId device, std::size_t of, double samples) {
    const auto* before = &times_[of - 1][cluster.device(device).type];
    const auto known = std::ranges::find(made.types, before, &Group::OfType::before);
    if (known != made.types.end()) {
      known->samples += samples;
    } else {
      made.types.push_back({samples, before});
    }
  };
  for (DeviceId device : devices) {
    made.memory = std::min(made.memory, kUsableMemory * space::capacity_bytes(problem_, device));
    const cluster::DeviceType& type = cluster.type_of(device);
    constexpr auto kAdds = static_cast<std::size_t>(cluster::OpClass::kElementwise);
    if (accumulates_ && !paper_) {  // two are read, one is written
      made.accumulate_seconds_per_byte =
          std::max(made.accumulate_seconds_per_byte,
                   3 / (type.memory_bytes_per_second * type.efficiency[kAdds]));
    }
    if (paper_) {
      add(devices.back(), 1, samples_each(1));
    } else {
      add(device, devices.size(), samples_each(devices.size()));
    }
  }
  return made;
}

double StageCosts::compute(std::size_t begin, std::size_t end, const Group& group) const {
  double speed = 0;
  for (const auto& [samples, before] : group.types) {
    speed += samples / ((*before)[end] - (*before)[begin]);
  }
  return micro_batch_ / speed + gradient_bytes(begin, end) * group.accumulate_seconds_per_byte;
}

// There and back.
double StageCosts::channel_latency(std::span<const DeviceId> from,
                                   std::span<const DeviceId> to) const {
  if (paper_) return 0;
  Nanoseconds longest = 0;
  for (DeviceId a : from) {
    for (DeviceId b : to) longest = std::max(longest, problem_.cluster->route(a, b).latency);
  }
  return 2 * to_seconds(longest);
}

double StageCosts::channel_bytes(std::size_t end) const {
  return 2 * (sums_[end].crossing_fixed + sums_[end].crossing_per_sample * micro_batch_);
}

double StageCosts::slowest_seconds_per_byte(std::span<const DeviceId> from,
                                            std::span<const DeviceId> to) const {
  double slowest = 0;
  for (DeviceId a : from) {
    for (DeviceId b : to) {
      if (a != b) slowest = std::max(slowest, space::seconds_per_byte(*problem_.cluster, a, b));
    }
  }
  return slowest;
}

double StageCosts::channel_seconds_per_byte(std::span<const DeviceId> from,
                                            std::span<const DeviceId> to) const {
  return channel_seconds_per_byte(from, to, slowest_seconds_per_byte(from, to));
}

double StageCosts::channel_seconds_per_byte(std::span<const DeviceId> from,
                                            std::span<const DeviceId> to, double slowest) const {
  const cluster::Cluster& cluster = *problem_.cluster;
  if (paper_) return slowest / static_cast<double>(from.size() * to.size());
  // Inside a machine each device has a link of its own; between machines their NICs are shared.
  const std::size_t machines = std::min(machines_of(cluster, from), machines_of(cluster, to));
  const bool one_machine = cluster.same_machine(from.front(), to.front()) &&
                           machines_of(cluster, from) == 1 && machines_of(cluster, to) == 1;
  const std::size_t wide = one_machine ? std::min(from.size(), to.size()) : machines;
  return slowest / static_cast<double>(wide);
}

double StageCosts::all_reduce_seconds_per_byte(std::span<const DeviceId> devices) const {
  return all_reduce_seconds_per_byte(devices.size(), slowest_seconds_per_byte(devices, devices));
}

double StageCosts::all_reduce_seconds_per_byte(std::size_t devices, double slowest) const {
  const auto count = static_cast<double>(devices);
  return 2 * (count - 1) / count * slowest;
}

double StageCosts::held_bytes(std::size_t begin, std::size_t end, const Group& group,
                              std::int64_t in_flight) const {
  const auto resident = static_cast<double>(sums_[end].resident - sums_[begin].resident +
                                            sums_[end].gradients - sums_[begin].gradients);
  const double samples = micro_batch_ / group.devices;
  // What the last of several layers makes for a later stage is sent.
  const std::size_t last = recomputes_ ? end - 1 : end;
  double saved = sums_[last].saved_fixed - sums_[begin].saved_fixed +
                 (sums_[last].saved_per_sample - sums_[begin].saved_per_sample) * samples;
  if (recomputes_) {
    saved += sums_[begin].crossing_fixed + sums_[begin].crossing_per_sample * samples;
  }
  return resident + static_cast<double>(in_flight) * saved + again_ / group.devices;
}

bool StageCosts::fits(std::size_t begin, std::size_t end, const Group& group,
                      std::int64_t in_flight) const {
  return paper_ || held_bytes(begin, end, group, in_flight) <= group.memory;
}

std::size_t most_stages(const cluster::Cluster& cluster) {
  return runs_of(cluster, cluster.device_count());
}

std::size_t most_stages(std::size_t devices) {
  return (devices + least_run(devices) - 1) / least_run(devices);
}

Line::Line(const StageCosts& costs, std::vector<DeviceId> devices)
    : devices_(std::move(devices)),
      run_(run_length(costs.cluster(), devices_.size())),
      runs_(runs_of(costs.cluster(), devices_.size())),
      channels_((runs_ + 1) * (runs_ + 1) * (runs_ + 1)),
      all_reduces_((runs_ + 1) * (runs_ + 1)) {
  // Of every two runs; that of more of them is the greatest of these.
  struct Between {
    double seconds_per_byte = 0, latency = 0;
  };
  std::vector<Between> between(runs_ * runs_);
  for (std::size_t a = 0; a < runs_; ++a) {
    for (std::size_t b = a; b < runs_; ++b) {
      const auto one = this->devices(a, 1), other = this->devices(b, 1);
      between[a * runs_ + b] = {costs.slowest_seconds_per_byte(one, other),
                                a == b ? 0 : costs.channel_latency(one, other)};
    }
  }
  const auto greatest = [&](std::size_t a, std::size_t a_count, std::size_t b,
                            std::size_t b_count) {
    Between most;
    for (std::size_t i = a; i < a + a_count; ++i) {
      for (std::size_t j = std::max(i, b); j < b + b_count; ++j) {
        const Between& one = between[i * runs_ + j];
        most.seconds_per_byte = std::max(most.seconds_per_byte, one.seconds_per_byte);
        most.latency = std::max(most.latency, one.latency);
      }
    }
    return most;
  };
  for (std::size_t first = 0; first < runs_; ++first) {
    for (std::size_t count = 1; first + count <= runs_; ++count) {
      const auto own = this->devices(first, count);
      all_reduces_[first * (runs_ + 1) + count] = costs.all_reduce_seconds_per_byte(
          own.size(), greatest(first, count, first, count).seconds_per_byte);
      for (std::size_t before = 1; before <= first; ++before) {
        const auto from = this->devices(first - before, before);
        const Between most = greatest(first - before, before, first, count);
        channels_[(before * (runs_ + 1) + first) * (runs_ + 1) + count] = {
            costs.channel_seconds_per_byte(from, own, most.seconds_per_byte), most.latency};
      }
    }
  }
}

std::span<const DeviceId> Line::devices(std::size_t first, std::size_t count) const {
  const std::size_t begin = first * run_;
  return std::span(devices_).subspan(begin, std::min(count * run_, devices_.size() - begin));
}

Partitioner::Partitioner(const StageCosts& costs, const Line& line, std::int64_t micro_batches,
                         std::size_t most_stages)
    : costs_(costs),
      line_(line),
      micro_batches_(micro_batches),
      groups_((line.runs() + 1) * (line.runs() + 1)),
      busy_(groups_.size() * (costs.layers() + 1) * (costs.layers() + 1), kNever) {
  EXPECT(line.runs() > 0 && most_stages > 0);
  work_out_busy();
  const std::size_t most = std::min({most_stages, line.runs(), costs.layers()});
  for (std::size_t behind = 0; behind < most; ++behind) add_stage(behind);
}

void Partitioner::work_out_busy() {
  const std::size_t layers = costs_.layers();
  for (std::size_t first = 0; first < line_.runs(); ++first) {
    for (std::size_t count = 1; first + count <= line_.runs(); ++count) {
      StageCosts::Group& group = groups_[at(first, count)];
      group = costs_.group(line_.devices(first, count));
      const double reduced = line_.all_reduce_seconds_per_byte(first, count);
      for (std::size_t begin = 0; begin < layers; ++begin) {
        double* busy = busy_.data() + at(first, count, begin) * (layers + 1);
        // With each layer more a stage takes longer and holds more.
        for (std::size_t end = begin + 1; end <= layers; ++end) {
          if (!costs_.fits(begin, end, group, 1)) break;
          busy[end] = static_cast<double>(micro_batches_) * costs_.compute(begin, end, group) +
                      costs_.gradient_bytes(begin, end) * reduced;
        }
      }
    }
  }
}

void Partitioner::add_stage(std::size_t behind) {
  const std::size_t layers = costs_.layers(), runs = line_.runs();
  table_.emplace_back(groups_.size() * (layers + 1));
  for (std::size_t first = 0; first + behind < runs; ++first) {
    for (std::size_t count = 1; first + count + behind <= runs; ++count) {
      if (behind == 0 && first + count != runs) continue;
      for (std::size_t begin = 0; begin + behind < layers; ++begin) {
        const Entry entry = best_entry(behind, first, count, begin);
        table_[behind][at(first, count, begin)] = entry;
        Entry& least = table_[behind][at(first, 0, begin)];
        least.worst = std::min(least.worst, entry.worst);
      }
    }
  }
}

Partitioner::Entry Partitioner::best_entry(std::size_t behind, std::size_t first, std::size_t count,
                                           std::size_t begin) const {
  const std::size_t layers = costs_.layers(), next = first + count;
  const StageCosts::Group& group = groups_[at(first, count)];
  const double* busy = busy_.data() + at(first, count, begin) * (layers + 1);
  const auto micro_batches = static_cast<double>(micro_batches_);
  const std::int64_t in_flight = std::min(micro_batches_, static_cast<std::int64_t>(behind) + 1);
  Entry entry;
  if (behind == 0) {
    if (busy[layers] < kNever) {
      entry = {busy[layers], static_cast<std::uint32_t>(layers), 0, busy[layers]};
    }
    return entry;
  }
  const std::vector<Entry>& later = table_[behind - 1];
  for (std::size_t end = begin + 1; end + behind <= layers; ++end) {
    if (busy[end] == kNever || busy[end] > entry.worst) break;
    if (!costs_.fits(begin, end, group, in_flight)) break;
    if (later[at(next, 0, end)].worst > entry.worst) continue;
    for (std::size_t other = 1; next + other <= line_.runs(); ++other) {
      const Entry& rest = later[at(next, other, end)];
      if (rest.worst == kNever || rest.worst > entry.worst) continue;
      const Line::Channel& channel = line_.channel(count, next, other);
      const double moves =
          micro_batches * (costs_.channel_bytes(end) * channel.seconds_per_byte + channel.latency);
      const double worst = std::max({rest.worst, busy[end], moves});
      const double sum = rest.sum + busy[end] + moves;
      if (std::pair(worst, sum) >= std::pair(entry.worst, entry.sum)) continue;
      entry = {worst, static_cast<std::uint32_t>(end), static_cast<std::uint32_t>(other), sum};
    }
  }
  return entry;
}

std::optional<std::vector<Stage>> Partitioner::partition(std::size_t stages_wanted) const {
  EXPECT(stages_wanted > 0);
  if (stages_wanted > table_.size()) return std::nullopt;
  std::size_t count = 1;
  for (std::size_t one = 2; one <= line_.runs(); ++one) {
    const std::vector<Entry>& all = table_[stages_wanted - 1];
    if (all[at(0, one, 0)].worst < all[at(0, count, 0)].worst) count = one;
  }
  std::vector<Stage> stages;
  for (std::size_t begin = 0, first = 0; stages.size() < stages_wanted;) {
    const Entry& entry = table_[stages_wanted - stages.size() - 1][at(first, count, begin)];
    if (entry.worst == kNever) return std::nullopt;
    const auto own = line_.devices(first, count);
    stages.push_back({begin, entry.end, {own.begin(), own.end()}});
    first += count;
    begin = entry.end;
    count = entry.count;
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

double busiest_stage(const StageCosts& costs, std::span<const Stage> stages,
                     std::int64_t micro_batches) {
  double busiest = 0;
  for (const Stage& stage : stages) {
    double seconds = 0;
    for (const Stage& other : stages) {
      if (other.devices != stage.devices) continue;
      seconds += costs.compute(other.begin, other.end, other.devices);
    }
    busiest = std::max(busiest, seconds);
  }
  return static_cast<double>(micro_batches) * busiest;
}

}  // namespace heterog::search
