// Messages and collectives between ranks that are threads, and how they end when one fails.
#include "runtime/tcp_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "runtime/ranks.h"

namespace heterog::runtime {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// Whole numbers, which sum exactly in any order.
at::Tensor numbers(std::size_t rank, std::int64_t count) {
  return at::arange(count, at::kDouble).remainder(1000).add(static_cast<double>(rank));
}

TEST(TcpTransport, SendsAnyDtypeAndShape) {
  const std::vector<at::ScalarType> types{at::kFloat, at::kDouble,      at::kHalf, at::kBFloat16,
                                          at::kLong,  at::kInt,         at::kBool, at::kByte,
                                          at::kShort, at::kComplexFloat};
  const std::vector<std::vector<std::int64_t>> shapes{{}, {1}, {3, 5}, {0}, {2, 0, 4}, {1 << 20}};
  const auto value_of = [&](std::size_t type, std::size_t shape) {
    return at::arange(7, 7 + at::empty(shapes[shape]).numel())
        .remainder(2 + 3 * static_cast<std::int64_t>(type))
        .view(shapes[shape])
        .to(types[type]);
  };
  const auto errors = run_ranks(2, {}, [&](TcpTransport& transport, std::size_t rank) {
    for (std::size_t type = 0; type < types.size(); ++type) {
      for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
        const at::Tensor expected = value_of(type, shape);
        const auto tag = static_cast<std::uint32_t>(type * 100 + shape);
        if (rank == 0) {
          transport.send(expected, DeviceId(1), tag);
        } else {
          at::Tensor value = at::zeros_like(expected);
          transport.receive(value, DeviceId(0), tag);
          EXPECT_TRUE(value.equal(expected)) << types[type] << " " << expected.sizes();
        }
      }
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(TcpTransport, SumsOverASet) {
  for (const int ranks : {2, 3, 5}) {
    std::vector<DeviceId> everyone;
    for (int rank = 0; rank < ranks; ++rank) everyone.emplace_back(static_cast<std::size_t>(rank));
    // From less than one value a rank to several pieces a segment.
    for (const std::int64_t count : {0, 1, 3, 1000, 3'000'001}) {
      at::Tensor expected = at::zeros({count}, at::kDouble);
      for (int rank = 0; rank < ranks; ++rank) {
        expected += numbers(static_cast<std::size_t>(rank), count);
      }
      const auto errors = run_ranks(ranks, {.sets = {everyone}}, [&](auto& transport, auto rank) {
        at::Tensor value = numbers(rank, count);
        transport.all_reduce(value, 0);
        EXPECT_TRUE(value.equal(expected)) << ranks << " ranks, " << count;
      });
      EXPECT_THAT(errors, Each(IsEmpty()));
    }
  }
}

// Values that round: each member may add in another order than one would, but all have one result.
TEST(TcpTransport, SumsToTheSameBitsOnAllMembers) {
  constexpr int kRanks = 4;
  std::vector<at::Tensor> inputs;
  at::manual_seed(3);
  for (int rank = 0; rank < kRanks; ++rank) inputs.push_back(at::randn({10'007}));
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    std::vector<at::Tensor> sums(kRanks);
    const auto errors =
        run_ranks(kRanks, {.sets = {devices({0, 1, 2, 3})}}, [&](auto& transport, auto rank) {
          sums[rank] = inputs[rank].to(type, false, true);
          transport.all_reduce(sums[rank], 0);
        });
    EXPECT_THAT(errors, Each(IsEmpty()));
    at::Tensor exact = at::zeros({10'007}, at::kDouble);
    for (const at::Tensor& input : inputs) exact += input.to(type).to(at::kDouble);
    EXPECT_LT((sums[0].to(at::kDouble) - exact).abs().max().item<double>(), 0.1) << type;
    for (int rank = 1; rank < kRanks; ++rank) EXPECT_TRUE(sums[rank].equal(sums[0])) << type;
  }
}

TEST(TcpTransport, GathersInTheOrderOfTheSet) {
  const RanksOptions options{.sets = {devices({0, 1}), devices({0, 2, 3}), devices({1, 3})}};
  const auto errors = run_ranks(4, options, [&](TcpTransport& transport, std::size_t rank) {
    for (std::size_t set = 0; set < options.sets.size(); ++set) {
      const std::vector<DeviceId>& members = options.sets[set];
      if (std::count(members.begin(), members.end(), DeviceId(rank)) == 0) continue;
      const std::vector<at::Tensor> values = transport.all_gather(numbers(rank, 5), set);
      ASSERT_EQ(values.size(), members.size());
      for (std::size_t i = 0; i < members.size(); ++i) {
        EXPECT_TRUE(values[i].equal(numbers(members[i].value(), 5))) << set << " " << i;
      }
    }
    const std::vector<at::Tensor> all = transport.gather_all(numbers(rank, 2));
    ASSERT_EQ(all.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(all[i].equal(numbers(i, 2)));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// One thread sends, one receives, one reduces. As in a plan, the messages of all ranks have one
// order, of which each thread does its part: a message may wait until its receiver comes to it.
TEST(TcpTransport, ThreeThreadsOfARankDoNotWaitForEachOther) {
  constexpr int kRanks = 3;
  constexpr int kRounds = 20;
  constexpr std::int64_t kCount = 100'000;
  const auto errors =
      run_ranks(kRanks, {.sets = {devices({0, 1, 2})}}, [&](auto& transport, std::size_t rank) {
        const auto messages = [&](const auto& call) {
          for (std::size_t from = 0; from < kRanks; ++from) {
            for (std::size_t to = 0; to < kRanks; ++to) {
              if (from != to) call(from, to);
            }
          }
        };
        std::thread sender([&] {
          for (int round = 0; round < kRounds; ++round) {
            messages([&](std::size_t from, std::size_t to) {
              if (from == rank) transport.send(numbers(rank + 10, kCount), DeviceId(to), 5);
            });
          }
        });
        std::thread receiver([&] {
          for (int round = 0; round < kRounds; ++round) {
            messages([&](std::size_t from, std::size_t to) {
              if (to != rank) return;
              at::Tensor value = at::empty({kCount}, at::kDouble);
              transport.receive(value, DeviceId(from), 5);
              EXPECT_TRUE(value.equal(numbers(from + 10, kCount)));
            });
          }
        });
        for (int round = 0; round < kRounds; ++round) {
          at::Tensor value = at::full({kCount}, static_cast<double>(rank), at::kDouble);
          transport.all_reduce(value, 0);
          EXPECT_EQ(value.min().item<double>(), 3);
          EXPECT_EQ(value.max().item<double>(), 3);
        }
        sender.join();
        receiver.join();
      });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(TcpTransport, AbortEndsEveryCallOfEveryRank) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run_ranks(4, {.sets = {devices({0, 1, 2, 3})}},
                                [&](TcpTransport& transport, std::size_t rank) {
                                  at::Tensor value = at::zeros({1'000'000});
                                  if (rank == 0) transport.receive(value, DeviceId(1), 0);
                                  if (rank == 1) transport.all_reduce(value, 0);
                                  if (rank == 2) transport.send(value, DeviceId(1), 0);
                                  std::this_thread::sleep_for(std::chrono::milliseconds(100));
                                  throw Error(ErrorKind::kVerification, "the loss is not a number");
                                });
  EXPECT_LT(seconds_since(start), 2);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(errors[rank], "rank 3 (host/cpu3): the loss is not a number");
  }
}

TEST(TcpTransport, AbortFromAnotherThreadOfTheSameRank) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run_ranks(2, {}, [&](TcpTransport& transport, std::size_t rank) {
    at::Tensor value = at::zeros({4});
    std::thread aborts;
    if (rank == 0) {
      aborts = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        transport.abort("first");
        transport.abort("second");
      });
    }
    try {
      transport.receive(value, DeviceId(1 - rank), 0);
      ADD_FAILURE() << "received what nobody sent";
    } catch (const Error&) {
      if (aborts.joinable()) aborts.join();
      EXPECT_THROW(transport.send(value, DeviceId(1 - rank), 0), Error) << "the job has ended";
      throw;
    }
  });
  EXPECT_THAT(errors, Each("rank 0 (host/cpu0): first"));
  EXPECT_LT(seconds_since(start), 2);
}

// A rank that goes without a word: those that wait for it name it, and tell those that wait for
// them.
TEST(TcpTransport, NamesThePeerThatIsGone) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run_ranks(3, {}, [&](TcpTransport& transport, std::size_t rank) {
    at::Tensor value = at::zeros({4});
    if (rank == 0) transport.receive(value, DeviceId(1), 0);
    if (rank == 1) transport.receive(value, DeviceId(2), 0);
    throw Error(ErrorKind::kVerification, "");
  });
  EXPECT_THAT(errors[0], StartsWith("rank 2 (host/cpu2): "));
  EXPECT_THAT(errors[1], StartsWith("rank 2 (host/cpu2): "));
  EXPECT_LT(seconds_since(start), 2);
}

TEST(TcpTransport, NamesThePeerThatDoesNotSend) {
  std::atomic<int> waiting = 1;
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run_ranks(2, {.timeout = std::chrono::milliseconds(300)},
                                [&](TcpTransport& transport, std::size_t rank) {
                                  at::Tensor value = at::zeros({4});
                                  if (rank == 0) {
                                    waiting = 0;
                                    transport.receive(value, DeviceId(1), 0);
                                  }
                                  while (waiting != 0) std::this_thread::yield();
                                  std::this_thread::sleep_for(std::chrono::milliseconds(900));
                                  transport.receive(value, DeviceId(0), 0);
                                });
  EXPECT_EQ(errors[0],
            "rank 1 (host/cpu1): did not send for 0.3 s, rank 0 (host/cpu0) waits for it");
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_LT(seconds_since(start), 3);
}

TEST(TcpTransport, NamesThePeerThatDoesNotConnect) {
  const Store store = make_local_store();
  const auto errors = run_threads(2, [&](int rank) {
    TcpTransport(
        store, DeviceId(static_cast<std::size_t>(rank)),
        {.connect = {.device_names = device_names(3), .timeout = std::chrono::milliseconds(300)}});
  });
  EXPECT_THAT(errors, Each(StartsWith("rank 2 (host/cpu2): not connected")));
}

// Every reason is one line, whatever LibTorch says.
TEST(TcpTransport, SaysOneLine) {
  const auto errors = run_ranks(2, {}, [&](TcpTransport& transport, std::size_t rank) {
    at::Tensor value = at::zeros({4});
    if (rank == 0) transport.receive(value, DeviceId(1), 0);
    throw Error(ErrorKind::kVerification, "stops");
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    EXPECT_LT(error.size(), 300u);
  }
}

}  // namespace
}  // namespace heterog::runtime
