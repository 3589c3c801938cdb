// Exchanges what the ranks of a job report of each step.
#include "runtime/ranks/job_ranks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "runtime/kernels/numbers.h"
#include "runtime/program/input_rows.h"
#include "runtime/program/job_terms.h"
#include "runtime/program/kept_rows.h"
#include "runtime/ranks/output_parts.h"
#include "runtime/ranks/team.h"

namespace heterog::runtime {

namespace {

// What a rank says of a step, as numbers: what it captured of the loss (its addend, or 0; the whole
// loss, or 0; 1 if it has it), the seconds that the step took it, and its memory, member by member.
constexpr std::size_t kAddend = 0, kWhole = 1, kHasWhole = 2, kSeconds = 3, kMemory = 4;
using Said = std::array<double, 9>;

RankMemory memory_of(const double* said) {
  const auto bytes = [&](std::size_t i) { return static_cast<Bytes>(said[kMemory + i]); };
  return {bytes(0), bytes(1), bytes(2), bytes(3), bytes(4)};
}

Said said_of(const Program& program, const graph::ModelGraph& graph, const StepResult& result) {
  Said said{};
  said[kSeconds] = to_seconds(result.duration);
  const auto& [most, reserved, parameters, optimizer_state, buffers] = result.memory;
  std::size_t at = kMemory;
  for (Bytes bytes : {most, reserved, parameters, optimizer_state, buffers}) {
    said[at++] = static_cast<double>(bytes);
  }
  for (std::size_t i = 0; i < program.captures.size(); ++i) {
    const Capture& capture = program.captures[i];
    if (capture.tensor != graph.loss()) continue;
    const double value = result.captures[i].to(at::kDouble).item<double>();
    if (capture.partial) {
      said[kAddend] += value * capture.weight;  // one per instance
    } else {
      said[kWhole] = value;
      said[kHasWhole] = 1;
    }
  }
  return said;
}

// Of what is alike in all processes.
std::uint64_t hash_of(const StepInputs& inputs, const graph::ModelGraph& graph,
                      Ranks::Given given) {
  Hasher hasher;
  hasher.add(static_cast<std::uint64_t>(given));
  for (const auto& [id, value] : inputs) {
    if (given == Ranks::Given::kOwnRows && has_samples(graph, id)) continue;
    const at::Tensor host = value.cpu();
    hasher.add(std::string_view(static_cast<const char*>(host.const_data_ptr()), host.nbytes()));
  }
  return hasher.value();
}

std::uint64_t hash_of(const Job& job) {
  return terms_of(job, IdVector<DeviceId, Bytes>(job.programs.size(), 0), {}).hash;
}

class Threads final : public Ranks {
 public:
  Threads(const Job& job, const compiler::Plan& plan,
          const IdVector<DeviceId, WorkerOptions>& workers)
      : Ranks(job, plan, all_of(job)),
        recorded_(workers[DeviceId(0)].record),
        team_(job, workers) {}

  Worker& worker(DeviceId rank) override { return team_.worker(rank); }
  void set(TensorId tensor, const at::Tensor& value) override { team_.set_resident(tensor, value); }
  at::Tensor get(TensorId tensor) override {
    const std::vector<KeptRows> parts = kept_rows(job(), tensor);
    if (parts.empty()) return team_.worker(keeper_[tensor]).resident(tensor);
    std::vector<at::Tensor> rows;
    for (const KeptRows& part : parts) rows.push_back(team_.worker(part.rank).resident(tensor));
    return at::cat(rows);
  }
  at::Tensor get_where_it_speaks(TensorId tensor) override { return get(tensor); }
  std::vector<at::Tensor> gather(const at::Tensor& own) override { return {own}; }

