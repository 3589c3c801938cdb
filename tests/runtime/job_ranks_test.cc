// Ranks as threads and as one among processes: the same steps, reports and failures.
#include "runtime/ranks/job_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "comm/ranks.h"
#include "compiler/rescale.h"
#include "runtime/exec/random_data.h"
#include "runtime/jobs.h"
#include "runtime/ranks/training_run.h"

namespace heterog::runtime {
namespace {

using decide::SyncMethod;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr std::int64_t kBatch = 8;

// What ranks begin with and are fed. Made once, as PyTorch's generator is one for all threads.
struct Data {
  explicit Data(const Job& job)
      : residents(random_residents(*job.problem->graph, 1, Floats::kDouble)) {
    for (std::int64_t step = 1; step <= 3; ++step) {
      inputs.push_back(random_inputs(*job.problem->graph, kBatch, 1, step, Floats::kDouble));
    }
  }
  IdVector<TensorId, at::Tensor> residents;
  std::vector<StepInputs> inputs;
};

// `without`: a rank that gets none of it.
void begin(Ranks& ranks, const Data& data, DeviceId without = DeviceId()) {
  for (const DeviceId rank : ranks.here()) {
    if (rank == without) continue;
    Worker& worker = ranks.worker(rank);
    for (const TensorId id : worker.residents()) worker.set_resident(id, data.residents[id]);
  }
}

class JobRanks : public testing::Test {
 protected:
  explicit JobRanks(std::vector<double> weights = {1, 2, 5},
                    SyncMethod sync = SyncMethod::kAllReduce)
      : problem_(decide::model_problem("lenet5-tiny", weights.size(), kBatch)),
        test_(make_test_job(problem_, weighted(*problem_, weights, sync))),
        data_(test_.job) {
    for (const DeviceId device : problem_->cluster->device_ids()) {
      names_.push_back(problem_->cluster->device(device).name);
    }
  }
  std::size_t count() const { return names_.size(); }
  std::string name(std::size_t rank) const { return comm::rank_text(DeviceId(rank), names_); }

  std::unique_ptr<Ranks> in_threads() const {
    auto ranks = ranks_in_threads(test_.job, test_.plan,
                                  IdVector<DeviceId, WorkerOptions>(count(), worker_));
    begin(*ranks, data_);
    return ranks;
  }
  // What each failed with.
  std::vector<std::string> as_processes(
      const std::function<void(Ranks&, std::size_t rank)>& body) const {
    return comm::run_ranks(static_cast<int>(count()), {.sets = test_.job.sets},
                           [&](comm::ProcessTransport& transport, std::size_t rank) {
                             const auto ranks = rank_among_processes(
                                 test_.job, test_.plan, {DeviceId(rank), transport}, worker_);
                             begin(*ranks, data_);
                             body(*ranks, rank);
                           });
  }
  // A parameter that all ranks keep.
  TensorId parameter() const {
    for (const TensorId id : problem_->graph->tensor_ids()) {
      if (problem_->graph->tensor(id).role == graph::TensorRole::kParameter) return id;
    }
    return TensorId();
  }

