// Prints a digest of every field of many compiled plans, and the step that each is simulated to
// take: what two builds print is the same where neither compiles or simulates anything otherwise.
//
//   build/release/bin/plan_digests > before.txt     (and after.txt with the other build; then diff)
//
// The 28 cases are those of scripts/reproduce/heterog_tables.py. Of each: six uniform strategies,
// then `--random` drawn ones, a quarter of which share all-reduces, half of which follow another
// order than that of ranks.
#include <fmt/format.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/rng.h"
#include "compiler/compile.h"
#include "problems.h"
#include "sim/simulator.h"

namespace heterog::bench {
namespace {

struct Case {
  const char* model;
  const char* cluster;
  std::int64_t batch;
};
constexpr Case kCases[] = {
    {"vgg19", "heterog-8gpu", 192},           {"resnet200", "heterog-8gpu", 192},
    {"inception_v3", "heterog-8gpu", 192},    {"mobilenet_v2", "heterog-8gpu", 192},
    {"nasnet_a_large", "heterog-8gpu", 192},  {"transformer6", "heterog-8gpu", 720},
    {"bert_large24", "heterog-8gpu", 48},     {"xlnet_large24", "heterog-8gpu", 48},
    {"resnet200", "heterog-8gpu", 384},       {"transformer24", "heterog-8gpu", 120},
    {"bert_large24", "heterog-8gpu", 96},     {"xlnet_large24", "heterog-8gpu", 96},
    {"bert_large48", "heterog-8gpu", 24},     {"xlnet_large48", "heterog-8gpu", 24},
    {"vgg19", "heterog-12gpu", 288},          {"resnet200", "heterog-12gpu", 288},
    {"inception_v3", "heterog-12gpu", 288},   {"mobilenet_v2", "heterog-12gpu", 288},
    {"nasnet_a_large", "heterog-12gpu", 288}, {"transformer6", "heterog-12gpu", 1080},
    {"bert_large24", "heterog-12gpu", 72},    {"xlnet_large24", "heterog-12gpu", 72},
    {"resnet200", "heterog-12gpu", 576},      {"transformer24", "heterog-12gpu", 180},
    {"bert_large24", "heterog-12gpu", 144},   {"xlnet_large24", "heterog-12gpu", 144},
    {"bert_large48", "heterog-12gpu", 36},    {"xlnet_large48", "heterog-12gpu", 36},
};

class Digest {
 public:
  template <class... Values>
  void add(const Values&... values) {
    (add_number(values), ...);
  }
  std::uint64_t value() const { return sum_.value(); }

