// The cases of a config, each there when it is asked about.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "learn/config.h"
#include "learn/problems/problems.h"
#include "learn/reinforce/case.h"

namespace heterog::learn {

// A problem of hundreds of devices takes tens of megabytes, and a config may have thousands: cases
// are made when they are asked for, and random ones are let go when a step no longer needs them.
class Cases {
 public:
  // Every graph × batch × cluster of the config, in that order, then the random ones. `stopped` is
  // asked before each: once it is true, this throws; empty: never.
  explicit Cases(const TrainConfig& config, const std::function<bool()>& stopped = {});
  // One, which is there.
  Cases(const TrainConfig& config, Case only);

  std::size_t size() const { return entries_.size(); }
  const std::string& name(std::size_t i) const { return entries_[i].name; }
  // Of graph, cluster and batch.
  std::uint64_t hash(std::size_t i) const { return entries_[i].hash; }
  // Makes it, if it is not there.
  const Case& operator[](std::size_t i);
  // Lets random cases go, but these.
  void keep(std::span<const std::size_t> these);

 private:
  struct Entry {
    std::string name;  // "vgg19 192 heterog-8gpu"
    std::uint64_t hash = 0;
    DrawnProblem given;        // of a random case, empty
    std::int64_t number = -1;  // of a random case
  };
  void add(const DrawnProblem& drawn, std::int64_t number);

  std::unique_ptr<const TrainConfig> config_;  // which the loader reads
  std::unique_ptr<ProblemLoader> loader_;
  std::vector<Entry> entries_;
  std::map<std::size_t, Case> there_;
};

}  // namespace heterog::learn
