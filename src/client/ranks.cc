// Loads a plan and makes its ranks.
#include "client/ranks.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "client/process_kept.h"
#include "cluster/gpu_part.h"
#include "compiler/rescale.h"
#include "graph/graph_io.h"
#include "launch/gpus.h"
#include "launch/rank_device.h"
#include "launch/rank_place.h"
#include "runtime/kernels/infer.h"
#include "runtime/kernels/operators.h"
#include "runtime/program/job_terms.h"
#include "runtime/program/traffic.h"

namespace heterog::client {

namespace {

using runtime::WorkerOptions;

loading::LoadedPlan load_checked(const RanksOptions& options) {
  loading::LoadedPlan loaded = loading::load_plan(options.plan, options.files);
  const cluster::Cluster& cluster = *loaded.problem->cluster;
  for (const auto& [name, factor] : options.slow) {
    bool known = false;
    for (DeviceId device : cluster.place_ids()) known |= cluster.device(device).name == name;
    VALIDATE(known, "slow: no device \"{}\" in cluster {}; its first is {}", printable(name),
             cluster.name(), cluster.device(DeviceId(0)).name);
    VALIDATE(factor >= 1 && factor <= 1000,
             "slow: {} for {}; a device does its work 1 to 1000 times", factor, name);
  }
  return loaded;
}

// `ranks_here`: that share the processors of this host.
WorkerOptions worker_options(const RanksOptions& options, const cluster::Cluster& cluster,
                             DeviceId rank, int ranks_here) {
  const auto slow = options.slow.find(cluster.device(rank).name);
  return {.seed = options.seed,
          .threads = launch::operator_threads(options.threads, ranks_here,
                                              launch::rank_type(cluster, rank)),
          .repeat = slow == options.slow.end() ? 1 : slow->second};
}

launch::Joined join_job(const RanksOptions& options, const runtime::Job& job,
                        const IdVector<DeviceId, Bytes>& peak_bytes) {
  auto place = launch::read_rank_place(launch::process_environment());
  VALIDATE(place,
           "no starter says which rank this is; RANK, WORLD_SIZE, MASTER_ADDR and "
           "MASTER_PORT are set by torchrun");
  // The store of the starter still holds what the ranks of earlier jobs said.
  if (options.earlier > 0) place->attempt += fmt::format("+{}", options.earlier);
  const launch::JobTerms terms = runtime::terms_of(job, peak_bytes,
                                                   {.seed = options.seed,
                                                    .any_device = options.any_device,
                                                    .transport = options.transport,
                                                    .others = {options.terms}});
  return launch::join(terms, runtime::traffic_of(job),
                      launch::in_job(*job.problem->cluster, *place),
                      {.timeout = options.timeout, .transport = options.transport});
}

// Threads of this process, each on what the plan means it for, unless others will do too.
std::vector<launch::ThreadDevice> checked_devices(const RanksOptions& options,
                                                  const cluster::Cluster& cluster) {
  const std::vector<launch::Gpu> gpus = launch::visible_gpus();
  const std::vector<std::string> types = launch::device_types(cluster);
  std::vector<launch::ThreadDevice> devices = launch::thread_devices(cluster);
  std::map<at::DeviceIndex, std::string> taken;
  for (std::size_t i = 0; i < types.size() && !options.any_device; ++i) {
    const std::string& name = cluster.device(DeviceId(i)).name;
    const at::Device device = devices[i].device;
    const bool on_cpu = device.is_cpu();
    const auto part = cluster::part_of(types[i]);
    VALIDATE(
        !on_cpu || launch::is_cpu_type(types[i]),
        "device_info: {} is a {}, and would run on the CPU ({}): name CPUs (\"cpu:2\"), or set "
        "any_device to try a plan for other devices out here",
        name, types[i], launch::no_gpu_reason());
    if (on_cpu) continue;
    const std::string& found = gpus[static_cast<std::size_t>(device.index())].type;
    VALIDATE(found == (part ? part->gpu : types[i]),
             "device_info: {} is a {}, and would run on GPU {}, a {}; name what is here, or set "
             "any_device",
             name, types[i], device.index(), found);
    if (part) continue;  // it shares the GPU with others, which were given parts of their own
    const auto [at, is_new] = taken.try_emplace(device.index(), name);
    VALIDATE(is_new,
             "device_info: {} would run on GPU {}, as {} does: there are {} here; name as many, or "
             "set any_device to let them share",
             name, device.index(), at->second, gpus.size());
  }
  return devices;
}

// `indices`: of GPUs, -1 for a CPU, in the order of ranks.
std::vector<PlannedDevice> planned_devices(const cluster::Cluster& cluster,
                                           const std::vector<std::int64_t>& indices) {
  std::vector<PlannedDevice> devices;
  for (const DeviceId id : cluster.place_ids()) {
    const std::int64_t index = indices[id.value()];
    devices.push_back({.name = cluster.device(id).name,
                       .model = cluster.type_of(id).name,
                       .runs_on = index < 0 ? "cpu" : fmt::format("cuda:{}", index)});
  }
  return devices;
}

std::int64_t gpu_index(const at::Device& device) { return device.is_cpu() ? -1 : device.index(); }

}  // namespace

Ranks::Ranks(const RanksOptions& options, bool one_rank)
    : loaded_(load_checked(options)),
      job_(runtime::make_job(loaded_.problem, loaded_.simulated.plan,
                             loaded_.simulated.result.dispatch, {}, options.files.graph)) {
  steps_.push_back({loaded_.problem, options.files.graph, loaded_.known.smallest()});
  for (const std::string& path : options.more_graphs) {
    graph::GraphFile file = graph::read_graph_file(path);
    auto graph = std::make_shared<const graph::ModelGraph>(std::move(file.graph));
    runtime::check_operators(*graph, path);
    runtime::check_results(
        *graph, runtime::checked_batches(loaded_.problem->batch, file.known.smallest()), path);
    steps_.push_back({compiler::with_graph(*loaded_.problem, std::move(graph), path), path,
                      file.known.smallest()});
  }
  const cluster::Cluster& cluster = *loaded_.problem->cluster;
  const auto worker = [&](DeviceId rank, int ranks_here, const launch::ThreadDevice& device) {
    WorkerOptions made = worker_options(options, cluster, rank, ranks_here);
    made.device = device.device;
    made.streams = device.streams;
    return made;
  };
  if (one_rank) {
    joined_ = join_job(options, job_, loaded_.simulated.result.peak_bytes);
    ranks_ = runtime::rank_among_processes(
        job_, loaded_.simulated.plan, {joined_.rank, joined_.transport->get()},
        worker(joined_.rank, joined_.ranks_here, {.device = joined_.device}));
    const std::vector<at::Tensor> gathered =
        ranks_->gather(at::full({1}, gpu_index(joined_.device), at::kLong));
    std::vector<std::int64_t> indices;
    for (const at::Tensor& index : gathered) indices.push_back(index.item<std::int64_t>());
    devices_ = planned_devices(cluster, indices);
    return;
  }
  IdVector<DeviceId, WorkerOptions> workers;
  const std::vector<launch::ThreadDevice> devices = checked_devices(options, cluster);
  for (DeviceId rank : cluster.place_ids()) {
    workers.push_back(worker(rank, static_cast<int>(cluster.place_count()), devices[rank.value()]));
  }
  ranks_ = runtime::ranks_in_threads(job_, loaded_.simulated.plan, workers);
  std::vector<std::int64_t> indices;
  for (const launch::ThreadDevice& one : devices) indices.push_back(gpu_index(one.device));
  devices_ = planned_devices(cluster, indices);
}

bool Ranks::is_own(const Form& form) const {
  return form.graph == 0 && form.samples == loaded_.problem->batch;
}

const graph::ModelGraph& Ranks::prepare(const Form& form) {
  VALIDATE(form.graph >= 0 && static_cast<std::size_t>(form.graph) < steps_.size(),
           "graph {}: the runner has {}", form.graph, steps_.size());
  const Step& step = steps_[static_cast<std::size_t>(form.graph)];
  if (!is_own(form) && !others_.contains(form)) {
    VALIDATE(
        form.samples >= step.smallest_batch,
        "batch {}: {} is known to hold from {} samples on, the least that it was traced at; take "
        "a larger batch, or export it with smaller --batches",
        form.samples, printable(step.file, 400), step.smallest_batch);
    const auto problem = compiler::at_batch(*step.problem, form.samples);
    Other made{.plan = compiler::rescaled(*problem, loaded_.simulated.plan)};
    made.job =
        runtime::make_job(problem, made.plan, loaded_.simulated.result.dispatch, {}, step.file);
    others_.emplace(form, std::move(made));
  }
  return *step.problem->graph;
}

void Ranks::launch(std::int64_t number, const runtime::StepInputs& inputs, const Form& form,
                   runtime::Ranks::Given given) {
  const ProcessKept kept(ProcessKept::Begins::kAsCaller);
  std::size_t job = 0;
  if (!is_own(form)) {
    Other& other = others_.at(form);
    if (!other.number) other.number = ranks_->add(other.job, other.plan);
    job = *other.number;
  }
  ranks_->launch(number, inputs, job, given);
  launched_.push_back(form);
}

runtime::StepReport Ranks::finish_step() {
  const ProcessKept kept(ProcessKept::Begins::kAsCaller);
  last_step_ = launched_.front();
  launched_.pop_front();
  return ranks_->finish();
}

std::vector<runtime::SampleRange> Ranks::samples_read(const Form& form) const {
  return runtime::samples_read(is_own(form) ? job_ : others_.at(form).job, ranks_->here());
}

void Ranks::finish() {
  if (joined_.transport) joined_.transport->finish();
}

}  // namespace heterog::client
