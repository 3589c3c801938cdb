// Random plans with random delays: no step hangs, and every queue keeps the plan's order.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "runtime/jobs.h"
#include "runtime/local_transport.h"
#include "runtime/team.h"

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
  IdVector<DeviceId, std::shared_ptr<const cost::Problem>> problems;
  for (std::size_t devices = 1; devices <= 4; ++devices) {
    const double overhead = devices < 3 ? 0 : 1e-9;
    problems.push_back(compiler::toy_problem(support::tiny_mlp_graph(), devices, 8, overhead));
  }
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    at = seed;
    const auto& problem = problems[DeviceId(seed % 4)];
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

// Queues run what the dispatch sequence says, in its order.
TEST(Order, EveryQueueIsARestrictionOfTheDispatchSequence) {
  const std::shared_ptr<const cost::Problem> problem =
      compiler::model_problem("lenet5-tiny", 3, 12);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const compiler::Strategy strategy = random_mix(*problem, seed);
    const TestJob test = make_test_job(problem, strategy);
    sim::Simulator simulator;
    const auto& dispatch = simulator.simulate_timeline(test.plan, strategy.order).dispatch;
    IdVector<TaskId, std::size_t> place(test.plan.task_count());
    for (std::size_t i = 0; i < dispatch.size(); ++i) place[dispatch[i]] = i;
    for (const Program& program : test.job.programs) {
      for (const auto& queue : program.queues) {
        for (std::size_t i = 1; i < queue.size(); ++i) {
          EXPECT_LT(place[program.instructions[queue[i - 1]].task],
                    place[program.instructions[queue[i]].task]);
        }
      }
    }
  }
}

// Statistics of a slice that the step itself goes on with have no value for the whole batch yet.
TEST(Job, RefusesAStepThatReadsNewStatistics) {
  support::GraphMaker maker;
  const TensorId x = maker.input("x", {support::kB, support::n(4)});
  const TensorId mean = maker.buffer("kept", {support::n(4)});
  const TensorId now =
      maker.op("aten.mean.dim", {graph::tensor_value(x), graph::list_value({graph::int_value(0)})},
               {support::n(4)}, {.role = graph::TensorRole::kOutput, .replaces = mean});
  maker.op("aten.add.Tensor", {graph::tensor_value(x), graph::tensor_value(now)},
           {support::kB, support::n(4)});
  const std::shared_ptr<const cost::Problem> problem =
      compiler::toy_problem(std::move(maker).build(), 2, 8);
  const auto plan =
      compiler::compile(*problem, weighted(*problem, {1, 1}, compiler::SyncMethod::kAllReduce), {});
  try {
    make_job(problem, plan, sim::simulate(plan).dispatch, {}, "g.json");
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("reads the new value of buffer 'kept'"),
              std::string::npos)
        << error.what();
  }
}

// A dispatch sequence that cannot be is refused before anything starts.
TEST(Order, AWrongDispatchSequenceIsRefused) {
  const std::shared_ptr<const cost::Problem> problem =
      compiler::toy_problem(support::tiny_mlp_graph(), 2, 8);
  const auto plan = compiler::compile(*problem, random_mix(*problem, 3), {});
  std::vector<TaskId> dispatch = sim::simulate(plan).dispatch;
  std::vector<TaskId> shuffled(dispatch.rbegin(), dispatch.rend());
  EXPECT_THROW(make_job(problem, plan, shuffled, {}, "plan.json"), Error);
  dispatch.pop_back();
  EXPECT_THROW(make_job(problem, plan, dispatch, {}, "plan.json"), Error);
  dispatch.push_back(dispatch.front());
  EXPECT_THROW(make_job(problem, plan, dispatch, {}, "plan.json"), Error);
}

}  // namespace
}  // namespace heterog::runtime