 protected:
  void load(const Job& job) override { team_.add(job); }
  void start(std::int64_t number, const StepInputs& inputs, std::size_t job, Given /*given*/,
             const StepInputs* next) override {
    team_.launch(number, inputs, job, next);
  }
  std::vector<StepResult> end() override {
    std::vector<StepResult> results;
    for (StepResult& result : team_.finish()) {
      results.push_back(std::move(result));
    }
    return results;
  }
  std::optional<IdVector<DeviceId, RankRecord>> records() override {
    if (!recorded_) return std::nullopt;
    IdVector<DeviceId, RankRecord> records;
    for (const StepResult& result : results_) {
      records.push_back({result.start, result.duration, result.spans});
    }
    return records;
  }

 private:
  static std::vector<DeviceId> all_of(const Job& job) {
    std::vector<DeviceId> all;
    for (DeviceId rank : id_range<DeviceId>(job.programs.size())) all.push_back(rank);
    return all;
  }

  const bool recorded_;
  Team team_;
};

class OneRank final : public Ranks {
 public:
  OneRank(const Job& job, const compiler::Plan& plan, const OwnRank& own,
          const WorkerOptions& options)
      : Ranks(job, plan, {own.rank}),
        rank_(own.rank),
        transport_(own.transport),
        worker_(job, own.rank, own.transport, options) {
    if (options.record) clock_offset_ = clock_offset(transport_);
  }

  Worker& worker(DeviceId rank) override {
    ENSURE(rank == rank_);
    return worker_;
  }

  // As under DistributedDataParallel.
  void set(TensorId tensor, const at::Tensor& value) override {
    const at::Tensor first = gather(value.contiguous())[0];
    if (keeps_here(tensor)) worker_.set_resident(tensor, first);
  }

  at::Tensor get(TensorId tensor) override {
    const std::vector<KeptRows> parts = kept_rows(job(), tensor);
    if (!parts.empty()) return put_together(tensor, parts);
    const bool everywhere =
        std::all_of(job().programs.begin(), job().programs.end(),
                    [&](const Program& program) { return keeps_whole(program, tensor); });
    if (everywhere) return worker_.resident(tensor);
    const at::Tensor own = keeps_whole(job().programs[rank_], tensor)
                               ? worker_.resident(tensor).contiguous()
                               : at::zeros_like(empty(tensor));
    return gather(own)[keeper_[tensor].value()];
  }

  at::Tensor get_where_it_speaks(TensorId tensor) override {
    const std::vector<KeptRows> parts = kept_rows(job(), tensor);
    if (!parts.empty()) return send_rows(tensor, parts);
    const DeviceId first(0), from = keeper_[tensor];
    if (rank_ == from && from == first) return worker_.resident(tensor);
    if (rank_ == from)
      transport_.send(worker_.resident(tensor).contiguous(), first, tensor.value());
    if (rank_ != first) return {};
    at::Tensor value = empty(tensor);
    transport_.receive(value, from, tensor.value());
    return value;
  }

  std::vector<at::Tensor> gather(const at::Tensor& own) override {
    return transport_.gather_all(own);
  }

 protected:
  void load(const Job& job) override { worker_.add(job); }
  void start(std::int64_t number, const StepInputs& inputs, std::size_t job, Given given,
             const StepInputs* next) override {
    start_together(number, inputs, *jobs_[job].job, given);
    worker_.launch(number, inputs, job, next);
  }
  std::vector<StepResult> end() override {
    std::vector<StepResult> results;
    results.push_back(worker_.finish());
    return results;
  }

  std::optional<IdVector<DeviceId, RankRecord>> records() override {
    if (!clock_offset_) return std::nullopt;
    const StepResult& result = results_.front();
    const RankRecord own{result.start + *clock_offset_, result.duration, result.spans};
    return gather_records(*jobs_[last_job_].job, own, transport_);
  }

 private:
  static bool keeps_whole(const Program& program, TensorId tensor) {
    const SlotId slot = program.slot_of[tensor];
    return slot.valid() && !program.slots[slot].is_part();
  }
  bool keeps_here(TensorId tensor) const { return job().programs[rank_].slot_of[tensor].valid(); }

