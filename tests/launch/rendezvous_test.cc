// Ranks that meet over TCP on the loopback address, as threads: who is let in, and what is said.
#include "launch/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "comm/network.h"
#include "comm/tcp_transport.h"
#include "comm/threads.h"
#include "launch/places.h"

namespace heterog::launch {
namespace {

using comm::everyone;
using comm::kHasty;
using comm::kPatient;
using comm::run_threads;
using comm::with_patience;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

JobTerms terms_of(int ranks) {
  JobTerms terms{.hash = 0x1234};
  for (int rank = 0; rank < ranks; ++rank) {
    terms.ranks.push_back({.device = "a/cpu" + std::to_string(rank), .type = "CPU"});
  }
  return terms;
}

RankFacts facts_of(Bytes memory = 1000) {
  return {.type = "CPU", .memory_bytes = memory, .host = "a", .shares = "a"};
}

// Rank 0, which serves the store, stays until all have met.
void serve_until_met(const Meeting& meeting, const RankPlace& place) {
  meeting.store.add("met", 1);
  while (place.rank == 0 && meeting.store.add("met", 0) < place.world_size) {
    std::this_thread::yield();
  }
}

TEST(Rendezvous, LetsRanksTalk) {
  constexpr int kRanks = 3;
  const JobTerms terms = terms_of(kRanks);
  const auto at = places(kRanks);
  const auto errors = run_threads(kRanks, [&](int rank) {
    const Meeting meeting = meet(at[rank], terms, facts_of(), kPatient);
    EXPECT_EQ(meeting.address, "127.0.0.1");
    comm::TcpTransport transport(meeting.store, DeviceId(static_cast<std::size_t>(rank)),
                                 {.connect = {.device_names = device_names(terms),
                                              .address = meeting.address,
                                              .timeout = kPatient},
                                  .sets = {everyone(kRanks)}});
    at::Tensor value = at::full({100}, rank + 1.0);
    transport.all_reduce(value, 0);
    EXPECT_EQ(value.max().item<double>(), 6);
    EXPECT_EQ(value.min().item<double>(), 6);
    transport.finish();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Rendezvous, NamesTheMissing) {
  const JobTerms terms = terms_of(4);
  with_patience([&](std::chrono::milliseconds patience) {
    const auto at = places(4);
    const auto errors = run_threads(2, [&](int rank) {
      meet(at[2 * rank], terms, facts_of(), rank == 0 ? patience : 2 * patience);
    });
    if (errors[0].find("rank 2 (a/cpu2)") != std::string::npos) return false;
    EXPECT_THAT(errors,
                Each(AllOf(StartsWith("rank 1 (a/cpu1), rank 3 (a/cpu3): did not all come"),
                           HasSubstr(fmt::format("within {} s", comm::seconds_of(patience))))));
    return true;
  });
}

TEST(Rendezvous, NamesRankZeroWhereNobodyServes) {
  const JobTerms terms = terms_of(2);
  auto at = places(2);
  close(*at[0].listen_socket);
  const auto errors = run_threads(1, [&](int) { meet(at[1], terms, facts_of(), kHasty); });
  EXPECT_THAT(errors[0], AllOf(StartsWith("rank 0 (a/cpu0): not reached at 127.0.0.1:"),
                               HasSubstr("within 0.6 s")));
}

// The kernel accepts connections for a process that is stopped.
TEST(Rendezvous, NamesRankZeroThatDoesNotAnswer) {
  const JobTerms terms = terms_of(2);
  const auto at = places(2);
  const auto errors = run_threads(1, [&](int) { meet(at[1], terms, facts_of(), kHasty); });
  EXPECT_THAT(errors[0], AllOf(StartsWith("rank 0 (a/cpu0): not reached at 127.0.0.1:"),
                               HasSubstr("does not answer")));
  close(*at[0].listen_socket);
}

TEST(Rendezvous, RefusesARankOfAnotherJob) {
  const JobTerms terms = terms_of(2);
  JobTerms other = terms;
  other.hash = 0x5678;
  with_patience([&](std::chrono::milliseconds patience) {
    const auto at = places(2);
    ErrorKind kind = ErrorKind::kBug;
    const auto errors = run_threads(2, [&](int rank) {
      try {
        meet(at[rank], rank == 0 ? terms : other, facts_of(), patience);
      } catch (const Error& error) {
        if (rank == 1) kind = error.kind();
        throw;
      }
    });
    EXPECT_THAT(errors[0], StartsWith("rank 1 (a/cpu1): did not come"));
    if (errors[0].find("refused") == std::string::npos) return false;
    EXPECT_EQ(kind, ErrorKind::kInput);
    EXPECT_THAT(errors[1], AllOf(StartsWith("rank 1 (a/cpu1): refused"),
                                 HasSubstr("0000000000005678"), HasSubstr("0000000000001234")));
    EXPECT_THAT(errors[0], AllOf(HasSubstr("0000000000005678"), HasSubstr("0000000000001234")))
        << "the one that waits says who came instead";
    return true;
  });
}

// The stranger is sent away, the job goes on with the rank that comes after it.
TEST(Rendezvous, GoesOnAfterAStranger) {
  const JobTerms terms = terms_of(2);
  JobTerms other = terms;
  other.hash = 0x5678;
  const auto at = places(2);
  std::string stranger;
  const auto errors = run_threads(2, [&](int rank) {
    if (rank == 1) {
      try {
        meet(at[1], other, facts_of(), kPatient);
      } catch (const Error& error) {
        stranger = error.what();
      }
    }
    serve_until_met(meet(at[rank], terms, facts_of(), kPatient), at[rank]);
  });
  EXPECT_THAT(stranger, HasSubstr("refused"));
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Rendezvous, RefusesASecondProcessOfARank) {
  const JobTerms terms = terms_of(2);
  const auto at = places(2);
  std::atomic<bool> refused = false;
  const auto errors = run_threads(3, [&](int thread) {
    RankFacts facts = facts_of();
    if (thread == 2) {  // comes while the first two wait for each other
      facts.host = "b";
      const auto store = comm::connect_store({.host = "127.0.0.1",
                                              .port = at[0].master_port,
                                              .server = "rank 0",
                                              .timeout = kPatient});
      while (!store.under("heterog").find("hello/1")) std::this_thread::yield();
      try {
        meet(at[1], terms, facts, kPatient);
      } catch (const Error&) {
        refused = true;
        throw;
      }
    }
    const Meeting meeting = meet(at[thread], terms, facts, kPatient);
    while (!refused) std::this_thread::yield();
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
  EXPECT_THAT(errors[2],
              AllOf(StartsWith("rank 1 (a/cpu1): is already run by process"), HasSubstr("on a")));
}

TEST(Rendezvous, ChecksTheNumberOfRanks) {
  const auto at = places(3);
  close(*at[0].listen_socket);
  const auto errors = run_threads(1, [&](int) { meet(at[0], terms_of(2), facts_of(), kHasty); });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("3 ranks"), HasSubstr("2 devices")));
}

TEST(Rendezvous, ChecksTheTypeOfDevices) {
  JobTerms terms = terms_of(2);
  terms.ranks[1].type = "V100-PCIE-16GB";
  auto at = places(2);
  auto errors = run_threads(2, [&](int rank) { meet(at[rank], terms, facts_of(), kPatient); });
  EXPECT_THAT(errors,
              Each(AllOf(StartsWith("rank 1 (a/cpu1): is a CPU"), HasSubstr("V100-PCIE-16GB"))));
  terms.any_device = true;
  at = places(2);
  errors = run_threads(2, [&](int rank) {
    const Meeting meeting = meet(at[rank], terms, facts_of(), kPatient);
    serve_until_met(meeting, at[rank]);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Two ranks of one host share its memory; ranks of two hosts do not.
TEST(Rendezvous, ChecksMemory) {
  JobTerms terms = terms_of(2);
  for (JobTerms::Rank& rank : terms.ranks) rank.needed_bytes = 700'000'000;
  auto at = places(2);
  auto errors =
      run_threads(2, [&](int rank) { meet(at[rank], terms, facts_of(1'000'000'000), kPatient); });
  EXPECT_THAT(errors, Each(AllOf(StartsWith("rank 1 (a/cpu1): a has 1.00 GB of memory"),
                                 HasSubstr("1.40 GB"))));
  at = places(2);
  errors = run_threads(2, [&](int rank) {
    RankFacts facts = facts_of(1'000'000'000);
    if (rank == 1) facts.host = facts.shares = "b";
    const Meeting meeting = meet(at[rank], terms, facts, kPatient);
    serve_until_met(meeting, at[rank]);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

RankFacts gpu_facts(const std::string& gpu) {
  return {.type = "T4", .memory_bytes = 1'000'000'000, .host = "a", .shares = gpu, .gpu = gpu};
}

// Each device of the plan is a GPU of its own, unless any device will do.
TEST(Rendezvous, RefusesTwoRanksOnOneGpu) {
  JobTerms terms = terms_of(2);
  for (JobTerms::Rank& rank : terms.ranks) rank.type = "T4";
  auto at = places(2);
  auto errors = run_threads(2, [&](int rank) { meet(at[rank], terms, gpu_facts("x"), kPatient); });
  EXPECT_THAT(errors, Each(AllOf(StartsWith("rank 1 (a/cpu1): has the GPU on a that rank 0"),
                                 HasSubstr("--any-device"))));
  terms.any_device = true;
  at = places(2);
  errors = run_threads(2, [&](int rank) {
    const Meeting meeting = meet(at[rank], terms, gpu_facts("x"), kPatient);
    EXPECT_THAT(meeting.gpus, Each("x"));
    EXPECT_EQ(meeting.ranks_here, 2);
    meeting.store.add("met", 1);
    while (rank == 0 && meeting.store.add("met", 0) < 2) std::this_thread::yield();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  for (JobTerms::Rank& rank : terms.ranks) rank.needed_bytes = 700'000'000;
  at = places(2);
  errors = run_threads(2, [&](int rank) { meet(at[rank], terms, gpu_facts("x"), kPatient); });
  EXPECT_THAT(errors,
              Each(StartsWith("rank 1 (a/cpu1): its GPU on a has 1.00 GB of memory free; the plan "
                              "needs 1.40 GB there")));
}

TEST(Rendezvous, SaysWhyARankIsNoGpu) {
  JobTerms terms = terms_of(2);
  terms.ranks[0].type = "T4";
  const auto at = places(2);
  const auto errors = run_threads(2, [&](int rank) {
    RankFacts facts = facts_of();
    if (rank == 0) facts.note = "there is no GPU here";
    meet(at[rank], terms, facts, kPatient);
  });
  EXPECT_THAT(errors, Each(testing::StrEq("rank 0 (a/cpu0): is a CPU on a (there is no GPU here), "
                                          "the plan's device is a T4")));
}

TEST(Rendezvous, KnowsThisHost) {
  const RankFacts facts = cpu_facts();
  EXPECT_EQ(facts.type, "CPU");
  EXPECT_GT(facts.memory_bytes, 100'000'000);
  EXPECT_FALSE(facts.host.empty());
}

}  // namespace
}  // namespace heterog::launch
