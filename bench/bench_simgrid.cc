// Our simulator beside SimGrid 3.32 on the same graph of tasks, where nothing contends.
//
//     build/release/bin/bench_simgrid         (from the root of the repository)
//
// BERT-large, EV-PS on eight GPUs. SimGrid shares a host or a link among those who use
// it at once, and decision 8 does not; so SimGrid is given, beside the dependencies, the
// order in which our simulator had each device and link work. Then nothing contends and the two
// must agree: the program fails where the step times differ by more than 1e-6. Our simulator finds
// the order by itself. Only SimGrid's run is timed, not the making of its activities.
//
// Prints tasks, both times (ours: the fastest of ten) and their ratio.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <simgrid/s4u.hpp>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "problems.h"
#include "sim/simulator.h"

namespace heterog::bench {
namespace {

namespace sg4 = simgrid::s4u;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Eight machines of one GPU each. All links are alike and without latency, so that a transfer holds
// them from its start to its end, as SimGrid has it.
cluster::Cluster flat_cluster() {
  const cluster::DeviceDatabase types = cluster::read_devices("configs/devices.json");
  cluster::ClusterBuilder builder("flat");
  for (int i = 0; i < 8; ++i) {
    cluster::MachineSpec machine;
    machine.name = "m" + std::to_string(i);
    machine.devices = {types.at(i % 2 == 0 ? "V100-PCIE-16GB" : "GTX-1080-Ti")};
    machine.nic = {12.1e9, 0};
    builder.add_machine(std::move(machine));
  }
  return std::move(builder).build("flat cluster");
}

struct Outcome {
  double step_seconds = 0;
  double run_seconds = 0;
};

// Hosts of 1 GFLOP/s and links of 1 GB/s, so that a nanosecond is one FLOP or one byte.
Outcome run_simgrid(sg4::Engine& engine, const compiler::Plan& plan,
                    const sim::SimResult& schedule) {
  sg4::NetZone* zone = sg4::create_full_zone("machines");
  std::vector<sg4::Host*> hosts;
  for (std::size_t i = 0; i < plan.device_count; ++i) {
    hosts.push_back(zone->create_host("gpu" + std::to_string(i), 1e9));
  }
  // A collective runs on a host of its own: it takes its time and meets nobody.
  std::vector<sg4::Host*> collective_hosts;
  for (compiler::TaskKind kind : plan.kind) {
    if (!compiler::is_collective(kind)) continue;
    collective_hosts.push_back(
        zone->create_host("collective" + std::to_string(collective_hosts.size()), 1e9));
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    for (std::size_t j = i + 1; j < hosts.size(); ++j) {
      auto* link =
          zone->create_split_duplex_link("link" + std::to_string(i) + "-" + std::to_string(j), 1e9);
      zone->add_route(hosts[i]->get_netpoint(), hosts[j]->get_netpoint(), nullptr, nullptr,
                      {{link, sg4::LinkInRoute::Direction::UP}}, true);
    }
  }
  zone->seal();

  // Of each task one of the two.
  std::vector<sg4::CommPtr> comms(plan.task_count());
  std::vector<sg4::ExecPtr> execs(plan.task_count());
  for (TaskId task : plan.task_ids()) {
    const auto nanoseconds = plan.duration[task];
    const bool is_collective = compiler::is_collective(plan.kind[task]);
    if (compiler::is_communication(plan.kind[task]) && !is_collective) {
      sg4::CommPtr comm = sg4::Comm::sendto_init();
      comm->set_source(hosts[plan.peer[task].value()]);
      comm->set_destination(hosts[plan.device[task].value()]);
      comm->set_payload_size(static_cast<std::uint64_t>(nanoseconds));
      comms[task.value()] = comm;
    } else {
      sg4::ExecPtr exec = sg4::Exec::init();
      if (is_collective) {
        exec->set_host(collective_hosts.back());
        collective_hosts.pop_back();
      } else {
        exec->set_host(hosts[plan.device[task].value()]);
      }
      exec->set_flops_amount(static_cast<double>(nanoseconds));
      execs[task.value()] = exec;
    }
  }
  std::set<std::pair<TaskId, TaskId>> known;
  const auto before = [&](TaskId first, TaskId second) {
    if (!known.insert({first, second}).second) return;  // SimGrid refuses repeats
    sg4::ActivityPtr next = comms[second.value()];
    if (!next) next = execs[second.value()];
    if (comms[first.value()]) {
      comms[first.value()]->add_successor(next);
    } else {
      execs[first.value()]->add_successor(next);
    }
  };
  for (TaskId task : plan.task_ids()) {
    for (TaskId next : plan.successors[task]) before(task, next);
  }
  std::vector<TaskId> last(plan.resource_count());
  for (TaskId task : schedule.dispatch) {
    for (const compiler::Hold& hold : plan.holds[task]) {
      TaskId& previous = last[hold.resource.value()];
      if (previous.valid()) before(previous, task);
      previous = task;
    }
  }
  for (TaskId task : plan.task_ids()) {
    if (comms[task.value()]) {
      comms[task.value()]->vetoable_start();
    } else {
      execs[task.value()]->vetoable_start();
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  engine.run();
  return {sg4::Engine::get_clock(), seconds_since(begin)};
}

int compare(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/crosstraffic:0");
  const auto problem = bench::problem("bert_large24", flat_cluster(), 48);
  const auto plan = compiler::compile(
      *problem,
      decide::uniform_strategy(
          *problem, decide::even_decision(*problem, decide::SyncMethod::kParameterServer)));
  const sim::SimResult schedule = sim::simulate(plan);
  sim::Simulator simulator;
  double ours = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 10; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    simulator.simulate(plan, decide::OrderPolicy::kRank);
    ours = std::min(ours, seconds_since(begin));
  }
  const Outcome theirs = run_simgrid(engine, plan, schedule);
  const double step = to_seconds(schedule.step);
  const double difference = std::abs(theirs.step_seconds - step) / step;
  std::size_t transfers = 0;
  for (compiler::TaskKind kind : plan.kind) transfers += compiler::is_communication(kind);
  std::printf("tasks %zu, of which transfers %zu\n", plan.task_count(), transfers);
  std::printf("step: heterog %.9f s, SimGrid %.9f s, relative difference %.1e\n", step,
              theirs.step_seconds, difference);
  std::printf("time: heterog %.6f s, SimGrid %.6f s, ratio %.1f\n", ours, theirs.run_seconds,
              theirs.run_seconds / ours);
  return difference <= 1e-6 ? 0 : 1;
}

}  // namespace
}  // namespace heterog::bench

int main(int argc, char** argv) { return heterog::bench::compare(argc, argv); }