  // On every rank.
  at::Tensor put_together(TensorId tensor, const std::vector<KeptRows>& parts) {
    at::Tensor own = at::zeros_like(empty(tensor));
    for (const KeptRows& part : parts) {
      if (part.rank == rank_)
        own.narrow(0, part.begin, part.count()).copy_(worker_.resident(tensor));
    }
    const std::vector<at::Tensor> all = gather(own);
    std::vector<at::Tensor> rows;
    for (const KeptRows& part : parts) {
      rows.push_back(all[part.rank.value()].narrow(0, part.begin, part.count()));
    }
    return at::cat(rows);
  }

  // On rank 0.
  at::Tensor send_rows(TensorId tensor, const std::vector<KeptRows>& parts) {
    const DeviceId first(0);
    at::Tensor whole = rank_ == first ? empty(tensor) : at::Tensor();
    for (const KeptRows& part : parts) {
      if (part.rank == rank_ && rank_ != first) {
        transport_.send(worker_.resident(tensor).contiguous(), first, tensor.value());
      }
      if (rank_ != first) continue;
      at::Tensor place = whole.narrow(0, part.begin, part.count());
      if (part.rank == first) {
        place.copy_(worker_.resident(tensor));
      } else {
        transport_.receive(place, part.rank, tensor.value());
      }
    }
    return whole;
  }

  // Its shape and type are those of what all ranks were given: of the graph.
  at::Tensor empty(TensorId tensor) const {
    const graph::ModelGraph& graph = *job().problem->graph;
    return at::empty(sizes_at(graph.shape(tensor), 1),
                     scalar_type(graph.tensor(tensor).dtype, Floats::kOwn));
  }

  // The first time also finds data that was shuffled apart; a job's first time, that all ranks have
  // made it alike.
  void start_together(std::int64_t number, const StepInputs& inputs, const Job& job, Given given) {
    const std::int64_t batch = job.problem->batch;
    const std::uint64_t made = alike_.insert(&job).second ? hash_of(job) : 0;
    const std::uint64_t data = compared_ ? 0 : hash_of(inputs, *job.problem->graph, given);
    compared_ = true;
    const auto as_number = [](std::uint64_t bits) { return static_cast<std::int64_t>(bits); };
    const std::vector<at::Tensor> all = gather(
        at::tensor({batch, as_number(data), as_number(made), as_number(job.problem->graph->hash())},
                   at::kLong));
    const auto said = [&](std::size_t rank, std::size_t which) {
      return numbers_of<std::int64_t>(all[rank])[which];
    };
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      VALIDATE(said(rank, 0) == said(0, 0),
               "step {}: rank {} was given {} samples, and rank 0 {}; every rank is given the same "
               "whole batch",
               number, rank, said(rank, 0), said(0, 0));
      VALIDATE(said(rank, 3) == said(0, 3),
               "step {}: rank {} was given inputs of other shapes than rank 0; every rank is given "
               "the same whole batch",
               number, rank);
      VALIDATE(said(rank, 1) == said(0, 1),
               "step {}: rank {} was given another batch than rank 0; every rank is given the same "
               "whole batch, and the same learning rate",
               number, rank);
      VALIDATE(
          said(rank, 2) == said(0, 2),
          "step {}: rank {} has cut the plan for {} samples otherwise than rank 0; expected the "
          "same graph, plan and program on all ranks",
          number, rank, batch);
    }
  }

  const DeviceId rank_;
  comm::Transport& transport_;
  Worker worker_;
  std::optional<Nanoseconds> clock_offset_;  // if the worker records
  bool compared_ = false;
  // That have been compared: the first one was when the ranks met.
  std::set<const Job*> alike_{&job()};
};

}  // namespace

Ranks::Ranks(const Job& job, const compiler::Plan& plan, std::vector<DeviceId> here)
    : jobs_{JobAndPlan{&job, &plan}},
      here_(std::move(here)),
      keeper_(job.problem->graph->tensor_count()) {
  for (DeviceId rank : id_range<DeviceId>(job.programs.size())) {
    for (const Slot& slot : job.programs[rank].slots) {
      if (slot.kind != Slot::Kind::kResident) continue;
      if (!keeper_[slot.tensor].valid()) keeper_[slot.tensor] = rank;
    }
  }
}

