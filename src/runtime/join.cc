// Hashes what is run, meets the other ranks, connects.
#include "runtime/join.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"
#include "base/thread_pool.h"
#include "runtime/job_fields.h"
#include "runtime/rank_device.h"

namespace heterog::runtime {

namespace {

std::uint64_t bits_of(double number) { return std::bit_cast<std::uint64_t>(number); }
template <class Tag>
std::uint64_t bits_of(Id<Tag> id) {
  return id.valid() ? std::uint64_t{id.value()} + 1 : 0;
}
template <class Number>
std::uint64_t bits_of(Number number) {
  return static_cast<std::uint64_t>(number);
}

}  // namespace

JobTerms terms_of(const Job& job, const IdVector<DeviceId, Bytes>& peak_bytes,
                  const TermsOptions& options) {
  Hasher hasher;
  visit_leaves(job, [&](const auto& leaf) { hasher.add(bits_of(leaf)); });
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