  WorkerOptions worker_{.floats = Floats::kDouble};
  std::shared_ptr<const cost::Problem> problem_;
  TestJob test_;
  Data data_;
  std::vector<std::string> names_;
};

TEST_F(JobRanks, EveryProcessKnowsWhatAllReport) {
  worker_.record = true;
  std::vector<double> losses;
  const auto threads = in_threads();
  EXPECT_EQ(threads->here().size(), 3u);
  EXPECT_TRUE(threads->speaks());
  for (std::size_t i = 0; i < data_.inputs.size(); ++i) {
    losses.push_back(threads->step(static_cast<std::int64_t>(i) + 1, data_.inputs[i]).loss);
  }
  EXPECT_NE(losses[0], losses[1]);
  std::vector<StepReport> reports(count());
  const auto errors = as_processes([&](Ranks& ranks, std::size_t rank) {
    EXPECT_THAT(ranks.here(), testing::ElementsAre(DeviceId(rank)));
    EXPECT_EQ(ranks.speaks(), rank == 0);
    for (std::size_t i = 0; i < data_.inputs.size(); ++i) {
      reports[rank] = ranks.step(static_cast<std::int64_t>(i) + 1, data_.inputs[i]);
      EXPECT_NEAR(reports[rank].loss, losses[i], 1e-12 * losses[i]) << rank;
    }
    EXPECT_EQ(ranks.meet(static_cast<int>(rank) * 10), 20);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  for (const StepReport& report : reports) {
    EXPECT_EQ(report.loss, reports[0].loss);
    EXPECT_GT(report.seconds, 0);
    EXPECT_EQ(report.seconds, reports[0].seconds);
    ASSERT_TRUE(report.measured);
    for (const TaskId task : test_.plan.task_ids()) {
      EXPECT_LE(report.measured->begin[task], report.measured->end[task]);
    }
  }
}

TEST_F(JobRanks, AllBeginWithWhatRankZeroGives) {
  const TensorId id = parameter();
  const auto errors = as_processes([&](Ranks& ranks, std::size_t rank) {
    EXPECT_TRUE(ranks.keeps(id));
    ranks.set(id, at::full_like(data_.residents[id], static_cast<double>(rank) + 7));
    EXPECT_TRUE(ranks.worker(DeviceId(rank)).resident(id).eq(7).all().item<bool>());
    EXPECT_TRUE(ranks.get(id).eq(7).all().item<bool>());
    EXPECT_EQ(ranks.get_where_it_speaks(id).defined(), rank == 0);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_F(JobRanks, RefusesBatchesThatDiffer) {
  const auto errors = as_processes(
      [&](Ranks& ranks, std::size_t rank) { ranks.step(1, data_.inputs[rank == 2 ? 1 : 0]); });
  EXPECT_THAT(errors, Each(StartsWith("step 1: rank 2 was given another batch than rank 0")));
}

// The plan at other numbers of samples, on the same ranks.
class OtherJobs : public JobRanks {
 protected:
  OtherJobs() {
    sim::Simulator simulator;
    const auto& timeline = simulator.simulate_timeline(test_.plan, decide::OrderPolicy::kRank);
    for (const std::int64_t batch : {5, 2}) {
      const auto problem = compiler::at_batch(*problem_, batch);
      TestJob other;
      other.plan = compiler::rescaled(*problem, test_.plan);
      other.job = make_job(problem, other.plan, timeline.dispatch, {}, "test");
      others_.push_back(std::move(other));
    }
  }
  const TestJob& numbered(std::size_t job) const { return job == 0 ? test_ : others_[job - 1]; }
  StepInputs inputs_of(std::size_t job, std::int64_t step) const {
    return random_inputs(*problem_->graph, numbered(job).job.problem->batch, 1, step,
                         Floats::kDouble);
  }

  std::vector<TestJob> others_;
};

// What stays goes along, bit for bit, as if ranks of that job alone had been given it.
TEST_F(OtherJobs, KeepOneSetOfTensors) {
  const std::vector<std::size_t> jobs = {0, 1, 1, 2, 0, 2, 1, 0};
  std::vector<double> losses;
  const auto ranks = in_threads();
  for (const TestJob& other : others_) ranks->add(other.job, other.plan);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(i);
    const TestJob& test = numbered(jobs[i]);
    const auto alone =
        ranks_in_threads(test.job, test.plan, IdVector<DeviceId, WorkerOptions>(count(), worker_));
    for (const DeviceId rank : alone->here()) {
      for (const TensorId id : alone->worker(rank).residents()) {
        alone->worker(rank).set_resident(id, ranks->worker(rank).resident(id).clone());
      }
    }
    const auto number = static_cast<std::int64_t>(i) + 1;
    const StepInputs inputs = inputs_of(jobs[i], number);
    losses.push_back(ranks->step(number, inputs, jobs[i]).loss);
    EXPECT_EQ(alone->step(number, inputs).loss, losses.back());
    for (const DeviceId rank : alone->here()) {
      for (const TensorId id : alone->worker(rank).residents()) {
        EXPECT_TRUE(alone->worker(rank).resident(id).equal(ranks->worker(rank).resident(id)))
            << problem_->graph->tensor(id).name;
      }
    }
  }
  std::vector<StepInputs> all;  // PyTorch's generator is one for all threads
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    all.push_back(inputs_of(jobs[i], static_cast<std::int64_t>(i) + 1));
  }
  const auto errors = as_processes([&](Ranks& one, std::size_t) {
    for (const TestJob& other : others_) one.add(other.job, other.plan);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const double loss = one.step(static_cast<std::int64_t>(i) + 1, all[i], jobs[i]).loss;
      EXPECT_NEAR(loss, losses[i], 1e-12 * losses[i]) << i;
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Each is reported once the next one is launched.
TEST_F(OtherJobs, ReportStepsThatAreFinishedLate) {
  const std::vector<std::size_t> jobs = {0, 0, 1, 2, 2, 0};
  std::vector<StepInputs> inputs;
  std::vector<double> losses;
  const auto straight = in_threads();
  for (const TestJob& other : others_) straight->add(other.job, other.plan);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i) + 1;
    inputs.push_back(inputs_of(jobs[i], number));
    losses.push_back(straight->step(number, inputs.back(), jobs[i]).loss);
  }
  const auto run = [&](Ranks& ranks) {
    for (const TestJob& other : others_) ranks.add(other.job, other.plan);
    for (std::size_t i = 0; i <= jobs.size(); ++i) {
      if (i < jobs.size()) ranks.launch(static_cast<std::int64_t>(i) + 1, inputs[i], jobs[i]);
      if (i == 0) continue;
      EXPECT_NEAR(ranks.finish().loss, losses[i - 1], 1e-12 * losses[i - 1]) << i;
    }
  };
  const auto late = in_threads();
  run(*late);
  for (const DeviceId rank : late->here()) {
    for (const TensorId id : late->worker(rank).residents()) {
      EXPECT_TRUE(late->worker(rank).resident(id).equal(straight->worker(rank).resident(id)));
    }
  }
  EXPECT_THAT(as_processes([&](Ranks& ranks, std::size_t) { run(ranks); }), Each(IsEmpty()));
}

TEST_F(OtherJobs, MustBeTheSameOnAllRanks) {
  const StepInputs five = inputs_of(1, 2);
  const auto apart = as_processes([&](Ranks& ranks, std::size_t rank) {
    const std::size_t job = ranks.add(others_[0].job, others_[0].plan);
    ranks.step(1, data_.inputs[0]);
    if (rank == 1) {
      ranks.step(2, five, job);
    } else {
      ranks.step(2, data_.inputs[1]);
    }
  });
  EXPECT_THAT(apart, Each(StartsWith("step 2: rank 1 was given 5 samples, and rank 0 8; every rank "
                                     "is given the same whole batch")));
  Job cut_otherwise = others_[0].job;
  ++cut_otherwise.programs[DeviceId(2)].instructions[InstructionId(0)].samples;
  const auto made_apart = as_processes([&](Ranks& ranks, std::size_t rank) {
    const std::size_t job = ranks.add(rank == 2 ? cut_otherwise : others_[0].job, others_[0].plan);
    ranks.step(1, five, job);
  });
  EXPECT_THAT(made_apart, Each(StartsWith("step 1: rank 2 has cut the plan for 5 samples otherwise "
                                          "than rank 0")));
}

TEST_F(JobRanks, NamesTheRankWhoseLossIsNotFinite) {
  const TensorId id = parameter();
  const at::Tensor nan = at::full_like(data_.residents[id], NAN);
  const std::string expected = name(1) + ": the loss is not a finite number in step 1";
  const auto errors = as_processes([&](Ranks& ranks, std::size_t rank) {
    if (rank == 1) ranks.worker(DeviceId(1)).set_resident(id, nan);
    ranks.step(1, data_.inputs[0]);
  });
  EXPECT_THAT(errors, Each(expected));
  const auto threads = in_threads();
  threads->worker(DeviceId(1)).set_resident(id, nan);
  try {
    threads->step(1, data_.inputs[0]);
    FAIL() << "not noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), expected);
    EXPECT_EQ(error.kind(), ErrorKind::kVerification);
  }
}

// One rank's operator fails; the others, which wait for what it would have sent, end with its line.
TEST_F(JobRanks, AllEndWithTheLineOfTheRankThatFailedFirst) {
  const TensorId id = parameter();
  const at::Tensor wrong = at::zeros({1, 1, 1, 1, 1}, at::kDouble);
  const auto line = AllOf(StartsWith(name(1) + ", task "), HasSubstr("which computes"),
                          testing::Not(HasSubstr(name(0))), testing::Not(HasSubstr(name(2))));
  const auto errors = as_processes([&](Ranks& ranks, std::size_t rank) {
    if (rank == 1) ranks.worker(DeviceId(1)).set_resident(id, wrong);
    ranks.step(1, data_.inputs[0]);
  });
  EXPECT_THAT(errors[1], line);
  EXPECT_THAT(errors, Each(errors[1]));
  const auto threads = in_threads();
  threads->worker(DeviceId(1)).set_resident(id, wrong);
  try {
    threads->step(1, data_.inputs[0]);
    FAIL() << "not noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), errors[1]);
  }
}

// Ends the process where something never ends. Two minutes: a step takes milliseconds.
class Limit {
 public:
  explicit Limit(const char* what)
      : thread_([this, what] {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, std::chrono::minutes(2), [this] { return done_; })) return;
          std::fprintf(stderr, "%s: has not ended within two minutes\n", what);
          std::_Exit(1);
        }) {}
  ~Limit() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

// A rank that cannot begin a step has no task that fails; the others have begun and wait for it.
TEST_F(JobRanks, ARankThatCannotBeginEndsTheStepOfAll) {
  const Limit limit("a step that one rank cannot begin");
  const std::string reason = "'features.0.weight' was not given a value";
  const auto threads =
      ranks_in_threads(test_.job, test_.plan, IdVector<DeviceId, WorkerOptions>(count(), worker_));
  begin(*threads, data_, DeviceId(1));
  try {
    threads->step(1, data_.inputs[0]);
    FAIL() << "not noticed";
  } catch (const Error& error) {  // of rank 0
    EXPECT_EQ(error.what(), name(1) + ", as it begins the step: " + reason);
  }
  // None leaves before all have failed: it is the step that ends them.
  std::barrier all_failed(static_cast<std::ptrdiff_t>(count()));
  const auto errors =
      comm::run_ranks(static_cast<int>(count()), {.sets = test_.job.sets},
                      [&](comm::ProcessTransport& transport, std::size_t rank) {
                        const auto ranks = rank_among_processes(
                            test_.job, test_.plan, {DeviceId(rank), transport}, worker_);
                        begin(*ranks, data_, DeviceId(1));
                        try {
                          ranks->step(1, data_.inputs[0]);
                        } catch (const Error&) {
                          all_failed.arrive_and_wait();
                          throw;
                        }
                      });
  EXPECT_EQ(errors[1], reason);
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_EQ(errors[rank], name(1) + ", as it begins the step: " + reason);
  }
}

// Whatever it throws, and on whatever thread: it ends the step, and nothing else.
TEST_F(JobRanks, AHookThatThrowsFailsTheStep) {
  for (const Queue queue : {Queue::kCompute, Queue::kCollective}) {
    for (const bool known : {true, false}) {
      worker_.before_each = [=](const Instruction& instruction) {
        if (instruction.queue != queue) return;
        if (known) throw std::runtime_error("the hook does not like it");
        throw 7;
      };
      const auto ranks = in_threads();
      try {
        ranks->step(1, data_.inputs[0]);
        FAIL() << "not noticed";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kVerification);
        EXPECT_THAT(error.what(), AllOf(StartsWith("rank "), HasSubstr(", task "),
                                        HasSubstr(known ? "the hook does not like it"
                                                        : "an exception of no known type")));
      }
    }
  }
}

// A rank that goes without failing has no task: the others say in which of theirs they missed it.
TEST_F(JobRanks, SaysWhoMissedARankThatIsLost) {
  const auto errors = as_processes([&](Ranks& ranks, std::size_t rank) {
    ranks.step(1, data_.inputs[0]);
    if (rank == 2) {
      // As if it began the next.
      const auto graph = static_cast<std::int64_t>(problem_->graph->hash());
      ranks.gather(at::tensor({kBatch, std::int64_t{0}, std::int64_t{0}, graph}, at::kLong));
      throw Error(ErrorKind::kVerification, "has left");
    }
    ranks.step(2, data_.inputs[1]);
  });
  for (const std::size_t rank : {0u, 1u}) {
    EXPECT_THAT(errors[rank], AllOf(StartsWith("rank 2 (host/cpu2): has left, noticed by " +
                                               name(rank) + ", task "),
                                    HasSubstr("which reduces")));
  }
}

class TrainingRunFile : public JobRanks {
 protected:
  TrainingRunFile() : JobRanks({1, 1}, SyncMethod::kParameterServer) {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("heterog_training_run_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~TrainingRunFile() override { std::filesystem::remove_all(folder_); }

  TrainingRun run() const {
    const WorkerOptions worker{.seed = 4};
    return TrainingRun(
        ranks_in_threads(test_.job, test_.plan, IdVector<DeviceId, WorkerOptions>(count(), worker)),
        worker);
  }
  std::filesystem::path folder_;
};

TEST_F(TrainingRunFile, GoesOnBitForBit) {
  const std::string whole = folder_ / "whole", part = folder_ / "part";
  TrainingRun straight = run();
  EXPECT_EQ(straight.load(whole), 0) << "there is none yet";
  std::vector<double> losses;
  for (std::int64_t step = 1; step <= 4; ++step) {
    losses.push_back(straight.step(step).loss);
    if (step == 2) straight.save(part, step);
  }
  straight.save(whole, 4);
  TrainingRun resumed = run();
  EXPECT_EQ(resumed.load(part), 2);
  EXPECT_EQ(resumed.step(3).loss, losses[2]);
  EXPECT_EQ(resumed.step(4).loss, losses[3]);
  resumed.save(part, 4);
  EXPECT_TRUE(read_file(part) == read_file(whole));
}

}  // namespace
}  // namespace heterog::runtime
