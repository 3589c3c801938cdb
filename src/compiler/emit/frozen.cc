// Buckets of frozen tensors, and the all-gathers that make them whole.
#include "compiler/emit/frozen.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "compiler/emit/gather_frozen.h"
#include "compiler/emit/shards.h"
#include "compiler/emit/sums.h"

namespace heterog::compiler {
namespace {

// How many instances of its device come before it.
std::size_t round_of(const Emission& e, const Reader& reader, DeviceId device) {
  const InstancesByDevice& here = e.where.instances_by_device();
  std::size_t round = 0;
  for (std::uint32_t i = here.first(reader.layout, device); i != reader.instance;
       i = here.next(reader.layout, i)) {
    ++round;
  }
  return round;
}

std::size_t place_of(const decide::ParameterHome& home, DeviceId device) {
  return static_cast<std::size_t>(std::ranges::lower_bound(home.replicas, device) -
                                  home.replicas.begin());
}

// All that reads what was gathered two before in the same round, if that has been emitted.
std::vector<TaskId> readers_of_two_before(const Emission& e, const FrozenBucket& bucket,
                                          std::size_t round) {
  if (bucket.two_before == FrozenBucket::kNone) return {};
  const FrozenBucket& before = e.frozen.buckets[bucket.two_before];
  const FrozenGather& gather = before.gathers[round];
  std::vector<TaskId> readers;
  for (TaskId reader : gather.latest_reader) {
    if (reader.valid()) readers.push_back(reader);
  }
  return readers;
}

void emit_gather(Emission& e, const Reader& reader, FrozenBucket& bucket, std::size_t round) {
  const std::vector<TensorId>& tensors = bucket.tensors;
  const TensorId first = tensors.front();
  const std::vector<DeviceId>& devices = e.layout.home(first).replicas;
  const TaskId task = add_collective(e, TaskKind::kAllGather, first, devices,
                                     e.costs.all_gather(devices, gathered_bytes(e, tensors)),
                                     bucket.bytes, reader.op);
  for (TensorId tensor : tensors) e.builder.carry(task, {tensor});
  contribute_rows(e, task, tensors);
  for (TaskId before : readers_of_two_before(e, bucket, round)) e.builder.depend(before, task);
  FrozenGather& gather = bucket.gathers[round];
  gather.task = task;
  gather.latest_reader.assign(devices.size(), TaskId());
  for (DeviceId device : devices) {
    // Several lie side by side while they travel.
    if (tensors.size() > 1) e.builder.allocate(task, device, bucket.bytes, first);
    gather.whole.push_back(e.builder.allocate(task, device, bucket.bytes, first));
  }
}

}  // namespace

FrozenGathers::FrozenGathers(const cost::Problem& problem, const decide::Layout& layout,
                             const decide::Recomputation& recomputation) {
  const std::vector<decide::PassUse> uses = decide::uses_of_frozen(problem, layout, recomputation);
  if (uses.empty()) return;
  for (auto& of_pass : bucket_of)
    of_pass.assign(problem.graph->tensor_count(), FrozenBucket::kNone);
  Bytes all = 0;
  for (TensorId tensor : layout.gathered) all += problem.graph->bytes(tensor, 1);
  const Bytes enough = std::min(kFrozenTogether, all / kFrozenParts);
  // Of each set of devices and number of rounds: those it uses, in their order. Of these and each
  // pass: the one that is open.
  std::map<std::pair<std::vector<DeviceId>, std::size_t>, std::vector<std::uint32_t>> used;
  std::map<std::tuple<std::vector<DeviceId>, decide::Pass, std::size_t>, std::uint32_t> open;
  for (const decide::PassUse& use : uses) {
    const std::vector<DeviceId>& devices = layout.home(use.tensor).replicas;
    const auto [at, is_new] =
        open.try_emplace({devices, use.pass, use.rounds}, FrozenBucket::kNone);
    if (is_new || buckets[at->second].bytes >= enough) {
      at->second = static_cast<std::uint32_t>(buckets.size());
      FrozenBucket& bucket = buckets.emplace_back();
      bucket.pass = use.pass;
      bucket.rounds = use.rounds;
      bucket.gathers.resize(use.rounds);
      std::vector<std::uint32_t>& line = used[{devices, use.rounds}];
      if (line.size() >= 2) bucket.two_before = line[line.size() - 2];
      line.push_back(at->second);
    }
    FrozenBucket& bucket = buckets[at->second];
    bucket.tensors.push_back(use.tensor);
    bucket.bytes += problem.graph->bytes(use.tensor, 1);
    bucket_of[static_cast<std::size_t>(use.pass)][use.tensor] = at->second;
  }
  for (auto& [where, line] : used) lines.push_back(std::move(line));
}

Source whole_frozen(Emission& e, const Reader& reader, TensorId tensor, DeviceId device) {
  FrozenBucket& bucket = e.frozen.bucket(tensor);
  const std::size_t round = round_of(e, reader, device);
  if (!bucket.gathers[round].task.valid()) emit_gather(e, reader, bucket, round);
  const FrozenGather& gather = bucket.gathers[round];
  return {gather.task, gather.whole[place_of(e.layout.home(tensor), device)]};
}

std::vector<std::pair<TaskId, TaskId>> waits_between_rounds(const Emission& e,
                                                            decide::Pattern pattern) {
  std::vector<std::pair<TaskId, TaskId>> waits;
  for (const std::vector<std::uint32_t>& line : e.frozen.lines) {
    std::vector<const FrozenBucket*> forward, ending;
    for (std::uint32_t at : line) {
      const FrozenBucket& bucket = e.frozen.buckets[at];
      const bool is_forward = bucket.pass == decide::Pass::kForward;
      if (is_forward) forward.push_back(&bucket);
      if (is_forward || pattern == decide::Pattern::kDepthFirst) ending.push_back(&bucket);
    }
    for (std::size_t i = 0; i < std::min<std::size_t>(2, forward.size()); ++i) {
      const FrozenBucket& last = *ending[ending.size() - (ending.size() > 1 ? 2 - i : 1)];
      for (std::size_t round = 1; round < last.rounds; ++round) {
        const TaskId gather = forward[i]->gathers[round].task;
        for (TaskId reader : last.gathers[round - 1].latest_reader) {
          if (gather.valid() && reader.valid()) waits.emplace_back(reader, gather);
        }
      }
    }
  }
  return waits;
}

void note_frozen_reader(Emission& e, const Reader& reader, TensorId tensor, TaskId task) {
  const DeviceId device = e.layout.slices[reader.layout][reader.instance].device;
  FrozenGather& gather = e.frozen.bucket(tensor).gathers[round_of(e, reader, device)];
  gather.latest_reader[place_of(e.layout.home(tensor), device)] = task;
}

}  // namespace heterog::compiler
