// A graph, a cluster and a batch to a problem with its name.
#include "learn/problems/problems.h"

#include <algorithm>

#include "cost/cost_model.h"
#include "graph/graph_io.h"
#include "learn/problems/random_cluster.h"

namespace heterog::learn {

std::optional<NamedProblem> ProblemLoader::given(
    const TrainGraph& entry, std::int64_t batch,
    const std::shared_ptr<const cluster::Cluster>& cluster) {
  const Graph& file = graph_of(entry.graph);
  if (std::ranges::find(config_.leave_out, file.graph->name()) != config_.leave_out.end()) {
    return std::nullopt;
  }
  return NamedProblem{
      .name = fmt::format("{} {} {}", file.graph->name(), batch, cluster->name()),
      .problem = cost::make_problem(file.graph, cluster, cost::CalibratedModel(), batch,
                                    {.max_groups = static_cast<int>(config_.max_groups)})};
}

std::optional<NamedProblem> ProblemLoader::random(std::int64_t number) {
  Rng rng =
      random_stream(config_, RandomStream::kRandomCases).split(static_cast<std::uint64_t>(number));
  const TrainGraph& entry = config_.graphs[rng.below(config_.graphs.size())];
  const std::int64_t base = entry.batches[rng.below(entry.batches.size())];
  const auto cluster = std::make_shared<const cluster::Cluster>(random_cluster(
      fmt::format("random-{}", number), config_.random_devices, rng.split(1), devices_, links_));
  const auto count = static_cast<std::int64_t>(cluster->device_count());
  const std::int64_t scaled = (base * count << rng.below(3)) / 16;
  return given(entry, graph_of(entry.graph).known.next(std::max(scaled, count)), cluster);
}

const ProblemLoader::Graph& ProblemLoader::graph_of(const std::string& path) {
  const auto at = graphs_.find(path);
  if (at != graphs_.end()) return at->second;
  graph::GraphFile file = graph::read_graph_file(path);
  return graphs_[path] = {std::make_shared<const graph::ModelGraph>(std::move(file.graph)),
                          std::move(file.known)};
}

}  // namespace heterog::learn
