// Reads graph, cluster and profiles.
#include "loading/problem_files.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "cost/link_profile_io.h"
#include "cost/poor_fit.h"
#include "cost/profile_io.h"
#include "graph/graph_io.h"
#include "loading/check_graph.h"

namespace heterog::loading {

namespace {

std::vector<cost::ProfileSource> load_profiles(const ProblemOptions& options,
                                               const cluster::Cluster& cluster) {
  std::vector<cost::ProfileSource> profiles;
  for (const std::string& path : options.profiles) {
    if (!cost::is_link_profile(path)) profiles.push_back({cost::read_profile(path), path});
  }
  cost::check_devices(profiles, cluster);
  return profiles;
}

// With links as they were measured, if a profile says so.
std::shared_ptr<const cluster::Cluster> load_measured_cluster(const ProblemOptions& options) {
  const auto cluster =
      std::make_shared<const cluster::Cluster>(cluster::load_cluster(options.cluster));
  std::string links;
  for (const std::string& path : options.profiles) {
    if (!cost::is_link_profile(path)) continue;
    VALIDATE(links.empty(), "--profile: {} and {} both have links; give one of them", links, path);
    links = path;
  }
  if (links.empty()) return cluster;
  return std::make_shared<const cluster::Cluster>(
      cost::with_fitted_links(*cluster, cost::read_link_profile(links, *cluster)));
}

// Said of profiles that serve the graph: one that is refused is refused in one line.
void warn_of_poor_fits(const std::vector<cost::ProfileSource>& profiles) {
  for (const auto& [profile, path] : profiles) {
    if (const std::string poor = cost::poor_fit(profile); !poor.empty()) {
      logger().warn("{}: measured on a busy machine ({}); predictions are as wrong",
                    printable(path, 400), poor);
    }
  }
}

}  // namespace

void check_batch(std::int64_t batch, const graph::KnownBatches& known, const std::string& graph) {
  VALIDATE(known.contain(batch),
           "batch {}: {} is known to hold for batches of {}, and may be another step at this one; "
           "take one of these, or export it with {} among --batches",
           batch, printable(graph, 400), known.text(), batch);
}

LoadedProblem load_problem_file(const ProblemOptions& options) {
  VALIDATE(options.batch >= 1, "--batch: {} given; a step has at least 1 sample", options.batch);
  std::shared_ptr<const cluster::Cluster> cluster = load_measured_cluster(options);
  graph::GraphFile file = graph::read_graph_file(options.graph);
  check_batch(options.batch, file.known, options.graph);
  auto graph = std::make_shared<const graph::ModelGraph>(std::move(file.graph));
  check_graph(*graph, options.batch, file.known, options.graph);
  const cost::Compression compression = compression_of(options);
  cost::check_compression(compression, *graph, "--compress");
  const cost::CalibratedModel analytic;
  const std::vector<cost::ProfileSource> profiles = load_profiles(options, *cluster);
  const cost::ProfiledModel model(*graph, profiles, analytic);
  warn_of_poor_fits(profiles);
  auto problem = cost::make_problem(std::move(graph), std::move(cluster), model, options.batch,
                                    {.max_groups = options.max_groups, .compression = compression});
  logger().info("{}: {} ops in {} groups, {} parameters", printable(options.graph, 400),
                problem->graph->op_count(), problem->grouping.count(),
                problem->graph->parameters().size());
  logger().info("{}: {} devices of {} types, {} links", printable(options.cluster, 400),
                problem->cluster->device_count(), problem->cluster->type_count(),
                problem->cluster->link_count());
  return {std::move(problem), std::move(file.known)};
}

std::unique_ptr<const cost::Problem> load_problem(const ProblemOptions& options) {
  return load_problem_file(options).problem;
}

cost::Compression compression_of(const ProblemOptions& options) {
  return options.compress.empty() ? cost::Compression{}
                                  : cost::parse_compression(options.compress, "--compress");
}

compiler::CompileOptions compile_options(const ProblemOptions& options) {
  using Collectives = compiler::CompileOptions::Collectives;
  if (options.collectives == "per-device") return {.collectives = Collectives::kPerDevice};
  VALIDATE(options.collectives == "serial",
           "--collectives: \"{}\" given; it is per-device or serial", options.collectives);
  return {.collectives = Collectives::kSerial};
}

}  // namespace heterog::loading
