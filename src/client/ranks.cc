// Drives a team of threads, or one worker over Gloo, on tensors that somebody else gives.
#include "client/ranks.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "runtime/rank_device.h"
#include "runtime/rank_place.h"
#include "runtime/rank_transport.h"
#include "runtime/rendezvous.h"
#include "runtime/team.h"

namespace heterog::client {

namespace {

using runtime::WorkerOptions;

// Puts the caller's number of threads back: PyTorch keeps it for the whole process.
class ThreadsKept {
 public:
  ThreadsKept() : before_(at::get_num_threads()) {}
  ~ThreadsKept() { at::set_num_threads(before_); }
  ThreadsKept(const ThreadsKept&) = delete;
  ThreadsKept& operator=(const ThreadsKept&) = delete;

 private:
  int before_;
};

loading::LoadedPlan load_checked(const RanksOptions& options) {
  loading::LoadedPlan loaded = loading::load_plan(options.plan, options.files);
  const cluster::Cluster& cluster = *loaded.problem->cluster;
  for (const auto& [name, factor] : options.slow) {
    bool known = false;
    for (DeviceId device : cluster.device_ids()) known |= cluster.device(device).name == name;
    VALIDATE(known, "slow: no device \"{}\" in cluster {}; its first is {}", printable(name),
             cluster.name(), cluster.device(DeviceId(0)).name);
    VALIDATE(factor >= 1 && factor <= 1000,
             "slow: {} for {}; a device does its work 1 to 1000 times", factor, name);
  }
  return loaded;
}

// `ranks_here`: that share the processors of this host.
WorkerOptions worker_options(const RanksOptions& options, const std::string& device,
                             int ranks_here) {
  const int share = std::max(1, hardware_threads() / std::max(1, ranks_here));
  const auto slow = options.slow.find(device);
  return {.seed = options.seed,
          .threads = options.threads > 0 ? options.threads : share,
          .repeat = slow == options.slow.end() ? 1 : slow->second};
}

class Threads final : public Ranks {
 public:
  Threads(const RanksOptions& options, loading::LoadedPlan loaded)
      : Ranks(options, std::move(loaded)), team_(job_, team_options(options)) {}

  int rank() const override { return 0; }
  void set(TensorId tensor, const at::Tensor& value) override { team_.set_resident(tensor, value); }
  at::Tensor get(TensorId tensor) override {
    return team_.worker(keeper_[tensor]).resident(tensor);
  }

  StepReport step(std::int64_t number, const runtime::StepInputs& inputs) override {
    const ThreadsKept threads;
    const auto results = team_.step(number, inputs);
    StepReport report;
    std::vector<std::vector<double>> parts;
    for (DeviceId rank : id_range<DeviceId>(results.size())) {
      report.seconds = std::max(report.seconds, to_seconds(results[rank].duration));
      parts.push_back(runtime::loss_part(job_.programs[rank], graph(), results[rank]));
    }
    report.loss = whole_loss(number, parts);
    return report;
  }

  int meet(int own) override { return own; }
  void finish() override {}

 private:
  IdVector<DeviceId, WorkerOptions> team_options(const RanksOptions& options) const {
    IdVector<DeviceId, WorkerOptions> team;
    const int count = static_cast<int>(job_.programs.size());
    const auto devices = runtime::thread_devices(*loaded_.problem->cluster);
    for (DeviceId device : id_range<DeviceId>(job_.programs.size())) {
      WorkerOptions worker = worker_options(options, device_name(device), count);
      worker.device = devices[device.value()];
      team.push_back(worker);
    }
    return team;
  }

  runtime::Team team_;
};

// All that must be the same for ranks to run the same steps.
runtime::JobTerms terms_of(const loading::LoadedPlan& loaded, const RanksOptions& options) {
  const cost::Problem& problem = *loaded.problem;
  Hasher hasher;
  hasher.add(read_file(options.plan));
  hasher.add(problem.graph->hash());
  hasher.add(problem.cluster->hash());
  hasher.add(static_cast<std::uint64_t>(problem.batch));
  hasher.add(options.seed);
  hasher.add(options.files.collectives);
  hasher.add(options.terms);
  for (const std::string& profile : options.files.profiles) hasher.add(read_file(profile));
  runtime::JobTerms terms{.hash = hasher.value(), .any_device = options.any_device};
  for (const DeviceId device : problem.cluster->device_ids()) {
    const cluster::DeviceType& type = problem.cluster->type_of(device);
    const Bytes peak = loaded.simulated.result.peak_bytes[device];
    terms.ranks.push_back({.device = problem.cluster->device(device).name,
                           .type = type.name,
                           .needed_bytes = std::max<Bytes>(0, peak - type.reserve_bytes)});
  }
  return terms;
}

std::uint64_t hash_of(const runtime::StepInputs& inputs) {
  Hasher hasher;
  for (const auto& [id, value] : inputs) {
    hasher.add(std::string_view(static_cast<const char*>(value.const_data_ptr()), value.nbytes()));
  }
  return hasher.value();
}

class OneRank final : public Ranks {
 public:
  OneRank(const RanksOptions& options, loading::LoadedPlan loaded, const runtime::RankPlace& place,
          runtime::Meeting meeting, at::Device device)
      : Ranks(options, std::move(loaded)),
        rank_(static_cast<std::size_t>(place.rank)),
        meeting_(std::move(meeting)),
        ways_(job_, meeting_, {.own = rank_, .device = device, .timeout = options.timeout}),
        transport_(ways_.get()),
        worker_(job_, rank_, transport_, own_options(options, device)) {}

  int rank() const override { return static_cast<int>(rank_.value()); }

