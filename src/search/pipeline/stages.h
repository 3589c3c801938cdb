// Which layers run on which devices, so that no stage and no channel is much slower than the rest.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "search/pipeline/chain.h"

namespace heterog::search {

// Layers [begin, end) on `devices`, each with its share of every micro-batch.
struct Stage {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::vector<DeviceId> devices;
  friend bool operator==(const Stage&, const Stage&) = default;
};

// times_before() of one chain for several numbers of micro-batches, whose parts are often the same.
class LayerTimes {
 public:
  LayerTimes(const cost::Problem& problem, const Chain& chain) : problem_(problem), chain_(chain) {}
  const std::vector<double>& before(DeviceTypeId type, std::int64_t samples);
  const cost::Problem& problem() const { return problem_; }
  const Chain& chain() const { return chain_; }

 private:
  const cost::Problem& problem_;
  const Chain& chain_;
  std::map<std::pair<DeviceTypeId, std::int64_t>, std::vector<double>> known_;
};

// What stages cost, in seconds.
class StageCosts {
 public:
  // `paper`: as SPP writes it down: every replica as fast as the last one in the line, no memory,
  // and channels as wide as their replicas are many.
  StageCosts(LayerTimes& times, std::int64_t micro_batches, bool paper);

  // What a stage on some devices takes and holds, whatever its layers.
  struct Group {
    // Samples of a micro-batch for each second that `before`, by which layers take so much, says:
    // of each type of device, the samples of all its devices together.
    struct OfType {
      double samples = 0;
      const std::vector<double>* before = nullptr;
    };
    std::vector<OfType> types;
    double memory = 0;  // usable, of the device with the least
    double devices = 1;
    // To add up a micro-batch's gradients, of the device that is slowest at it.
    double accumulate_seconds_per_byte = 0;
  };
  Group group(std::span<const DeviceId> devices) const;
  const cluster::Cluster& cluster() const { return *problem_.cluster; }
  std::size_t layers() const { return sums_.size() - 1; }
  // A micro-batch through the layers, forward and backward, shared out by speed, and its gradients
  // added to those before.
  double compute(std::size_t begin, std::size_t end, const Group& group) const;
  double compute(std::size_t begin, std::size_t end, std::span<const DeviceId> devices) const {
    return compute(begin, end, group(devices));
  }
  // Samples a second of one of so many devices, on its part of a micro-batch.
  double speed(std::size_t begin, std::size_t end, DeviceId device, std::size_t devices) const;
  // A micro-batch's activations to the next stage, and their gradients back.
  double channel(std::size_t end, std::span<const DeviceId> from,
                 std::span<const DeviceId> to) const {
    return channel_bytes(end) * channel_seconds_per_byte(from, to) + channel_latency(from, to);
  }
  double channel_latency(std::span<const DeviceId> from, std::span<const DeviceId> to) const;
  double channel_bytes(std::size_t end) const;
  double channel_seconds_per_byte(std::span<const DeviceId> from,
                                  std::span<const DeviceId> to) const;
  // The same where the slowest way of a byte from one of them to another is known.
  double channel_seconds_per_byte(std::span<const DeviceId> from, std::span<const DeviceId> to,
                                  double slowest) const;
  // A ring all-reduce of the stage's gradients (SPP equation 1).
  double all_reduce(std::size_t begin, std::size_t end, std::span<const DeviceId> devices) const {
    return gradient_bytes(begin, end) * all_reduce_seconds_per_byte(devices);
  }
  double gradient_bytes(std::size_t begin, std::size_t end) const {
    return static_cast<double>(sums_[end].gradients - sums_[begin].gradients);
  }
  double all_reduce_seconds_per_byte(std::span<const DeviceId> devices) const;
  double all_reduce_seconds_per_byte(std::size_t devices, double slowest) const;
  // Between any two of them, there and back.
  double slowest_seconds_per_byte(std::span<const DeviceId> from,
                                  std::span<const DeviceId> to) const;
  // Parameters, their state and gradients, and what `in_flight` micro-batches keep, on each device;
  // whether that fits.
  double held_bytes(std::size_t begin, std::size_t end, const Group& group,
                    std::int64_t in_flight) const;
  bool fits(std::size_t begin, std::size_t end, const Group& group, std::int64_t in_flight) const;

 private:
  double samples_each(std::size_t devices) const;

