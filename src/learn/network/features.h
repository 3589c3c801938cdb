// Features: the network's view of a problem, as one named, versioned table (HeteroG §4.1.1).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cost/problem.h"
#include "space/action_space.h"
#include "space/summary.h"

namespace heterog::learn {

// Raised whenever a row of the table changes, or the actions or their order; a checkpoint of
// another version is refused.
inline constexpr int kFeatureVersion = 3;

// Brings a raw value to about [−1, 1.5].
enum class Normalizer : std::uint8_t {
  kShare,     // as it is, cut to [−4, 4]
  kFlag,      // 0 or 1
  kSeconds,   // log(1 + x / 1 µs) / 10
  kBytes,     // log(1 + x / 1 KiB) / 15
  kCount,     // log(1 + x) / 5
  kLogRatio,  // log(x) / 3, cut to [−4, 4]; 0 counts as the smallest
};
std::string_view normalizer_name(Normalizer normalizer);
double normalize(Normalizer normalizer, double raw);

// The subject that a row of the table describes.
enum class Subject : std::uint8_t { kOp, kGroup, kDevice, kAction };
std::string_view subject_name(Subject subject);

// A row, without its getter: for documentation, checks and the version test.
struct FeatureInfo {
  Subject subject;
  std::string_view name;
  std::string_view unit;
  Normalizer normalizer;
};
std::vector<FeatureInfo> feature_table();
int feature_count(Subject subject);

// Row-major, rows × columns.
struct FeatureMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values;
  float at(std::int64_t row, std::int64_t column) const { return values[row * columns + column]; }
};

// How an action shares the batch and sums gradients, whatever its devices: alone, EV-PS, EV-AR,
// CP-PS, CP-AR, balanced by parameter server, balanced by all-reduce.
inline constexpr std::int64_t kSchemes = 7;

// A problem as the network reads it. Actions are in the order of space::ActionSpace.
struct Features {
  FeatureMatrix ops;      // one row an op that is not an alias
  FeatureMatrix groups;   // one row a group
  FeatureMatrix devices;  // one row a device
  FeatureMatrix actions;  // one row a (group, action), groups outermost
  std::int64_t action_count = 0;
  // Members of each action: for a device that takes part in it 1 over how many do, else 0.
  FeatureMatrix members;             // actions × devices
  std::vector<std::int64_t> scheme;  // of each action, its scheme
  // Neighbours of the attention, ascending (target, source): both directions, and each op itself.
  std::vector<std::int64_t> edge_source, edge_target;
  std::vector<std::int64_t> group_of_op;  // by row of ops
  std::vector<std::uint8_t> allowed;      // by row of actions: 0 where the state of the group's
                                          // parameters alone does not fit on the device
};

Features make_features(const space::Summary& summary);
Features make_features(const cost::Problem& problem,
                       space::ActionTable table = space::ActionTable::kHeterog);

}  // namespace heterog::learn
