// Hashes what is run, meets the other ranks, connects.
#include "runtime/join.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"
#include "base/thread_pool.h"
#include "runtime/rank_device.h"

namespace heterog::runtime {

namespace {

template <class Id>
std::uint64_t number_of(Id id) {
  return id.valid() ? id.value() + 1 : 0;
}

std::uint64_t bits(std::int64_t number) { return static_cast<std::uint64_t>(number); }

void add(Hasher& hasher, const BodyStep& step) {
  hasher.add(static_cast<std::uint64_t>(step.kind));
  hasher.add(number_of(step.op));
  hasher.add(number_of(step.tensor));
  hasher.add(number_of(step.slot));
  hasher.add(bits(step.begin));
  hasher.add(bits(step.end));
  hasher.add(bits(step.cut.begin));
  hasher.add(bits(step.cut.count));
  hasher.add(std::bit_cast<std::uint64_t>(step.factor));
}

void add(Hasher& hasher, const Instruction& instruction) {
  hasher.add(number_of(instruction.task));
  hasher.add(static_cast<std::uint64_t>(instruction.queue));
  hasher.add(static_cast<std::uint64_t>(instruction.action));
  hasher.add(number_of(instruction.peer));
  hasher.add(instruction.set);
  hasher.add(number_of(instruction.tensor));
  hasher.add(bits(instruction.samples));
  hasher.add(bits(instruction.rows));
  hasher.add(instruction.body.size());
  for (const BodyStep& step : instruction.body) add(hasher, step);
}

void add(Hasher& hasher, const Job& job) {
  hasher.add(job.problem->graph->hash());
  hasher.add(job.problem->cluster->hash());
  hasher.add(bits(job.problem->batch));
  for (const std::vector<DeviceId>& set : job.sets) {
    hasher.add(set.size());
    for (const DeviceId device : set) hasher.add(number_of(device));
  }
  for (const Program& program : job.programs) {
    hasher.add(program.instructions.size());
    for (const Instruction& instruction : program.instructions) add(hasher, instruction);
  }
}

}  // namespace

JobTerms terms_of(const Job& job, const IdVector<DeviceId, Bytes>& peak_bytes,
                  const TermsOptions& options) {
  Hasher hasher;
  add(hasher, job);
  hasher.add(options.seed);
  for (const std::string& other : options.others) hasher.add(other);
  JobTerms terms{.hash = hasher.value(), .any_device = options.any_device};
  const cluster::Cluster& cluster = *job.problem->cluster;
  for (const DeviceId device : cluster.device_ids()) {
    const cluster::DeviceType& type = cluster.type_of(device);
    terms.ranks.push_back(
        {.device = cluster.device(device).name,
         .type = type.name,
         .needed_bytes = std::max<Bytes>(0, peak_bytes[device] - type.reserve_bytes)});
  }
  return terms;
}

Joined join(const Job& job, const JobTerms& terms, const RankPlace& place,
            std::chrono::milliseconds timeout) {
  const RankDevice own = rank_device(*job.problem->cluster, place);
  const Meeting meeting = meet(place, terms, own.facts, timeout);
  Joined joined{.rank = DeviceId(static_cast<std::size_t>(place.rank)),
                .ranks_here = meeting.ranks_here,
                .device = own.device};
  joined.transport = std::make_unique<RankTransport>(
      job, meeting,
      RankTransport::Options{.own = joined.rank, .device = own.device, .timeout = timeout});
  return joined;
}

int operator_threads(int wanted, int ranks_here) {
  if (wanted > 0) return wanted;
  return std::max(1, hardware_threads() / std::max(1, ranks_here));
}

}  // namespace heterog::runtime
