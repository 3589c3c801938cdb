// Counts the GPUs of the ranks before.
#include "launch/rank_device.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/check.h"
#include "base/thread_pool.h"
#include "cluster/gpu_part.h"

namespace heterog::launch {
namespace {

bool is_gpu(const std::string& type) { return !is_cpu_type(type); }

c10::Device nth_gpu(std::size_t position, std::size_t count) {
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(position % count)};
}

}  // namespace

std::vector<std::string> device_types(const cluster::Cluster& cluster) {
  std::vector<std::string> types;
  for (const DeviceId rank : cluster.place_ids()) types.push_back(rank_type(cluster, rank));
  return types;
}

RankDevice rank_device(const std::vector<std::string>& types, const RankPlace& place,
                       const std::vector<Gpu>& gpus) {
  const auto rank = static_cast<std::size_t>(place.rank);
  const auto local = static_cast<std::size_t>(place.local_rank);
  VALIDATE(rank < types.size(),
           "{} starts {} ranks, the plan's cluster has {} devices; each device "
           "is a rank",
           place.starter, place.world_size, types.size());
  RankDevice chosen{.facts = cpu_facts()};
  if (!is_gpu(types[rank])) return chosen;
  if (gpus.empty()) {
    chosen.facts.note = no_gpu_reason();
    return chosen;
  }
  VALIDATE(!cluster::part_of(types[rank]),
           "rank {} is a part of a GPU ({}); ranks on parts are threads of one process: give "
           "--in-threads",
           rank, types[rank]);
  std::size_t position = local;
  if (!std::all_of(types.begin(), types.end(), is_gpu)) {
    const auto end = types.begin() + place.rank;
    position = static_cast<std::size_t>(
        std::count_if(end - static_cast<std::ptrdiff_t>(std::min(local, rank)), end, is_gpu));
  }
  chosen.device = nth_gpu(position, gpus.size());
  const Gpu& gpu = gpus[static_cast<std::size_t>(chosen.device.index())];
  chosen.facts.type = gpu.type;
  chosen.facts.memory_bytes = gpu.memory_bytes;
  chosen.facts.shares = chosen.facts.gpu = gpu.id;
  if (place.nccl_on_one_gpu) chosen.facts.gpu += "/" + std::to_string(place.rank);
  return chosen;
}

RankDevice rank_device(const JobTerms& terms, const RankPlace& place) {
  std::vector<std::string> types;
  for (const JobTerms::Rank& rank : terms.ranks) types.push_back(rank.type);
  RankDevice chosen = rank_device(types, place, visible_gpus());
  if (!chosen.device.is_cpu()) {
    chosen.facts.memory_bytes = free_memory(static_cast<std::size_t>(chosen.device.index()));
  }
  return chosen;
}

std::vector<ThreadDevice> thread_devices(const std::vector<std::string>& types,
                                         const std::vector<Gpu>& gpus) {
  std::vector<ThreadDevice> devices;
  std::size_t position = 0;  // of the next GPU
  cluster::OpenGpu open;
  for (const std::string& type : types) {
    const auto part = cluster::part_of(type);
    ThreadDevice& own = devices.emplace_back();
    if (part) own.multiprocessors = part->multiprocessors;
    if (!is_gpu(type) || gpus.empty()) continue;
    if (!part) {
      open.close();
      own.device = nth_gpu(position++, gpus.size());
      continue;
    }
    const Gpu& next = gpus[position % gpus.size()];
    if (!open.takes(*part, next.multiprocessors)) ++position;
    own.device = nth_gpu(position - 1, gpus.size());
  }
  return devices;
}

std::vector<ThreadDevice> thread_devices(const cluster::Cluster& cluster) {
  std::vector<ThreadDevice> devices = thread_devices(device_types(cluster), visible_gpus());
  std::map<c10::DeviceIndex, std::vector<ThreadDevice*>> parts;
  for (ThreadDevice& one : devices) {
    if (one.multiprocessors > 0 && !one.device.is_cpu()) parts[one.device.index()].push_back(&one);
  }
  for (const auto& [index, of_gpu] : parts) {
    std::vector<int> multiprocessors;
    for (const ThreadDevice* one : of_gpu) multiprocessors.push_back(one->multiprocessors);
    const std::vector<PartStreams> streams =
        streams_of_parts(of_gpu.front()->device, multiprocessors);
    for (std::size_t i = 0; i < of_gpu.size(); ++i) of_gpu[i]->streams = streams[i];
  }
  return devices;
}

int operator_threads(int wanted, int ranks_here, const std::string& type) {
  if (wanted > 0) return wanted;
  if (const auto part = cluster::part_of(type)) return part->multiprocessors;
  return std::max(1, hardware_threads() / std::max(1, ranks_here));
}

}  // namespace heterog::launch
