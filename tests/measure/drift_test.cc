// What is measured of a plan with tasks that nobody runs.
#include "measure/drift.h"

#include <gtest/gtest.h>

#include "measure/run_profile.h"
#include "runtime/jobs.h"
#include "runtime/ranks/job_ranks.h"
#include "runtime/ranks/training_run.h"

namespace heterog::measure {
namespace {

TEST(Measurement, LeavesOutOverheadsWhichStandForTimeAlone) {
  constexpr double kOverhead = 1e-9;
  const std::shared_ptr<const cost::Problem> problem =
      decide::model_problem("lenet5-tiny", 2, 8, kOverhead);
  const runtime::TestJob test = runtime::make_test_job(
      problem, runtime::weighted(*problem, {1, 3}, decide::SyncMethod::kAllReduce));
  const runtime::WorkerOptions worker{.record = true};
  runtime::TrainingRun run(
      runtime::ranks_in_threads(test.job, test.plan,
                                IdVector<DeviceId, runtime::WorkerOptions>(2, worker)),
      worker);
  std::vector<runtime::MeasuredStep> steps;
  for (std::int64_t step = 1; step <= 3; ++step) steps.push_back(*run.step(step).measured);

  std::int64_t overheads = 0, running = 0;
  for (TaskId task : test.plan.task_ids()) {
    const bool runs = test.plan.kind[task] != compiler::TaskKind::kOverhead;
    (runs ? running : overheads) += test.plan.duration[task] > 0;
    for (const runtime::MeasuredStep& step : steps) {
      EXPECT_GE(step.begin[task], 0);
      EXPECT_LE(step.begin[task], step.end[task]);
      EXPECT_LE(step.end[task], step.duration);
      if (!runs) {
        EXPECT_EQ(step.begin[task], step.end[task]);
      }
    }
  }
  EXPECT_GT(overheads, 0);
  std::int64_t tasks = 0;
  for (const Drift& row : drift(test.job, test.plan, steps)) {
    EXPECT_GT(row.measured_seconds, 0) << row.what;
    tasks += row.tasks;
  }
  EXPECT_EQ(tasks, running);
  const RecordedRun ran{*test.job.problem, test.plan, steps};
  EXPECT_TRUE(profile_of_runs(ran.problem, {&ran, 1}, DeviceTypeId(0)).finished);
}

}  // namespace
}  // namespace heterog::measure
