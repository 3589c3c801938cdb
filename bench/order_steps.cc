// Prints what the orders of execution make of plain data parallelism, for HeteroG's eight models on
// its 8 GPUs: milliseconds a step in each order, in a random order of the tasks (the mean of
// `kDraws`), in the best order that search::better_order finds, and the bound of any order.
//
//     build/release/bin/order_steps [MODEL ...]        (from the root of the repository)
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "cluster/cluster_io.h"
#include "compiler/compile.h"
#include "compiler/order.h"
#include "cost/cost_model.h"
#include "graph/graph_io.h"
#include "oracle/evaluator.h"
#include "search/answers/better_order.h"
#include "search/starts/baselines.h"
#include "sim/bounds.h"
#include "sim/simulator.h"

namespace heterog::bench {
namespace {

using decide::OrderPolicy;

constexpr int kDraws = 5;
constexpr int kRounds = 6;

double milliseconds(Nanoseconds time) { return 1e3 * to_seconds(time); }
double percent(Nanoseconds longer, Nanoseconds shorter) {
  return 100 * (static_cast<double>(longer) / static_cast<double>(shorter) - 1);
}

// Any ready task may be first, as in a framework that keeps no order among them.
Nanoseconds mean_of_random_orders(compiler::Plan plan) {
  Rng rng(1);
  sim::Simulator simulator;
  Nanoseconds sum = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    auto& priority = plan.priority.raw();
    for (std::size_t i = priority.size(); i > 1; --i) {
      std::swap(priority[i - 1], priority[rng.below(i)]);
    }
    sum += simulator.simulate(plan, OrderPolicy::kPriority).step;
  }
  return sum / kDraws;
}

// What the rows come to.
struct Worst {
  double over_bound = 0;                                         // of all-reduce
  double not_gained = -std::numeric_limits<double>::infinity();  // EV-PS of language models
};

void print_row(const cost::Problem& problem, const std::string& name, decide::Strategy strategy,
               bool all_reduce, bool language_ps, Worst& worst) {
  sim::Simulator simulator;
  compiler::Plan plan = compiler::compile(problem, strategy);
  Nanoseconds paper = std::numeric_limits<Nanoseconds>::max(), queued = 0;
  std::string row = fmt::format("{:24}", name);
  for (OrderPolicy order : decide::kSearchedOrders) {
    decide::set_plain_order(strategy, order);
    compiler::set_order(plan, order);
    const Nanoseconds step = simulator.simulate(plan, order).step;
    (order == OrderPolicy::kRankQueued ? queued : paper) =
        order == OrderPolicy::kRankQueued ? step : std::min(paper, step);
    row += fmt::format(" {:11.1f}", milliseconds(step));
  }
  const Nanoseconds random = mean_of_random_orders(plan);
  oracle::Evaluator evaluator(problem);
  const auto found = search::better_order(evaluator, strategy, kRounds);
  const Nanoseconds best = found ? found->evaluation.step : queued;
  const Nanoseconds bound = sim::bounds(plan).step();
  fmt::print("{} {:8.1f} {:8.1f} {:8.1f} {:+9.2f} % {:+9.1f} % {:+9.1f} %\n", row,
             milliseconds(random), milliseconds(best), milliseconds(bound), percent(best, bound),
             percent(best, paper), percent(random, queued));
  std::fflush(stdout);
  if (all_reduce) worst.over_bound = std::max(worst.over_bound, percent(best, bound));
  if (language_ps) worst.not_gained = std::max(worst.not_gained, percent(best, paper));
}

struct Case {
  const char* model;
  std::int64_t batch;
  bool language = false;
};
constexpr Case kCases[] = {{"vgg19", 192},
                           {"resnet200", 192},
                           {"inception_v3", 192},
                           {"mobilenet_v2", 192},
                           {"nasnet_a_large", 192},
                           {"transformer6", 720},
                           {"bert_large24", 48, true},
                           {"xlnet_large24", 48, true}};

void print_all(const std::vector<std::string>& models) {
  fmt::print("{:24} {:>11} {:>11} {:>11} {:>8} {:>8} {:>8} {:>11} {:>11} {:>12}\n", "model (batch)",
             "rank", "fifo", "rank-queued", "random", "best", "bound", "over bound", "best to *",
             "random to q.");
  Worst worst;
  for (const Case& one : kCases) {
    const bool wanted =
        models.empty() || std::find(models.begin(), models.end(), one.model) != models.end();
    if (!wanted) continue;
    const auto problem =
        cost::make_problem(std::make_shared<const graph::ModelGraph>(
                               graph::read_graph(fmt::format("models/{}.json.gz", one.model))),
                           std::make_shared<const cluster::Cluster>(
                               cluster::load_cluster("configs/clusters/heterog-8gpu.json")),
                           cost::CalibratedModel(), one.batch);
    const std::pair<const char*, decide::Strategy> plans[] = {
        {"ev-ar", search::even_all_reduce(*problem)},
        {"cp-ar", search::proportional_all_reduce(*problem)},
        {"ev-ps", search::even_ps(*problem)},
        {"cp-ps", search::proportional_ps(*problem)}};
    for (const auto& [name, strategy] : plans) {
      const bool all_reduce = std::string(name).ends_with("ar");
      print_row(*problem, fmt::format("{} ({}) {}", one.model, one.batch, name), strategy,
                all_reduce, one.language && std::string(name) == "ev-ps", worst);
    }
  }
  fmt::print("*: the better of rank and FIFO; q.: rank-queued\n");
  fmt::print("all-reduce: best order at most {:.2f} % above the bound\n", worst.over_bound);
  if (worst.not_gained > -100) {
    fmt::print("BERT and XLNet, EV-PS: best order at least {:.1f} % below rank and FIFO\n",
               -worst.not_gained);
  }
}

}  // namespace
}  // namespace heterog::bench

int main(int argc, char** argv) { heterog::bench::print_all({argv + 1, argv + argc}); }
