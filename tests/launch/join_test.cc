// The way into a job, for those who run the same.
#include "launch/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/threads.h"
#include "launch/places.h"
#include "launch/rank_device.h"

namespace heterog::launch {
namespace {

using comm::kHasty;
using comm::kPatient;
using comm::run_threads;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

JobTerms two_processors(std::uint64_t hash) {
  JobTerms terms{.hash = hash, .any_device = true};
  for (const char* name : {"a/cpu0", "a/cpu1"}) {
    terms.ranks.push_back({.device = name, .type = "CPU", .needed_bytes = 1000});
  }
  return terms;
}

TEST(Join, ConnectsThoseOfOneJob) {
  const comm::Traffic traffic{.sets = {comm::everyone(2)}};
  const auto at = places(2);
  const auto errors = run_threads(2, [&](int rank) {
    const Joined joined = join(two_processors(1), traffic, at[rank], {.timeout = kPatient});
    EXPECT_EQ(joined.rank, DeviceId(static_cast<std::size_t>(rank)));
    EXPECT_EQ(joined.ranks_here, 2);
    at::Tensor value = at::full({3}, rank + 1.0);
    joined.transport->get().all_reduce(value, 0);
    EXPECT_EQ(value.sum().item<double>(), 9);
    joined.transport->finish();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Join, RefusesThoseOfAnother) {
  const auto at = places(2);
  const auto errors = run_threads(2, [&](int rank) {
    join(two_processors(rank == 0 ? 1 : 2), {}, at[rank], {.timeout = kHasty});
  });
  EXPECT_THAT(errors[1], HasSubstr("refused"));
  EXPECT_THAT(errors[0], HasSubstr("did not come"));
}

TEST(OperatorThreads, AreAsWantedOrAShare) {
  EXPECT_EQ(operator_threads(3, 100), 3);
  EXPECT_EQ(operator_threads(0, 1 << 20), 1);
  EXPECT_GE(operator_threads(0, 1), operator_threads(0, 2));
}

}  // namespace
}  // namespace heterog::launch
