// Loads a plan and makes its ranks.
#include "client/ranks.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "runtime/rank_device.h"
#include "runtime/rank_place.h"

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
  const auto slow = options.slow.find(device);
  return {.seed = options.seed,
          .threads = runtime::operator_threads(options.threads, ranks_here),
          .repeat = slow == options.slow.end() ? 1 : slow->second};
}

runtime::Joined join_job(const RanksOptions& options, const runtime::Job& job,
                         const IdVector<DeviceId, Bytes>& peak_bytes) {
  auto place = runtime::read_rank_place(runtime::process_environment());
  VALIDATE(place,
           "no starter says which rank this is; RANK, WORLD_SIZE, MASTER_ADDR and "
           "MASTER_PORT are set by torchrun");
  // The store of the starter still holds what the ranks of earlier jobs said.
  if (options.earlier > 0) place->attempt += fmt::format("+{}", options.earlier);
  const runtime::JobTerms terms = runtime::terms_of(
      job, peak_bytes,
      {.seed = options.seed, .any_device = options.any_device, .others = {options.terms}});
  return runtime::join(job, terms, *place, options.timeout);
}

}  // namespace

Ranks::Ranks(const RanksOptions& options, bool one_rank)
    : loaded_(load_checked(options)),
      job_(runtime::make_job(loaded_.problem, loaded_.simulated.plan,
                             loaded_.simulated.result.dispatch, {}, options.files.graph)) {
  const cluster::Cluster& cluster = *loaded_.problem->cluster;
  const auto worker = [&](DeviceId rank, int ranks_here, at::Device device) {
    WorkerOptions made = worker_options(options, cluster.device(rank).name, ranks_here);
    made.device = device;
    return made;
  };
  if (one_rank) {
    joined_ = join_job(options, job_, loaded_.simulated.result.peak_bytes);
    ranks_ = runtime::rank_among_processes(
        job_, loaded_.simulated.plan, {joined_.rank, joined_.transport->get()},
        worker(joined_.rank, joined_.ranks_here, joined_.device));
    return;
  }
  IdVector<DeviceId, WorkerOptions> workers;
  const auto devices = runtime::thread_devices(cluster);
  for (DeviceId rank : cluster.device_ids()) {
    workers.push_back(
        worker(rank, static_cast<int>(cluster.device_count()), devices[rank.value()]));
  }
  ranks_ = runtime::ranks_in_threads(job_, loaded_.simulated.plan, workers);
}

runtime::StepReport Ranks::step(std::int64_t number, const runtime::StepInputs& inputs) {
  const ThreadsKept threads;
  return ranks_->step(number, inputs);
}

void Ranks::finish() {
  if (joined_.transport) joined_.transport->finish();
}

}  // namespace heterog::client