  const cost::Problem& problem_;
  // [devices of a stage − 1][type]: times_before() at their part of a micro-batch.
  std::vector<IdVector<DeviceTypeId, std::vector<double>>> times_;
  double micro_batch_ = 0;  // samples
  bool accumulates_ = false;
  bool paper_ = false;
  bool recomputes_ = false;
  double again_ = 0;                // bytes of a micro-batch while a layer runs again
  std::vector<Chain::Layer> sums_;  // of all layers before; crossings as they are
};

// The most stages that Partitioner makes of a cluster; and of so many devices, of any.
std::size_t most_stages(const cluster::Cluster& cluster);
std::size_t most_stages(std::size_t devices);

// A line of devices, and what moves along it. Of more than 12 devices, neighbours make runs that
// stay together: parts of a machine or whole machines, where these are alike.
class Line {
 public:
  Line(const StageCosts& costs, std::vector<DeviceId> devices);
  std::size_t runs() const { return runs_; }
  std::span<const DeviceId> devices(std::size_t first, std::size_t count) const;
  // StageCosts' seconds per byte and latency, of the runs [middle − before, middle) and
  // [middle, middle + count).
  struct Channel {
    double seconds_per_byte = 0;
    double latency = 0;
  };
  const Channel& channel(std::size_t before, std::size_t middle, std::size_t count) const {
    return channels_[(before * (runs_ + 1) + middle) * (runs_ + 1) + count];
  }
  double all_reduce_seconds_per_byte(std::size_t first, std::size_t count) const {
    return all_reduces_[first * (runs_ + 1) + count];
  }

 private:
  std::vector<DeviceId> devices_;
  std::size_t run_ = 1;
  std::size_t runs_ = 0;
  std::vector<Channel> channels_;
  std::vector<double> all_reduces_;
};

// Algorithm PRM of SPP (appendix A): a dynamic program over layers, stages, replicas and the line
// of devices, which minimises the greatest time that a stage or channel is busy. All devices of the
// line are used. It goes from the last stage to the first, since what a stage keeps depends on how
// many are behind it: so one program answers for all numbers of stages. Costs and line have to
// outlive it.
class Partitioner {
 public:
  // For 1 to `most_stages` stages. O(layers² · most_stages · runs³).
  Partitioner(const StageCosts& costs, const Line& line, std::int64_t micro_batches,
              std::size_t most_stages);
  // Nothing where no partition fits.
  std::optional<std::vector<Stage>> partition(std::size_t stages) const;

 private:
  // The layers [begin, all) on the runs [first, all), the first stage of which has `count` runs.
  struct Entry {
    double worst = std::numeric_limits<double>::infinity();
    std::uint32_t end = 0;    // where the first stage ends
    std::uint32_t count = 0;  // runs of the stage behind it
    double sum = 0;           // what all stages and channels are busy
  };
  // Of a stage on the runs [first, first + count).
  std::size_t at(std::size_t first, std::size_t count) const {
    return first * (line_.runs() + 1) + count;
  }
  std::size_t at(std::size_t first, std::size_t count, std::size_t begin) const {
    return at(first, count) * (costs_.layers() + 1) + begin;
  }
  void work_out_busy();
  void add_stage(std::size_t behind);
  Entry best_entry(std::size_t behind, std::size_t first, std::size_t count,
                   std::size_t begin) const;

  const StageCosts& costs_;
  const Line& line_;
  std::int64_t micro_batches_;
  std::vector<StageCosts::Group> groups_;  // [at()]
  // [at(first, count, begin)][end]: seconds for which a step keeps the stage busy, where it fits.
  std::vector<double> busy_;
  // [stages behind the first][at(first, count, begin)]; at count 0, which no stage has, the least
  // of all.
  std::vector<std::vector<Entry>> table_;
};

// What a step of the stages takes if nothing but dependencies and stages delays it: the first
// micro-batch through all stages and back, the others one behind the other at the slowest, and the
// last all-reduce.
double estimate_step(const StageCosts& costs, std::span<const Stage> stages,
                     std::int64_t micro_batches);
// What the devices that compute longest compute in a step, in all of their stages; no step is
// shorter than that, but for what the costs leave out.
double busiest_stage(const StageCosts& costs, std::span<const Stage> stages,
                     std::int64_t micro_batches);

}  // namespace heterog::search
