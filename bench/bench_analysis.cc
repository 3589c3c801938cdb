// From files to a problem that can be planned: BERT-large on 8 GPUs, against the limit of 0.3 s.
//
//     build/release/bin/bench_analysis        (from the root of the repository)
#include <benchmark/benchmark.h>

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

void count_ratio(benchmark::State& state) {
  // 0.3 s over the time of an iteration, inverted: 1 is the limit, less is better.
  state.counters["ratio_to_limit"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kLimitSeconds,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void read_graph(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(graph::read_graph(kGraph));
  count_ratio(state);
}
BENCHMARK(read_graph)->Unit(benchmark::kMillisecond)->MinTime(1);

// Split rules, cost table, grouping, proportional shares.
void make_problem(benchmark::State& state) {
  const auto graph = std::make_shared<const graph::ModelGraph>(graph::read_graph(kGraph));
  const auto cluster = std::make_shared<const cluster::Cluster>(cluster::load_cluster(kCluster));
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        cost::make_problem(graph, cluster, cost::RooflineModel(), kBatch));
  }
  count_ratio(state);
}
BENCHMARK(make_problem)->Unit(benchmark::kMillisecond)->MinTime(1);

void all_of_it(benchmark::State& state) {
  for (auto _ : state) {
    auto graph = std::make_shared<const graph::ModelGraph>(graph::read_graph(kGraph));
    auto cluster = std::make_shared<const cluster::Cluster>(cluster::load_cluster(kCluster));
    benchmark::DoNotOptimize(cost::make_problem(std::move(graph), std::move(cluster),
                                                cost::RooflineModel(), kBatch));
  }
  count_ratio(state);
}
BENCHMARK(all_of_it)->Unit(benchmark::kMillisecond)->MinTime(1);

}  // namespace
}  // namespace heterog
