// From files to a problem that can be planned: BERT-large on 8 GPUs, against the limit of 0.3 s.
//
//     build/release/bin/bench_analysis        (from the root of the repository)
#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>

#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "cost/problem.h"
#include "graph/graph_io.h"

namespace heterog {
namespace {

constexpr double kLimitSeconds = 0.3;
constexpr const char* kGraph = "models/bert_large24.json.gz";
constexpr const char* kCluster = "configs/clusters/heterog-8gpu.json";
constexpr std::int64_t kBatch = 48;

// Runs `work` as often as asked; counts its mean time over the limit.
template <class Work>
void measure(benchmark::State& state, Work work) {
  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) benchmark::DoNotOptimize(work());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  state.counters["ratio_to_limit"] =
      seconds.count() / static_cast<double>(state.iterations()) / kLimitSeconds;
}

void read_graph(benchmark::State& state) {
  measure(state, [] { return graph::read_graph(kGraph); });
}
BENCHMARK(read_graph)->Unit(benchmark::kMillisecond)->MinTime(1);

// Split rules, cost table, grouping, proportional shares.
void make_problem(benchmark::State& state) {
  const auto graph = std::make_shared<const graph::ModelGraph>(graph::read_graph(kGraph));
  const auto cluster = std::make_shared<const cluster::Cluster>(cluster::load_cluster(kCluster));
  measure(state,
          [&] { return cost::make_problem(graph, cluster, cost::CalibratedModel(), kBatch); });
}
BENCHMARK(make_problem)->Unit(benchmark::kMillisecond)->MinTime(1);

void all_of_it(benchmark::State& state) {
  measure(state, [] {
    auto graph = std::make_shared<const graph::ModelGraph>(graph::read_graph(kGraph));
    auto cluster = std::make_shared<const cluster::Cluster>(cluster::load_cluster(kCluster));
    return cost::make_problem(std::move(graph), std::move(cluster), cost::CalibratedModel(),
                              kBatch);
  });
}
BENCHMARK(all_of_it)->Unit(benchmark::kMillisecond)->MinTime(1);

}  // namespace
}  // namespace heterog
