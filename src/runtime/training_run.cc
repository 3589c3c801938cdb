// Makes the data of each step and brings together what the ranks report.
#include "runtime/training_run.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "runtime/checkpoint.h"
#include "runtime/team.h"
#include "runtime/verify.h"

namespace heterog::runtime {

namespace {

// The loss of all, from each rank's part of it.
double checked_loss(const Job& job, std::int64_t step,
                    const std::vector<std::vector<double>>& parts) {
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const bool finite = std::all_of(parts[rank].begin(), parts[rank].end(),
                                    [](double part) { return std::isfinite(part); });
    if (finite) continue;
    throw Error(ErrorKind::kVerification,
                fmt::format("rank {} ({}): the loss is not a finite number in step {}", rank,
                            job.problem->cluster->device(DeviceId(rank)).name, step));
  }
  return loss_of_parts(parts);
}

class Threads final : public TrainingRun {
 public:
  Threads(const Job& job, const compiler::Plan& plan,
          const IdVector<DeviceId, WorkerOptions>& workers)
      : job_(job), plan_(plan), options_(workers[DeviceId(0)]), team_(job, workers) {
    const auto values = random_residents(*job.problem->graph, options_.seed, options_.floats);
    for (TensorId id : job.problem->graph->tensor_ids()) {
      if (values[id].defined()) team_.set_resident(id, values[id]);
    }
  }

  StepReport step(std::int64_t number) override {
    const graph::ModelGraph& graph = *job_.problem->graph;
    const StepInputs inputs =
        random_inputs(graph, job_.problem->batch, options_.seed, number, options_.floats);
    const auto results = team_.step(number, inputs);
    StepReport report;
    if (options_.record) {
      IdVector<DeviceId, RankRecord> records;
      for (const StepResult& result : results) {
        records.push_back({result.start, result.duration, result.spans});
      }
      report.measured = merge_records(job_, plan_, records);
    }
    std::vector<std::vector<double>> parts;
    for (DeviceId rank : job_.problem->cluster->device_ids()) {
      report.seconds = std::max(report.seconds, to_seconds(results[rank].duration));
      parts.push_back(loss_part(job_.programs[rank], graph, results[rank]));
    }
    report.loss = checked_loss(job_, number, parts);
    return report;
  }

  void save(const std::string& path, std::int64_t step) override {
    save_checkpoint(path, job_,
                    [&](TensorId id) {
                      for (DeviceId rank : job_.problem->cluster->device_ids()) {
                        const auto& kept = team_.worker(rank).residents();
                        if (std::binary_search(kept.begin(), kept.end(), id)) {
                          return team_.worker(rank).resident(id);
                        }
                      }
                      return at::Tensor();
                    },
                    {.step = step, .seed = options_.seed});
  }

  std::int64_t load(const std::string& path) override {
    std::int64_t step = 0;
    if (!std::filesystem::exists(path)) return 0;
    for (DeviceId rank : job_.problem->cluster->device_ids()) {
      step = load_checkpoint(path, job_, team_.worker(rank), options_.seed).step;
    }
    return step;
  }

 private:
  const Job& job_;
  const compiler::Plan& plan_;
  const WorkerOptions options_;
  Team team_;
};

class OneRank final : public TrainingRun {
 public:
  OneRank(const Job& job, const compiler::Plan& plan, DeviceId rank, Transport& transport,
          const WorkerOptions& worker)
      : job_(job),
        plan_(plan),
        rank_(rank),
        transport_(transport),
        options_(worker),
        worker_(job, rank, transport, worker) {
    const auto values = random_residents(*job.problem->graph, options_.seed, options_.floats);
    for (TensorId id : worker_.residents()) worker_.set_resident(id, values[id]);
    if (options_.record) clock_offset_ = clock_offset(transport_);
  }

  StepReport step(std::int64_t number) override {
    const graph::ModelGraph& graph = *job_.problem->graph;
    const StepInputs inputs =
        random_inputs(graph, job_.problem->batch, options_.seed, number, options_.floats);
    transport_.gather_all(at::zeros({1}));  // all start together
    const StepResult result = worker_.step(number, inputs);
    std::vector<double> own = loss_part(job_.programs[rank_], graph, result);
    own.push_back(to_seconds(result.duration));
    StepReport report;
    std::vector<std::vector<double>> parts;
    for (const at::Tensor& other : transport_.gather_all(at::tensor(own, at::kDouble))) {
      const double* numbers = other.const_data_ptr<double>();
      parts.emplace_back(numbers, numbers + other.numel() - 1);
      report.seconds = std::max(report.seconds, numbers[other.numel() - 1]);
    }
    report.loss = checked_loss(job_, number, parts);
    if (options_.record) {
      const RankRecord record{result.start + clock_offset_, result.duration, result.spans};
      report.measured = merge_records(job_, plan_, gather_records(job_, record, transport_));
    }
    return report;
  }

  void save(const std::string& path, std::int64_t step) override {
    save_checkpoint(path, job_, rank_, worker_, transport_, {.step = step, .seed = options_.seed});
  }

  std::int64_t load(const std::string& path) override {
    std::int64_t step = 0;
    if (std::filesystem::exists(path)) {
      step = load_checkpoint(path, job_, worker_, options_.seed).step;
    }
    const auto steps = transport_.gather_all(at::full({1}, step, at::kLong));
    for (std::size_t rank = 0; rank < steps.size(); ++rank) {
      const auto other = steps[rank].item<std::int64_t>();
      VALIDATE(
          other == step,
          "{}: rank {} goes on after step {}, rank {} after step {}; every host needs the same "
          "file",
          path, rank_.value(), step, rank, other);
    }
    return step;
  }

 private:
  const Job& job_;
  const compiler::Plan& plan_;
  const DeviceId rank_;
  Transport& transport_;
  const WorkerOptions options_;
  Worker worker_;
  Nanoseconds clock_offset_ = 0;
};

}  // namespace

std::unique_ptr<TrainingRun> run_in_threads(const Job& job, const compiler::Plan& plan,
                                            const IdVector<DeviceId, WorkerOptions>& workers) {
  return std::make_unique<Threads>(job, plan, workers);
}

std::unique_ptr<TrainingRun> run_rank(const Job& job, const compiler::Plan& plan, DeviceId rank,
                                      Transport& transport, const WorkerOptions& worker) {
  return std::make_unique<OneRank>(job, plan, rank, transport, worker);
}

}  // namespace heterog::runtime
