// Splits all places into classes, layout by layout.
#include "compiler/symmetry.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "decide/micro_batches.h"

namespace heterog::compiler {
namespace {

using decide::Layout;
using decide::LayoutId;
using graph::Phase;

// Classes of places, which are split by one property after the other.
class Classes {
 public:
  explicit Classes(std::size_t places) : of_(places, 0), key_(places, 0) {}

  // Of the places, those that differ by their key are not alike. `set_keys(keys)` says the keys of
  // some, each of which is 0 before.
  template <class SetKeys>
  void split(SetKeys set_keys) {
    std::ranges::fill(key_, 0);
    set_keys(key_);
    using Old = std::pair<std::uint32_t, std::int64_t>;
    std::map<Old, std::uint32_t> known;
    Old last{~0u, 0};  // neighbours are mostly alike
    std::uint32_t became = 0;
    for (DeviceId place : id_range<DeviceId>(of_.size())) {
      const Old old{of_[place], key_[place]};
      if (old != last) became = known.try_emplace(old, known.size()).first->second;
      last = old;
      of_[place] = became;
    }
    count_ = known.size();
  }
  std::size_t count() const { return count_; }
  std::uint32_t of(DeviceId place) const { return of_[place]; }

 private:
  IdVector<DeviceId, std::uint32_t> of_;
  IdVector<DeviceId, std::int64_t> key_;
  std::size_t count_ = 1;
};

// What is more urgent, and whose turn it is, follows from ranks, times and micro-batches alone.
bool names_no_instances(const decide::Strategy& strategy) {
  return strategy.priorities.empty() && !strategy.strict && strategy.pipeline_of.empty();
}

bool any_moves_bytes_itself(const cluster::Cluster& cluster) {
  double greatest = 0;
  for (DeviceId place : cluster.place_ids()) {
    greatest = std::max(greatest, cluster.device(place).overhead_seconds_per_byte);
  }
  return greatest > 0;
}

// The slices of all forward and backward ops, if they are the same but for ops that run once per
// device; else invalid.
LayoutId only_layout(const cost::Problem& problem, const Layout& layout) {
  LayoutId only;
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase == Phase::kUpdate) continue;
    const LayoutId one = layout.of_op[op];
    if (!only.valid() || layout.merged[one] != one) only = one;
  }
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase == Phase::kUpdate) continue;
    const LayoutId one = layout.of_op[op];
    if (one != only && one != layout.merged[only]) return {};
  }
  return only;
}

// No parameter has a server, but for those that one device alone has.
bool is_without_servers(const Layout& layout, std::span<const DeviceId> computing) {
  return std::ranges::all_of(layout.homes, [&](const decide::ParameterHome& home) {
    if (home.hosts > 0 || home.partitioned()) return false;
    return home.replicas.size() == 1 ||
           (!home.server.valid() && std::ranges::equal(home.replicas, computing));
  });
}

// By the instances of each, one after the other, and what `key_of` says of these.
template <class KeyOf>
void split_by_slices(const std::vector<decide::Slice>& slices, Classes& classes, KeyOf key_of) {
  std::map<DeviceId, std::size_t> seen;
  std::vector<std::vector<const decide::Slice*>> rounds;  // the first of each device, the second …
  for (const decide::Slice& slice : slices) {
    const std::size_t round = seen[slice.device]++;
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round].push_back(&slice);
  }
  for (const auto& round : rounds) {
    classes.split([&](auto& key) {
      for (const decide::Slice* slice : round) key[slice->device] = key_of(*slice);
    });
  }
}

}  // namespace

std::size_t Symmetry::count(std::span<const DeviceId> places) const {
  std::size_t all = 0;
  for (DeviceId place : places) all += sizes[place.value()];
  return all;
}

