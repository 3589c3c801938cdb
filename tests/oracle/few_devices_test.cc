// Of devices that are alike one stands for all, and nothing of what is measured changes: random
// clusters of repeated machines × random strategies × real graphs, beside the plan with all
// devices.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compiler/compile.h"
#include "compiler/serving_bound.h"
#include "decide/layout.h"
#include "decide/problems.h"
#include "decide/random_sync.h"
#include "oracle/evaluator.h"
#include "search/problems.h"
#include "search/starts/baselines.h"
#include "sim/improved_order.h"

namespace heterog::oracle {
namespace {

using decide::OrderPolicy;
using decide::Strategy;
using decide::SyncMethod;
using decide::UnitDecision;

// With all devices, whatever is alike.
Measured measure_all(const cost::Problem& problem, const Strategy& strategy,
                     const compiler::CompileOptions& options = {}) {
  compiler::Plan plan = compiler::compile(problem, strategy, options);
  sim::Simulator simulator;
  const sim::SimResult& result = sim::simulate_rounds(strategy, plan, simulator);
  Measured measured = judge(problem, result.step, result.peak_bytes);
  measured.busy = result.device_busy;
  return measured;
}

// How many devices stand for all; 0: the plan has all devices.
std::size_t devices_of_few(const cost::Problem& problem, const Strategy& strategy) {
  const compiler::PlanOfFew compiled = compiler::compile_few(problem, strategy);
  return compiled.place_of.empty() ? 0 : compiled.plan.device_count;
}

template <class Items>
const auto& pick(const Items& items, Rng& rng) {
  return items[rng.below(items.size())];
}

// ---- random clusters of repeated machines ----

cluster::MachineSpec random_machine(const cluster::DeviceDatabase& types, Rng& rng) {
  using Kind = cluster::FabricSpec::Kind;
  constexpr std::array kTypes = {
      "V100-PCIE-16GB", "V100-SXM2-16GB", "P100-PCIE-12GB", "GTX-1080-Ti", "T4",
      "A100-SXM4-40GB", "H100-SXM5-80GB"};
  cluster::MachineSpec machine;
  machine.devices.assign(1 + rng.below(4), types.at(pick(kTypes, rng)));
  if (rng.below(6) == 0) machine.devices.push_back(types.at(pick(kTypes, rng)));
  if (rng.below(4) == 0) {  // one with less memory than its neighbours, perhaps less than it takes
    for (const auto& type : machine.devices) {
      machine.device_memory_bytes.push_back(type.memory_bytes);
    }
    machine.device_memory_bytes.back() =
        machine.devices.back().reserve_bytes + (Bytes{1} << (10 + rng.below(16)));
  }
  constexpr std::array kKinds = {Kind::kSwitch, Kind::kBus, Kind::kSockets};
  machine.fabric = {.kind = pick(kKinds, rng),
                    .port_bytes_per_second = 12.2e9,
                    .socket_bytes_per_second = 9e9,
                    .latency_seconds = 5e-6,
                    .launch_seconds = 2e-6,
                    .feeds_nic = rng.below(2) == 0};
  machine.nic = {.bytes_per_second = rng.below(2) == 0 ? 12.1e9 : 1.1e9,
                 .latency_seconds = 5e-6,
                 .launch_seconds = 1e-6,
                 .device_bytes_per_second = rng.below(3) == 0 ? 1e9 : 0,
                 .transfer_multiprocessors = rng.below(2) == 0 ? 2 : 0};
  return machine;
}

cluster::Cluster random_cluster(Rng& rng) {
  static const cluster::DeviceDatabase types = cluster::read_devices("configs/devices.json");
  cluster::ClusterBuilder builder("alike");
  const bool moves_bytes_itself = rng.below(12) == 0, has_hosts = rng.below(8) == 0;
  const std::size_t kinds = 1 + rng.below(3);
  std::size_t number = 0;
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    const cluster::MachineSpec machine = random_machine(types, rng);
    const std::size_t count = 1 + rng.below(4);
    for (std::size_t i = 0; i < count; ++i) {
      cluster::MachineSpec one = machine;
      one.name = fmt::format("m{}", number++);
      if (moves_bytes_itself)
        one.device_overhead_seconds_per_byte.assign(one.devices.size(), 1e-10);
      if (has_hosts) {
        one.host_memory_bytes = Bytes{64} << 30;
        one.server = types.at("T4");
      }
      builder.add_machine(std::move(one));
    }
  }
  builder.set_network({.latency_seconds = 3e-6,
                       .flow_cap_bytes_per_second = rng.below(4) == 0 ? 0.6e9 : 0,
                       .flows = rng.below(2) == 0 ? 1 : 4});
  return std::move(builder).build("random cluster");
}

// ---- random strategies, most of them of data parallelism ----

// All devices or those of some types, each as its type has it; some by themselves.
UnitDecision random_decision(const cost::Problem& problem, Rng& rng) {
  const cluster::Cluster& cluster = *problem.cluster;
  std::map<DeviceTypeId, double> weight;
  for (std::size_t type = 0; type < cluster.type_count(); ++type) {
    weight[DeviceTypeId(type)] = static_cast<double>(rng.below(5));
  }
  UnitDecision decision;
  const bool any_weight = rng.below(6) == 0;
  for (DeviceId device : cluster.device_ids()) {
    const double own = any_weight ? 1 + 3 * rng.uniform() : weight[cluster.device(device).type];
    if (own > 0) decision.replicas.push_back({device, own});
  }
  if (decision.replicas.empty()) return decide::even_decision(problem, SyncMethod::kAllReduce);
  if (rng.below(4) == 0) {
    for (std::size_t i = decision.replicas.size(); i-- > 1;) {
      std::swap(decision.replicas[i], decision.replicas[rng.below(i + 1)]);
    }
  }
  return decision;
}

Strategy random_strategy(const cost::Problem& problem, Rng& rng) {
  Strategy strategy = decide::uniform_strategy(problem, random_decision(problem, rng));
  const std::uint64_t way = rng.below(10);
  for (UnitDecision& unit : strategy.units) {
    if (way < 4) continue;  // all-reduce
    if (way < 7) unit.sync = SyncMethod::kSharded;
    if (way == 7 && rng.below(2) == 0) unit.sync = SyncMethod::kSharded;
    if (way == 8) unit.sync = SyncMethod::kParameterServer;
    if (way == 9) unit.sync = SyncMethod::kGathered;
  }
  if (rng.below(5) == 0) strategy.units[UnitId(rng.below(strategy.units.size()))].recompute = true;
  if (rng.below(6) == 0) {
    UnitDecision& other = strategy.units[UnitId(rng.below(strategy.units.size()))];
    other = random_decision(problem, rng);
  }
  if (rng.below(3) == 0) strategy.bucket_bytes = Bytes{1} << (10 + rng.below(12));
  constexpr std::array kOrders = {OrderPolicy::kRank, OrderPolicy::kRank, OrderPolicy::kFifo,
                                  OrderPolicy::kRankQueued};
  strategy.order = pick(kOrders, rng);
  if (rng.below(4) == 0) {
    strategy.micro_batches = 2 + static_cast<std::int64_t>(rng.below(3));
    strategy.pattern = pick(decide::kPatterns, rng);
    strategy.strict = strategy.pattern != decide::Pattern::kNone && rng.below(4) == 0;
    if (strategy.pattern != decide::Pattern::kNone && !strategy.strict) {
      strategy.order = OrderPolicy::kPriority;
    }
  }
  if (!strategy.strict && rng.below(5) == 0) {
    strategy.order_rounds = 1 + static_cast<int>(rng.below(3));
  }
  if (rng.below(4) == 0) {
    for (DeviceId device : problem.cluster->device_ids()) {
      strategy.row_weights.push_back(
          1.0 + static_cast<double>(problem.cluster->device(device).type.value()));
    }
  }
  if (rng.below(4) == 0) decide::draw_random_groups(problem, rng, strategy);
  return strategy;
}

struct Count {
  int cases = 0, of_few = 0, too_large = 0;
  int served = 0;                    // of servers in other machines
  std::size_t devices = 0, few = 0;  // of those of few, added up
};

void compare(const cost::Problem& problem, const Strategy& strategy,
             const compiler::CompileOptions& options, const std::string& what, Count& count) {
  SCOPED_TRACE(what);
  const Measured all = measure_all(problem, strategy, options);
  Evaluator evaluator(problem, options);
  const Measured few = evaluator.measure(strategy);
  EXPECT_EQ(few.evaluation.step, all.evaluation.step);
  EXPECT_EQ(few.evaluation.feasible, all.evaluation.feasible);
  EXPECT_EQ(few.evaluation.missing_bytes, all.evaluation.missing_bytes);
  EXPECT_EQ(few.evaluation.reward, all.evaluation.reward);
  EXPECT_EQ(few.peak_bytes, all.peak_bytes);
  EXPECT_EQ(few.busy, all.busy);
  const Nanoseconds bound = compiler::serving_bound(problem, decide::lay_out(problem, strategy));
  EXPECT_LE(bound, all.evaluation.step);
  count.served += bound > 0;
  if (strategy.order_rounds > 0) {
    const std::vector<Measured> rounds = evaluator.measure_rounds(strategy);
    EXPECT_EQ(rounds.back().evaluation.step, all.evaluation.step);
    Strategy first = strategy;
    first.order_rounds = 0;
    EXPECT_EQ(rounds.front().evaluation.step, measure_all(problem, first, options).evaluation.step);
  }
  ++count.cases;
  if (const std::size_t devices = devices_of_few(problem, strategy); devices > 0) {
    ++count.of_few;
    count.too_large += !all.evaluation.feasible;
    count.devices += problem.cluster->place_count();
    count.few += devices;
  }
}

TEST(FewDevices, StandForAllOnRandomClusters) {
  constexpr std::array kModels = {"lenet5-tiny",       "alexnet-tiny",          "resnet50-tiny",
                                  "inception_v3-tiny", "mobilenet_v2-tiny",     "bert3-tiny",
                                  "transformer6-tiny", "lstm_lm-tiny",          "ncf-tiny",
                                  "nmt4-tiny",         "xlnet_large24-tiny",    "gnmt4-tiny",
                                  "densenet121-tiny",  "tensor_holography-tiny"};
  const char* more = std::getenv("HETEROG_RANDOM_CASES");
  const int cases = more ? std::atoi(more) : 60;
  Count count;
  Rng rng(20261129);
  for (int i = 0; i < cases; ++i) {
    const std::string model = kModels[static_cast<std::size_t>(i) % kModels.size()];
    auto cluster = std::make_shared<const cluster::Cluster>(random_cluster(rng));
    const auto devices = static_cast<std::int64_t>(cluster->device_count());
    const std::int64_t batch = devices * static_cast<std::int64_t>(1 + rng.below(4)) +
                               (rng.below(3) == 0 ? static_cast<std::int64_t>(rng.below(5)) : 0);
    const auto problem = cost::make_problem(
        std::make_shared<const graph::ModelGraph>(
            graph::read_graph("models/" + model + ".json.gz")),
        cluster, cost::CalibratedModel(), batch,
        {.max_groups = 12,
         .compression = cost::parse_compression(decide::random_compression(rng), "test")});
    for (int j = 0; j < 5; ++j) {
      const Strategy strategy = random_strategy(*problem, rng);
      compiler::CompileOptions options;
      if (rng.below(6) == 0) options.collectives = compiler::CompileOptions::Collectives::kSerial;
      const std::string what = fmt::format("case {}.{}: {}, {} devices, batch {}", i, j, model,
                                           cluster->device_count(), batch);
      try {
        compare(*problem, strategy, options, what, count);
      } catch (const Error& error) {  // turns or micro-batches that the graph cannot have
        ASSERT_EQ(error.kind(), ErrorKind::kInput) << error.what();
      }
      if (testing::Test::HasFailure()) return;
    }
  }
  fmt::print("{} of {} strategies of few devices, {} of which do not fit: {} for {}\n",
             count.of_few, count.cases, count.too_large, count.few, count.devices);
  EXPECT_GE(count.served, count.cases / 20);
  EXPECT_GE(count.too_large, count.cases / 20);
  EXPECT_GE(count.cases, cases * 4);
  EXPECT_GE(count.of_few, count.cases * 2 / 5);   // of each ten, four
  EXPECT_LE(count.of_few, count.cases * 9 / 10);  // and some that are not
  EXPECT_LE(count.few * 3, count.devices * 2);
}

// A frozen base in rows, on devices that know bfloat16.
TEST(FewDevices, StandForAllOfFrozenRows) {
  const auto graph = std::make_shared<const graph::ModelGraph>(
      graph::read_graph("models/llama7b_lora-tiny.json.gz"));
  Count count;
  Rng rng(23);
  while (count.cases < 40) {
    auto cluster = std::make_shared<const cluster::Cluster>(random_cluster(rng));
    const auto devices = static_cast<std::int64_t>(cluster->device_count());
    std::unique_ptr<const cost::Problem> problem;
    try {
      problem = cost::make_problem(graph, cluster, cost::CalibratedModel(), 2 * devices + 1,
                                   {.max_groups = 12});
    } catch (const Error&) {
      continue;
    }
    Strategy strategy = random_strategy(*problem, rng);
    for (UnitDecision& unit : strategy.units) unit.sync = SyncMethod::kGathered;
    const std::string what =
        fmt::format("case {}: {} devices", count.cases, cluster->device_count());
    try {
      compare(*problem, strategy, {}, what, count);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(count.of_few, count.cases / 4);
}

// ---- which strategies ----

TEST(FewDevices, AreOneOfEachTypeAndTheFirst) {
  const auto problem = search::load_test_problem("bert3-tiny", "mixed-64gpu", 128);
  const Strategy even = search::even_all_reduce(*problem);
  EXPECT_EQ(devices_of_few(*problem, even), 4u);
  Strategy sharded = even;
  for (UnitDecision& unit : sharded.units) unit.sync = SyncMethod::kSharded;
  EXPECT_GT(devices_of_few(*problem, sharded), 0u);
  Strategy queued = even;
  queued.order = OrderPolicy::kRankQueued;
  EXPECT_EQ(devices_of_few(*problem, queued), 4u);
  // A batch that does not divide gives some devices a sample more.
  const auto uneven = search::load_test_problem("bert3-tiny", "mixed-64gpu", 140);
  EXPECT_EQ(devices_of_few(*uneven, search::even_all_reduce(*uneven)), 5u);
  // Devices that do nothing are alike too: one computes, and of each type one does not.
  EXPECT_EQ(devices_of_few(*problem, search::single_device(*problem, DeviceId(9))), 4u);
}

TEST(FewDevices, AreAllWhereTheyAreNotAlike) {
  const auto problem = search::load_test_problem("bert3-tiny", "mixed-64gpu", 128);
  const Strategy even = search::even_all_reduce(*problem);
  EXPECT_EQ(devices_of_few(*problem, search::even_ps(*problem)), 0u);
  Strategy moves = even;  // one unit's samples come from elsewhere
  moves.units[UnitId(moves.units.size() / 2)] = decide::single_decision(DeviceId(3));
  EXPECT_EQ(devices_of_few(*problem, moves), 0u);
  Strategy given = even;  // one instance is more urgent than those that are like it
  given.order = OrderPolicy::kPriority;
  given.priorities = {{problem->folded->ops.front(), 5, 1}};
  EXPECT_EQ(devices_of_few(*problem, given), 0u);
  Strategy served = even;
  served.sync = {
      {.parameter = problem->graph->parameters().front(), .method = SyncMethod::kParameterServer}};
  EXPECT_EQ(devices_of_few(*problem, served), 0u);
  // Processors that move bytes themselves lose time by their place in the tree.
  const auto processors = search::load_test_problem("lenet5-tiny", "local-2cpu", 16);
  EXPECT_EQ(devices_of_few(*processors, search::even_all_reduce(*processors)), 0u);
}

}  // namespace
}  // namespace heterog::oracle
