// Random plans with random delays: no step hangs, and every queue keeps the plan's order.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/exec/random_data.h"
#include "runtime/jobs.h"
#include "runtime/ranks/team.h"
#include "support/rounds.h"

namespace heterog::runtime {
namespace {

// Every instruction begins after a pause of its own, drawn from the seed: none, short or long.
class Delays {
 public:
  explicit Delays(std::uint64_t seed) : seed_(seed) {}
  void operator()(const Instruction& instruction) const {
    Rng rng(seed_ * 7919 + instruction.task.value() * 4 +
            static_cast<std::uint64_t>(instruction.queue));
    const std::uint64_t kind = rng.below(8);
    if (kind == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng.below(150)));
    if (kind == 1) std::this_thread::yield();
  }

 private:
  std::uint64_t seed_;
};

// The parameters after two steps.
std::vector<at::Tensor> train(const TestJob& test, std::uint64_t delay_seed) {
  const graph::ModelGraph& graph = *test.job.problem->graph;
  WorkerOptions worker{.floats = Floats::kDouble};
  if (delay_seed != 0) worker.before_each = Delays(delay_seed);
  Team team(test.job, IdVector<DeviceId, WorkerOptions>(test.job.programs.size(), worker));
  const auto values = random_residents(graph, 1, Floats::kDouble);
  for (TensorId id : graph.tensor_ids()) {
    if (values[id].defined()) team.set_resident(id, values[id]);
  }
  for (std::int64_t step = 1; step <= 2; ++step) {
    team.step(step, random_inputs(graph, test.job.problem->batch, 1, step, Floats::kDouble));
  }
  std::vector<at::Tensor> parameters;
  for (DeviceId device : id_range<DeviceId>(test.job.programs.size())) {
    for (TensorId id : team.worker(device).residents()) {
      parameters.push_back(team.worker(device).resident(id).clone());
    }
  }
  return parameters;
}

// Two thousand plans of one to four devices. A step that hangs is ended by the watchdog, which
// says so and ends the test program: nothing else could.
TEST(Order, NoRandomPlanHangsUnderRandomDelays) {
  std::atomic<std::uint64_t> at{0};
  std::atomic<bool> done{false};
  std::thread watchdog([&] {
    std::uint64_t seen = 0;
    auto since = std::chrono::steady_clock::now();
    while (!done) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (at != seen) {
        seen = at;
        since = std::chrono::steady_clock::now();
      }
      if (std::chrono::steady_clock::now() - since > std::chrono::seconds(60)) {
        std::fprintf(stderr, "the plan of seed %lu hangs\n", static_cast<unsigned long>(seen));
        std::abort();
      }
    }
  });
  // Where connections are capped, messages to several devices go side by side.
  std::vector<std::shared_ptr<const cost::Problem>> problems;
  for (const double cap : {0.0, 3e8}) {
    for (std::size_t devices = 1; devices <= 4; ++devices) {
      const double overhead = devices < 3 ? 0 : 1e-9;
      problems.push_back(decide::toy_problem(support::tiny_mlp_graph(), devices, 8, overhead, cap));
    }
  }
  const auto seeds = static_cast<std::uint64_t>(support::rounds(2000));
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    at = seed;
    const auto& problem = problems[seed % problems.size()];
    const TestJob test = make_test_job(problem, random_mix(*problem, seed));
    const std::vector<at::Tensor> delayed = train(test, seed);
    if (seed % 20 != 0) continue;
    // The same bits, whatever the delays.
    const std::vector<at::Tensor> straight = train(test, 0);
    ASSERT_EQ(delayed.size(), straight.size());
    for (std::size_t i = 0; i < delayed.size(); ++i) {
      ASSERT_TRUE(delayed[i].equal(straight[i])) << "seed " << seed;
    }
  }
  done = true;
  watchdog.join();
}

// One device serves all parameters to two others. The first of them to be sent something does not
// take it before the second has got what it was sent: where connections are capped nothing waits
// for that, and the step ends.
TEST(Order, ASlowPeerKeepsNobodyWaitingBehindACappedConnection) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(support::tiny_mlp_graph(), 3, 8, 0, 3e8);
  decide::Strategy strategy = weighted(*problem, {1, 1, 1}, decide::SyncMethod::kParameterServer);
  for (TensorId parameter : problem->graph->parameters()) {
    strategy.sync.push_back({.parameter = parameter,
                             .method = decide::SyncMethod::kParameterServer,
                             .server = DeviceId(0)});
  }
  const TestJob test = make_test_job(problem, strategy);
  const Program& server = test.job.programs[DeviceId(0)];
  const auto& sends = server.queues[static_cast<std::size_t>(Queue::kSend)];
  ASSERT_GT(sends.size(), 2U);
  const DeviceId first = server.instructions[sends.front()].peer;
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;  // receives of the other
  bool came = true;
  const auto hook = [&](DeviceId device) {
    return [&, device, at = std::make_shared<int>(0)](const Instruction& instruction) {
      if (instruction.queue != Queue::kReceive) return;
      std::unique_lock lock(mutex);
      if (device != first) {
        ++begun;
        return changed.notify_all();
      }
      if ((*at)++ > 0) return;
      // The second receive begins once the first has ended.
      came = changed.wait_for(lock, std::chrono::seconds(20), [&] { return begun > 1; });
    };
  };
  IdVector<DeviceId, WorkerOptions> options(3, {.floats = Floats::kDouble});
  for (const DeviceId device : {DeviceId(1), DeviceId(2)}) {
    options[device].before_each = hook(device);
  }
  Team team(test.job, options);
  const graph::ModelGraph& graph = *problem->graph;
  const auto values = random_residents(graph, 1, Floats::kDouble);
  for (TensorId id : graph.tensor_ids()) {
    if (values[id].defined()) team.set_resident(id, values[id]);
  }
  team.step(1, random_inputs(graph, problem->batch, 1, 1, Floats::kDouble));
  EXPECT_TRUE(came) << "what is sent to one waits for the other";
}

}  // namespace
}  // namespace heterog::runtime
