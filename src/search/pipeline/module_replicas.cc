// A dynamic program over layers for stages whose devices are given.
#include "search/pipeline/module_replicas.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "decide/micro_batches.h"
#include "search/pipeline/module_stages.h"

namespace heterog::search {
namespace {

using Groups = std::vector<std::vector<DeviceId>>;  // of each stage, replica by replica

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostChoices = 24;  // of a number of stages and replicas

// Of choices with devices of the same types and machines in the same places, the first.
std::vector<Groups> choices(const cost::Problem& problem, std::size_t stages,
                            std::size_t replicas) {
  const cluster::Cluster& cluster = *problem.cluster;
  std::vector<Groups> found;
  std::vector<std::vector<std::pair<DeviceTypeId, MachineId>>> kinds;
  for (const std::vector<DeviceId>& line : promising_lines(problem)) {
    for (std::size_t first = 0; first + stages * replicas <= line.size(); ++first) {
      for (const bool stage_by_stage : {true, false}) {
        Groups groups(stages);
        std::vector<std::pair<DeviceTypeId, MachineId>> kind;
        for (std::size_t s = 0; s < stages; ++s) {
          for (std::size_t r = 0; r < replicas; ++r) {
            const std::size_t at = stage_by_stage ? s * replicas + r : r * stages + s;
            const DeviceId device = line[first + at];
            groups[s].push_back(device);
            kind.emplace_back(cluster.device(device).type, cluster.device(device).machine);
          }
        }
        if (found.size() == kMostChoices || std::ranges::find(kinds, kind) != kinds.end()) continue;
        kinds.push_back(std::move(kind));
        found.push_back(std::move(groups));
      }
    }
  }
  return found;
}

// The boundaries that make the greatest time that a stage or channel is busy least, as Partitioner
// has it; nothing where none fits. O(stages · layers²).
std::optional<std::vector<Stage>> best_boundaries(const StageCosts& costs, const Groups& groups,
                                                  std::int64_t micro_batches) {
  struct Entry {
    double worst = kNever;
    std::size_t begin = 0;
  };
  const std::size_t layers = costs.layers(), count = groups.size();
  const auto parts = static_cast<double>(micro_batches);
  // [stages so far][layers so far]
  std::vector<std::vector<Entry>> table(count + 1, std::vector<Entry>(layers + 1));
  table[0][0].worst = 0;
  for (std::size_t s = 0; s < count; ++s) {
    const StageCosts::Group group = costs.group(groups[s]);
    const auto in_flight = std::min(micro_batches, static_cast<std::int64_t>(count - s));
    const double reduced = costs.all_reduce_seconds_per_byte(groups[s]);
    const double per_byte = s == 0 ? 0 : costs.channel_seconds_per_byte(groups[s - 1], groups[s]);
    const double latency = s == 0 ? 0 : costs.channel_latency(groups[s - 1], groups[s]);
    for (std::size_t end = s + 1; end + (count - s - 1) <= layers; ++end) {
      Entry& entry = table[s + 1][end];
      // Backwards: with each layer more a stage takes longer and holds more.
      for (std::size_t begin = end; begin-- > s;) {
        if (!costs.fits(begin, end, group, in_flight)) break;
        const double busy =
            parts * costs.compute(begin, end, group) + costs.gradient_bytes(begin, end) * reduced;
        if (busy >= entry.worst) break;
        const double moves = s == 0 ? 0 : parts * (costs.channel_bytes(begin) * per_byte + latency);
        const double worst = std::max({table[s][begin].worst, busy, moves});
        if (worst < entry.worst) entry = {worst, begin};
      }
    }
  }
  if (table[count][layers].worst == kNever) return std::nullopt;
  std::vector<Stage> stages(count);
  std::size_t end = layers;
  for (std::size_t s = count; s-- > 0;) {
    stages[s] = {table[s + 1][end].begin, end, groups[s]};
    end = stages[s].begin;
  }
  return stages;
}

}  // namespace

void add_cuts_of_replicas(const cost::Problem& problem, CutPool& pool, std::size_t stages,
                          std::size_t replicas, oracle::Oracle& oracle) {
  const std::vector<Groups> all = choices(problem, stages, replicas);
  const std::size_t ways = pool.micro_batches.size();
  const auto ops = std::max<std::int64_t>(1, static_cast<std::int64_t>(problem.folded->ops.size()));
  // Cuts of other numbers of stages and replicas have other lines.
  std::size_t line = 0;
  for (const Cut& cut : pool.found) line = std::max(line, cut.line + 1);
  std::vector<std::optional<Cut>> cuts(all.size() * ways);
  oracle.for_each(cuts.size(), [&](std::size_t i) {
    const std::int64_t parts = pool.micro_batches[i % ways];
    const StageCosts& costs = pool.once.costs[i % ways];
    const bool too_many =
        parts * static_cast<std::int64_t>(replicas) > decide::kMostInstances / ops;
    if (too_many || problem.batch / parts < static_cast<std::int64_t>(replicas)) return;
    auto found = best_boundaries(costs, all[i / ways], parts);
    if (!found) return;
    cuts[i] = {.stages = *std::move(found), .costs = i % ways, .line = line + i / ways};
  });
  for (std::optional<Cut>& cut : cuts) {
    if (cut) pool.found.push_back(*std::move(cut));
  }
}

}  // namespace heterog::search
