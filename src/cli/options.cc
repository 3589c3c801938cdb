// Declares the shared options.
#include "cli/options.h"

#include <cmath>

#include "cli/progress.h"

namespace heterog::cli {

void add_common(CLI::App& verb, CommonOptions& options) {
  verb.add_option("--seed", options.seed, "Seed of everything random")->capture_default_str();
  verb.add_option("--threads", options.threads,
                  "Threads that evaluate plans; the result does not depend on it")
      ->capture_default_str();
  verb.add_flag("--json", options.json, "One JSON object on stdout instead of tables");
}

void add_graph_and_cluster(CLI::App& verb, ProblemOptions& options) {
  verb.add_option("--graph", options.graph, "Model graph (models/*.json.gz)")->required();
  verb.add_option("--cluster", options.cluster, "Cluster (configs/clusters/*.json)")->required();
  verb.add_option("--collectives", options.collectives,
                  "per-device: all-reduces of disjoint devices may overlap; serial: none may")
      ->capture_default_str();
  verb.add_option("--profile", options.profiles,
                  "Measured costs (heterog profile), one file a device type; the others' costs are "
                  "analytic");
}

void add_batch(CLI::App& verb, ProblemOptions& options) {
  verb.add_option("--batch", options.batch, "Samples of one step, over all devices")->required();
}

void add_budget(CLI::App& verb, BudgetOptions& options) {
  auto* seconds = verb.add_option("--budget", options.seconds, "Go on for this many seconds");
  verb.add_option("--evaluations", options.evaluations,
                  "Go on for this many simulated plans (reproducible)")
      ->excludes(seconds);
}

planner::Budget start_budget(const BudgetOptions& options, const std::string& title) {
  VALIDATE(!options.seconds || (std::isfinite(*options.seconds) && *options.seconds > 0),
           "--budget: {} given; it is a positive number of seconds", *options.seconds);
  VALIDATE(!options.evaluations || *options.evaluations >= 1,
           "--evaluations: {} given; at least 1 plan is simulated", *options.evaluations);
  planner::Budget budget{.evaluations = options.evaluations};
  if (options.seconds) {
    auto progress = std::make_shared<Progress>(title);
    budget.expired = [progress, seconds = *options.seconds] {
      const double elapsed = progress->seconds();
      progress->show(elapsed / seconds, "");
      return elapsed >= seconds;
    };
  }
  return budget;
}

}  // namespace heterog::cli