 private:
  template <class Value>
  void add_number(const Value& value) {
    std::int64_t number = -1;
    if constexpr (requires { value.valid(); }) {
      if (value.valid()) number = static_cast<std::int64_t>(value.value());
    } else {
      number = static_cast<std::int64_t>(value);
    }
    sum_.add(&number, sizeof(number));
  }
  Checksum sum_;
};

void add_payload(Digest& d, const compiler::Plan& plan, TaskId task) {
  for (const compiler::Carried& one : plan.carried_by(task)) d.add(one.tensor, one.weighted);
  for (const compiler::Contribution& one : plan.contributions_to(task)) {
    d.add(one.device, one.buffer, one.encoding, one.begin, one.end,
          std::bit_cast<std::int64_t>(one.weight));
  }
}

std::uint64_t digest(const compiler::Plan& plan) {
  Digest d;
  for (TaskId t : plan.task_ids()) {
    d.add(plan.kind[t], plan.op[t], plan.tensor[t], plan.device[t], plan.peer[t], plan.begin[t],
          plan.end[t], plan.duration[t], plan.moved_bytes[t], plan.rank[t], plan.priority[t],
          plan.predecessors[t], plan.workspace[t]);
    for (TaskId next : plan.successors[t]) d.add(next);
    for (const compiler::Hold& hold : plan.holds[t]) {
      d.add(hold.resource, hold.duration, hold.bytes);
    }
    for (DeviceId device : plan.participants[t]) d.add(device);
    for (TensorId parameter : plan.updated[t]) d.add(parameter);
    for (BufferId buffer : plan.allocates[t]) d.add(buffer);
    for (BufferId buffer : plan.reads[t]) d.add(buffer);
    d.add(plan.payload[t]);
    if (plan.payload[t].valid()) add_payload(d, plan, t);
  }
  for (BufferId b : id_range<BufferId>(plan.buffers.size())) {
    d.add(plan.buffers[b].device, plan.buffers[b].bytes, plan.buffers[b].tensor, plan.readers[b]);
  }
  for (DeviceId device : id_range<DeviceId>(plan.device_count)) {
    const compiler::StaticMemory& memory = plan.static_memory[device];
    d.add(memory.parameters, memory.optimizer_state, memory.buffers, memory.reserve,
          plan.capacity[device]);
  }
  return d.value();
}

decide::UnitDecision drawn(const cost::Problem& problem, Rng& rng) {
  const auto sync =
      rng.below(2) == 0 ? decide::SyncMethod::kParameterServer : decide::SyncMethod::kAllReduce;
  const std::size_t devices = problem.cluster->device_count();
  switch (rng.below(4)) {
    case 0:
      return decide::single_decision(DeviceId(rng.below(devices)));
    case 1:
      return decide::even_decision(problem, sync);
    case 2:
      return decide::proportional_decision(problem, sync);
    default:
      decide::UnitDecision decision{.replicas = {}, .sync = sync};
      for (std::size_t d = 0; d < devices; ++d) {
        const auto weight = static_cast<double>(rng.below(4));
        if (weight > 0) decision.replicas.push_back({DeviceId(d), weight});
      }
      return decision.replicas.empty() ? decide::single_decision(DeviceId(0)) : decision;
  }
}

std::vector<decide::Strategy> strategies(const cost::Problem& problem, int random,
                                         std::uint64_t seed) {
  using decide::SyncMethod;
  std::vector<decide::Strategy> all;
  for (SyncMethod sync : {SyncMethod::kParameterServer, SyncMethod::kAllReduce}) {
    all.push_back(uniform_strategy(problem, decide::even_decision(problem, sync)));
    all.push_back(uniform_strategy(problem, decide::proportional_decision(problem, sync)));
  }
  all.push_back(uniform_strategy(problem, decide::single_decision(DeviceId(0))));
  all.push_back(all[1]);
  all.back().bucket_bytes = 64 << 20;
  Rng rng(seed);
  for (int i = 0; i < random; ++i) {
    decide::Strategy strategy = uniform_strategy(problem, drawn(problem, rng));
    const std::size_t rarely = 1 + rng.below(20);  // from every unit to one of twenty
    for (decide::UnitDecision& unit : strategy.units) {
      if (rng.below(rarely) == 0) unit = drawn(problem, rng);
    }
    if (rng.below(4) == 0) strategy.bucket_bytes = Bytes{1} << (20 + rng.below(6));
    if (rng.below(2) == 0) {
      constexpr decide::OrderPolicy kOthers[] = {decide::OrderPolicy::kFifo,
                                                 decide::OrderPolicy::kRankQueued};
      strategy.order = kOthers[rng.below(std::size(kOthers))];
    }
    all.push_back(std::move(strategy));
  }
  return all;
}

void print(const Case& one, int random) {
  const auto problem = bench::problem(one.model, shipped_cluster(one.cluster), one.batch);
  const auto all = strategies(*problem, random, static_cast<std::uint64_t>(one.batch));
  sim::Simulator simulator;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const compiler::Plan plan = compiler::compile(*problem, all[i]);
    const sim::SimResult& result = simulator.simulate(plan, all[i].order);
    fmt::print("{} {} {} strategy {:2}: {} tasks, step {} ns, {:016x}\n", one.model, one.cluster,
               one.batch, i, plan.task_count(), result.step, digest(plan));
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace heterog::bench

int main(int argc, char** argv) {
  const int random = argc > 2 && std::string(argv[1]) == "--random" ? std::atoi(argv[2]) : 22;
  for (const auto& one : heterog::bench::kCases) heterog::bench::print(one, random);
}