std::optional<Symmetry> find_symmetry(const cost::Problem& problem,
                                      const decide::Strategy& strategy,
                                      const decide::Layout& layout) {
  const cluster::Cluster& cluster = *problem.cluster;
  if (!names_no_instances(strategy) || any_moves_bytes_itself(cluster)) return std::nullopt;
  const LayoutId slices = only_layout(problem, layout);
  if (!slices.valid()) return std::nullopt;
  Symmetry symmetry;
  for (const decide::Slice& slice : layout.slices[layout.merged[slices]]) {
    symmetry.computing.push_back(slice.device);
  }
  std::ranges::sort(symmetry.computing);
  if (!is_without_servers(layout, symmetry.computing)) return std::nullopt;

  Classes classes(cluster.place_count());
  classes.split([&](auto& key) {
    for (DeviceId place : cluster.place_ids()) key[place] = cluster.device(place).type.value();
  });
  classes.split([&](auto& key) {
    for (DeviceId place : cluster.place_ids()) key[place] = cluster.device(place).memory_bytes;
  });
  classes.split([&](auto& key) {  // as of its network card
    for (DeviceId place : cluster.place_ids()) {
      key[place] = cluster.machine(cluster.device(place).machine).transfer_multiprocessors;
    }
  });
  std::set<LayoutId> used;
  for (OpId op : problem.folded->ops) {
    if (layout.of_op[op].valid()) used.insert(layout.of_op[op]);
  }
  for (const decide::ParameterHome& home : layout.homes) used.insert(home.update);
  for (LayoutId one : used) {
    classes.split([&](auto& key) { key[layout.slices[one].front().device] = 1; });
    split_by_slices(layout.slices[one], classes,
                    [](const decide::Slice& slice) { return slice.size(); });
  }
  // Whoever reads a frozen tensor in an earlier micro-batch waits for others to gather it.
  if (!layout.gathered.empty() && strategy.micro_batches > 1) {
    const auto boundaries = decide::micro_batch_boundaries(problem.batch, strategy.micro_batches);
    split_by_slices(layout.slices[slices], classes, [&](const decide::Slice& slice) {
      return 1 + decide::micro_batch_of(boundaries, slice.begin);
    });
  }
  std::set<std::int64_t> dealt;  // numbers of rows, each of which is cut in one way
  for (const decide::ParameterHome& home : layout.homes) {
    if (!home.by_rows() || !dealt.insert(home.row_count()).second) continue;
    classes.split([&](auto& key) {
      for (std::size_t i = 0; i < home.replicas.size(); ++i)
        key[home.replicas[i]] = home.rows_of(i);
    });
  }
  if (classes.count() == cluster.place_count()) return std::nullopt;

  // Classes are numbered by their first places, so representatives ascend.
  symmetry.sizes.assign(classes.count(), 0);
  for (DeviceId place : cluster.place_ids()) {
    const std::uint32_t one = classes.of(place);
    if (symmetry.sizes[one]++ == 0) symmetry.representatives.push_back(place);
    symmetry.place_of.push_back(DeviceId(one));
  }
  return symmetry;
}

decide::Layout of_representatives(const decide::Layout& layout, const Symmetry& symmetry) {
  std::vector<std::size_t> computing;  // representatives, as indices of those who compute
  for (std::size_t i = 0; i < symmetry.computing.size(); ++i) {
    if (symmetry.represents(symmetry.computing[i])) computing.push_back(i);
  }
  decide::Layout reduced;
  reduced.merged = layout.merged;
  reduced.of_op = layout.of_op;
  reduced.home_of = layout.home_of;
  reduced.row_home_of = layout.row_home_of;
  reduced.gathered = layout.gathered;
  reduced.sums_at_update = layout.sums_at_update;
  for (const auto& slices : layout.slices) {
    std::vector<decide::Slice> own;
    for (const decide::Slice& slice : slices) {
      if (!symmetry.represents(slice.device)) continue;
      own.push_back({symmetry.place_of[slice.device], slice.begin, slice.end});
    }
    reduced.slices.push_back(std::move(own));
  }
  reduced.homes.reserve(layout.homes.size());
  for (const decide::ParameterHome& home : layout.homes) {
    decide::ParameterHome& own = reduced.homes.emplace_back();
    own.update = home.update;
    own.method = home.method;
    own.group = home.group;
    if (home.server.valid()) own.server = symmetry.place_of[home.server];
    if (home.by_rows()) own.rows.push_back(0);
    const auto keep = [&](std::size_t i) {
      own.replicas.push_back(symmetry.place_of[home.replicas[i]]);
      if (home.by_rows()) own.rows.push_back(own.rows.back() + home.rows_of(i));
    };
    if (home.replicas.size() == 1) {
      keep(0);
    } else {
      std::ranges::for_each(computing, keep);
    }
    if (home.by_rows()) own.rows.push_back(home.row_count());  // behind what others have
  }
  return reduced;
}

}  // namespace heterog::compiler
