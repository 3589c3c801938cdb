// Prints the steps that planners find, and by which way, one line a case: what two builds can be
// compared by.
//
//     build/release/bin/plan_steps PLANNER MODEL:BATCH:CLUSTER ...
//
// From the root of the repository.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "graph/graph_io.h"
#include "oracle/simulated_oracle.h"
#include "search/registry.h"

namespace heterog::bench {
namespace {

struct Case {
  std::string model;
  std::int64_t batch = 0;
  std::string cluster;
};

Case case_of(const std::string& text) {
  const std::size_t first = text.find(':'), last = text.rfind(':');
  Case one{text.substr(0, first), 0, text.substr(last + 1)};
  const char* end = text.data() + last;
  const auto read = std::from_chars(text.data() + first + 1, end, one.batch);
  VALIDATE(first < last && read.ptr == end && one.batch > 0,
           "case '{}': expected MODEL:BATCH:CLUSTER, as vgg19:192:heterog-8gpu", text);
  return one;
}

void print_step(const search::Registry& planners, const std::string& planner, const Case& one,
                ThreadPool& threads) {
  const auto problem = cost::make_problem(
      std::make_shared<const graph::ModelGraph>(
          graph::read_graph(fmt::format("models/{}.json.gz", one.model))),
      std::make_shared<const cluster::Cluster>(
          cluster::load_cluster(fmt::format("configs/clusters/{}.json", one.cluster))),
      cost::CalibratedModel(), one.batch);
  oracle::SimulatedOracle oracle(*problem, threads);
  search::PlannerContext context{.oracle = oracle};
  const auto begin = std::chrono::steady_clock::now();
  const search::PlannerResult found = planners.make(planner, *problem->cluster)->plan(context);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print("{}:{}:{} {:.6f} {} {} {:.1f} s, {}\n", one.model, one.batch, one.cluster,
             to_seconds(found.evaluation.step), found.evaluation.feasible ? "fits" : "does-not-fit",
             found.evaluations, took.count(), found.found_by);
  std::fflush(stdout);
}

int print_all(std::span<const std::string> words) {
  try {
    VALIDATE(words.size() > 1, "expected PLANNER MODEL:BATCH:CLUSTER ...");
    ThreadPool threads(hardware_threads());
    const search::Registry planners(search::builtin_planners());
    for (const std::string& word : words.subspan(1)) {
      print_step(planners, words[0], case_of(word), threads);
    }
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "plan_steps: {}\n", error.what());
    return 2;
  }
}

}  // namespace
}  // namespace heterog::bench

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return heterog::bench::print_all(words);
}