  // All ranks begin with what rank 0 gives, as under DistributedDataParallel.
  void set(TensorId tensor, const at::Tensor& value) override {
    const at::Tensor first = transport_.gather_all(value.contiguous())[0];
    if (job_.programs[rank_].slot_of[tensor].valid()) worker_.set_resident(tensor, first);
  }

  at::Tensor get(TensorId tensor) override {
    if (everywhere(tensor)) return worker_.resident(tensor);
    const bool here = job_.programs[rank_].slot_of[tensor].valid();
    const graph::Tensor& info = graph().tensor(tensor);
    const at::Tensor own = here
                               ? worker_.resident(tensor).contiguous()
                               : at::zeros(runtime::sizes_at(graph().shape(tensor), 1),
                                           runtime::scalar_type(info.dtype, runtime::Floats::kOwn));
    return transport_.gather_all(own)[keeper_[tensor].value()];
  }

  StepReport step(std::int64_t number, const runtime::StepInputs& inputs) override {
    const ThreadsKept threads;
    start_together(number, inputs);
    const runtime::StepResult result = worker_.step(number, inputs);
    std::vector<double> own = runtime::loss_part(job_.programs[rank_], graph(), result);
    own.push_back(to_seconds(result.duration));
    StepReport report;
    std::vector<std::vector<double>> parts;
    for (const at::Tensor& other : transport_.gather_all(at::tensor(own, at::kDouble))) {
      const double* numbers = other.const_data_ptr<double>();
      parts.emplace_back(numbers, numbers + other.numel() - 1);
      report.seconds = std::max(report.seconds, numbers[other.numel() - 1]);
    }
    report.loss = whole_loss(number, parts);
    return report;
  }

  int meet(int own) override {
    int worst = own;
    for (const at::Tensor& other : transport_.gather_all(at::tensor(own, at::kInt))) {
      worst = std::max(worst, other.item<int>());
    }
    return worst;
  }

  void finish() override { ways_.finish(); }

 private:
  WorkerOptions own_options(const RanksOptions& options, at::Device device) const {
    WorkerOptions own = worker_options(options, device_name(rank_), meeting_.ranks_here);
    own.device = device;
    return own;
  }

  bool everywhere(TensorId tensor) const {
    return std::all_of(
        job_.programs.begin(), job_.programs.end(),
        [&](const runtime::Program& program) { return program.slot_of[tensor].valid(); });
  }

  // The first time also finds data loaders that were shuffled apart.
  void start_together(std::int64_t number, const runtime::StepInputs& inputs) {
    const auto own = static_cast<std::int64_t>(compared_ ? 0 : hash_of(inputs));
    compared_ = true;
    const std::vector<at::Tensor> all = transport_.gather_all(at::tensor(own, at::kLong));
    for (std::size_t i = 0; i < all.size(); ++i) {
      VALIDATE(all[i].item<std::int64_t>() == all[0].item<std::int64_t>(),
               "step {}: rank {} was given another batch than rank 0; every rank is given the same "
               "whole batch, and the same learning rate",
               number, i);
    }
  }

  const DeviceId rank_;
  const runtime::Meeting meeting_;
  runtime::RankTransport ways_;
  runtime::Transport& transport_;
  runtime::Worker worker_;
  bool compared_ = false;
};

}  // namespace

Ranks::Ranks(const RanksOptions& options, loading::LoadedPlan loaded)
    : loaded_(std::move(loaded)),
      job_(runtime::make_job(loaded_.problem, loaded_.simulated.plan,
                             loaded_.simulated.result.dispatch, {}, options.files.graph)),
      keeper_(graph().tensor_count()) {
  for (DeviceId device : id_range<DeviceId>(job_.programs.size())) {
    for (const runtime::Slot& slot : job_.programs[device].slots) {
      if (slot.kind != runtime::Slot::Kind::kResident) continue;
      if (!keeper_[slot.tensor].valid()) keeper_[slot.tensor] = device;
    }
  }
}

const std::string& Ranks::device_name(DeviceId rank) const {
  return loaded_.problem->cluster->device(rank).name;
}

double Ranks::whole_loss(std::int64_t step, const std::vector<std::vector<double>>& parts) const {
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const bool finite = std::all_of(parts[rank].begin(), parts[rank].end(),
                                    [](double part) { return std::isfinite(part); });
    if (finite) continue;
    throw Error(ErrorKind::kVerification,
                fmt::format("rank {} ({}): the loss is not a finite number in step {}", rank,
                            device_name(DeviceId(rank)), step));
  }
  return runtime::loss_of_parts(parts);
}

std::unique_ptr<Ranks> make_threads(const RanksOptions& options) {
  return std::make_unique<Threads>(options, load_checked(options));
}

std::unique_ptr<Ranks> make_one_rank(const RanksOptions& options) {
  auto place = runtime::read_rank_place(runtime::process_environment());
  VALIDATE(place,
           "no starter says which rank this is; RANK, WORLD_SIZE, MASTER_ADDR and "
           "MASTER_PORT are set by torchrun");
  // The store of the starter still holds what the ranks of earlier jobs said.
  if (options.earlier > 0) place->attempt += fmt::format("+{}", options.earlier);
  loading::LoadedPlan loaded = load_checked(options);
  const runtime::RankDevice own = runtime::rank_device(*loaded.problem->cluster, *place);
  runtime::Meeting meeting =
      runtime::meet(*place, terms_of(loaded, options), own.facts, options.timeout);
  return std::make_unique<OneRank>(options, std::move(loaded), *place, std::move(meeting),
                                   own.device);
}

}  // namespace heterog::client
