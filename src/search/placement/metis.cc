// A symmetric graph of sets, and METIS' C interface, loaded when it is asked for.
#include "search/placement/metis.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/shared_library.h"
#include "search/placement/node_orders.h"

namespace heterog::search {
namespace {

// Of metis.h 5.1.
using Index = std::int32_t;
using Real = float;
constexpr std::size_t kOptions = 40;
constexpr std::size_t kSeed = 8, kImbalance = 16;
constexpr int kDone = 1;
using SetDefaults = int(Index*);
using Partition = int(Index*, Index*, Index*, Index*, Index*, Index*, Index*, Index*, Real*, Real*,
                      Index*, Index*, Index*);

// Whole numbers of at most this sum, as METIS adds them up in 32 bits.
constexpr double kMostWeight = 1e9;

struct SetGraph {
  std::vector<Index> begins = {0}, others, bytes, work;
};

SetGraph graph_of_sets(const PlacementGraph& graph) {
  const std::size_t sets = graph.set_bytes.size();
  const Weights weighed = weights(graph, Of::kMean);
  std::vector<double> work(sets, 0);
  std::map<std::pair<SetId, SetId>, double> between;
  double all_work = 1, all_bytes = 1;
  for (NodeId node : graph.nodes()) {
    const SetId here = graph.set_of[node];
    work[here.value()] += static_cast<double>(weighed.node[node]);
    all_work += static_cast<double>(weighed.node[node]);
    for (const Edge& edge : graph.outputs[node]) {
      const SetId there = graph.set_of[edge.node];
      if (here == there) continue;
      const auto bytes = static_cast<double>(edge.bytes);
      between[{here, there}] += bytes;
      between[{there, here}] += bytes;
      all_bytes += 2 * bytes;
    }
  }
  const auto whole = [](double part, double all) {
    return static_cast<Index>(1 + part / all * (kMostWeight / 2));
  };
  SetGraph made;
  for (double one : work) made.work.push_back(whole(one, all_work));
  for (auto at = between.begin(); SetId set : id_range<SetId>(sets)) {
    for (; at != between.end() && at->first.first == set; ++at) {
      made.others.push_back(static_cast<Index>(at->first.second.value()));
      made.bytes.push_back(whole(at->second, all_bytes));
    }
    made.begins.push_back(static_cast<Index>(made.others.size()));
  }
  return made;
}

// Of each device: which part of all work it does in the time in which all devices do it all.
std::vector<Real> speeds(const PlacementGraph& graph) {
  std::vector<double> speed;
  double all = 0;
  for (DeviceId device : graph.problem->cluster->device_ids()) {
    double takes = 1;
    for (NodeId node : graph.nodes()) {
      takes +=
          static_cast<double>(graph.duration(node, graph.problem->cluster->device(device).type));
    }
    speed.push_back(1 / takes);
    all += speed.back();
  }
  std::vector<Real> parts;
  for (double one : speed) parts.push_back(static_cast<Real>(one / all));
  return parts;
}

// While it lives, what C prints goes nowhere, as in glibc `stdout` is a variable. METIS prints
// remarks to the output of whoever calls it, where it finds less to cut than there are parts.
class WithoutRemarks {
 public:
  WithoutRemarks() : output_(stdout), nowhere_(std::fopen("/dev/null", "w")) {
    if (nowhere_ != nullptr) stdout = nowhere_;
  }
  ~WithoutRemarks() {
    stdout = output_;
    if (nowhere_ != nullptr) std::fclose(nowhere_);
  }
  WithoutRemarks(const WithoutRemarks&) = delete;
  WithoutRemarks& operator=(const WithoutRemarks&) = delete;

 private:
  std::FILE* const output_;
  std::FILE* const nowhere_;
};

}  // namespace

Placement partitioned(const PlacementGraph& graph, const MetisOptions& options,
                      const std::string& library) {
  const SharedLibrary metis(library, "metis", "the partitioner METIS", "on Debian: libmetis5");
  const std::size_t devices = graph.problem->cluster->device_count();
  const std::size_t sets = graph.set_bytes.size();
  std::vector<Index> part(sets, 0);
  if (devices > 1 && sets > 1) {
    std::array<Index, 2 * kOptions> settings{};
    metis.function<SetDefaults>("METIS_SetDefaultOptions")(settings.data());
    // All of them become −1: as many bytes as there are say how wide a number is.
    VALIDATE(settings[kOptions] == 0, "metis: {} has numbers of 64 bits; expected 32", library);
    settings[kSeed] = static_cast<Index>(options.seed);
    settings[kImbalance] = static_cast<Index>(options.imbalance);
    SetGraph of_sets = graph_of_sets(graph);
    std::vector<Real> parts = speeds(graph);
    auto vertices = static_cast<Index>(sets), count = static_cast<Index>(devices);
    Index constraints = 1, cut = 0;
    // METIS draws from the one generator that the C library has.
    static std::mutex mutex;
    const std::scoped_lock lock(mutex);
    const WithoutRemarks silence;
    const int ended = metis.function<Partition>("METIS_PartGraphKway")(
        &vertices, &constraints, of_sets.begins.data(), of_sets.others.data(), of_sets.work.data(),
        nullptr, of_sets.bytes.data(), &count, parts.data(), nullptr, settings.data(), &cut,
        part.data());
    if (ended != kDone) {
      throw Error(ErrorKind::kVerification,
                  fmt::format("metis: METIS ends with {} on {} vertices", ended, sets));
    }
  }
  Placement placement;
  for (NodeId node : graph.nodes()) {
    placement.push_back(DeviceId(static_cast<std::size_t>(part[graph.set_of[node].value()])));
  }
  return placement;
}

}  // namespace heterog::search
