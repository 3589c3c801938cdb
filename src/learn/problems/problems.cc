// A graph, a cluster and a batch to a problem with its name.
#include "learn/problems/problems.h"

#include <algorithm>

#include "cost/cost_model.h"
#include "cost/cost_table.h"
#include "cost/hidden.h"
#include "graph/graph_io.h"
#include "learn/problems/random_cluster.h"

namespace heterog::learn {

std::unique_ptr<const cost::Problem> ProblemLoader::given(
    const TrainGraph& entry, std::int64_t batch,
    const std::shared_ptr<const cluster::Cluster>& cluster) {
  return cost::make_problem(graph_of(entry.graph).graph, cluster, cost::CalibratedModel(), batch,
                            {.max_groups = static_cast<int>(config_.max_groups)});
}

DrawnProblem ProblemLoader::draw(std::int64_t number) {
  Rng rng =
      random_stream(config_, RandomStream::kRandomCases).split(static_cast<std::uint64_t>(number));
  const TrainGraph& entry = config_.graphs[rng.below(config_.graphs.size())];
  const std::int64_t base = entry.batches[rng.below(entry.batches.size())];
  auto cluster = std::make_shared<const cluster::Cluster>(random_cluster(
      fmt::format("random-{}", number), config_.random_devices, rng.split(1), devices_, links_));
  const auto count = static_cast<std::int64_t>(cluster->device_count());
  const std::int64_t scaled = (base * count << rng.below(3)) / 16;
  return {.entry = &entry,
          .batch = graph_of(entry.graph).known.next(std::max(scaled, count)),
          .cluster = std::move(cluster)};
}

std::unique_ptr<const cost::Problem> ProblemLoader::random(const DrawnProblem& drawn,
                                                           std::int64_t number) {
  auto problem = given(*drawn.entry, drawn.batch, drawn.cluster);
  if (config_.random_costs == 0) return problem;
  auto other = std::make_unique<cost::Problem>(
      *cost::hidden_problem(*problem, {.seed = static_cast<std::uint64_t>(number),
                                       .spread = config_.random_costs,
                                       .links_by_kind = true}));
  // The policy is to know these costs.
  other->proportional = cost::proportional_replicas(*other->cluster, other->costs);
  return other;
}

const ProblemLoader::Graph& ProblemLoader::graph_of(const std::string& path) {
  const auto at = graphs_.find(path);
  if (at != graphs_.end()) return at->second;
  graph::GraphFile file = graph::read_graph_file(path);
  return graphs_[path] = {std::make_shared<const graph::ModelGraph>(std::move(file.graph)),
                          std::move(file.known)};
}

}  // namespace heterog::learn
