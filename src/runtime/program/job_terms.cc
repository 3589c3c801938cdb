// Hashes what is run, and names what it is to run on.
#include "runtime/program/job_terms.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"
#include "runtime/program/job_fields.h"

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

launch::JobTerms terms_of(const Job& job, const IdVector<DeviceId, Bytes>& peak_bytes,
                          const TermsOptions& options) {
  Hasher hasher;
  visit_leaves(job, [&](const auto& leaf) { hasher.add(bits_of(leaf)); });
  hasher.add(options.seed);
  hasher.add(options.transport);
  for (const std::string& other : options.others) hasher.add(other);
  launch::JobTerms terms{.hash = hasher.value(), .any_device = options.any_device};
  const cluster::Cluster& cluster = *job.problem->cluster;
  for (const DeviceId device : cluster.place_ids()) {
    const cluster::DeviceType& type = cluster.type_of(device);
    terms.ranks.push_back(
        {.device = cluster.device(device).name,
         .type = launch::rank_type(cluster, device),
         .needed_bytes = std::max<Bytes>(0, peak_bytes[device] - type.reserve_bytes)});
  }
  return terms;
}

}  // namespace heterog::runtime