const StepResult& Ranks::result(DeviceId rank) const {
  const auto at = std::find(here_.begin(), here_.end(), rank);
  ENSURE(at != here_.end() && results_.size() == here_.size());
  return results_[static_cast<std::size_t>(at - here_.begin())];
}

std::size_t Ranks::add(const Job& job, const compiler::Plan& plan) {
  ENSURE(job.sets == this->job().sets);
  load(job);
  jobs_.push_back({&job, &plan});
  return jobs_.size() - 1;
}

StepReport Ranks::step(std::int64_t number, const StepInputs& inputs, std::size_t job, Given given,
                       const StepInputs* next) {
  launch(number, inputs, job, given, next);
  return finish();
}

void Ranks::launch(std::int64_t number, const StepInputs& inputs, std::size_t job, Given given,
                   const StepInputs* next) {
  start(number, inputs, job, given, next);
  launched_.push_back({number, job});
}

StepReport Ranks::finish() {
  ENSURE(!launched_.empty());
  const auto [number, job] = launched_.front();
  launched_.pop_front();
  results_ = end();
  last_job_ = job;
  const Job& run_job = *jobs_[job].job;
  const graph::ModelGraph& graph = *run_job.problem->graph;
  const auto width = static_cast<std::int64_t>(Said{}.size());
  const at::Tensor own = at::empty({static_cast<std::int64_t>(here_.size()), width}, at::kDouble);
  for (std::size_t i = 0; i < here_.size(); ++i) {
    const Said said = said_of(run_job.programs[here_[i]], graph, results_[i]);
    std::copy(said.begin(), said.end(), own.data_ptr<double>() + i * said.size());
  }
  // A row a rank: addends make the loss, or wholes over their number.
  const at::Tensor all = at::cat(gather(own));
  StepReport report;
  Said sum{};
  for (std::int64_t rank = 0; rank < all.size(0); ++rank) {
    const double* said = numbers_of<double>(all) + rank * width;
    if (!std::isfinite(said[kAddend]) || !std::isfinite(said[kWhole])) {
      const DeviceId device(static_cast<std::size_t>(rank));
      throw LossNotFinite(ErrorKind::kVerification,
                          fmt::format("rank {} ({}): the loss is not a finite number in step {}",
                                      rank, run_job.problem->cluster->device(device).name, number));
    }
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += said[i];
    report.memory.push_back(memory_of(said));
    report.seconds = std::max(report.seconds, said[kSeconds]);
  }
  report.loss = sum[kHasWhole] > 0 ? sum[kWhole] / sum[kHasWhole] : sum[kAddend];
  if (const auto recorded = records())
    report.measured = merge_records(run_job, *jobs_[job].plan, *recorded);
  return report;
}

at::Tensor Ranks::output(TensorId tensor) {
  EXPECT(!results_.empty());
  const Job& job = *jobs_[last_job_].job;
  const OutputParts parts(job, tensor);
  const at::Tensor own = parts.row(here_.size());
  for (std::size_t i = 0; i < here_.size(); ++i) {
    parts.put(here_[i], results_[i].captures, own[static_cast<std::int64_t>(i)]);
  }
  return parts.whole(at::cat(gather(own)));
}

int Ranks::meet(int own) {
  int worst = own;
  for (const at::Tensor& other : gather(at::full({1}, own, at::kInt))) {
    worst = std::max(worst, other.item<int>());
  }
  return worst;
}

std::unique_ptr<Ranks> ranks_in_threads(const Job& job, const compiler::Plan& plan,
                                        const IdVector<DeviceId, WorkerOptions>& workers) {
  return std::make_unique<Threads>(job, plan, workers);
}

std::unique_ptr<Ranks> rank_among_processes(const Job& job, const compiler::Plan& plan,
                                            const OwnRank& own, const WorkerOptions& worker) {
  return std::make_unique<OneRank>(job, plan, own, worker);
}

}  // namespace heterog::runtime
