// Every transport keeps the contract of transport.h: what arrives, sums and gathers.
#include "comm/transport.h"

#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/rng.h"
#include "comm/local_transport.h"
#include "comm/transports.h"

namespace heterog::comm {
namespace {

using testing::Each;
using testing::IsEmpty;

using Body = std::function<void(Transport&, std::size_t rank)>;

struct Kind {
  std::string name;
  std::function<std::vector<std::string>(int ranks, const DeviceSets& sets, const Body& body)> run;
};

std::vector<std::string> run_local(int ranks, const DeviceSets& sets, const Body& body) {
  LocalHub hub(static_cast<std::size_t>(ranks), sets);
  return run_threads(ranks, [&](int rank) {
    const auto transport = hub.end_of(DeviceId(static_cast<std::size_t>(rank)));
    body(*transport, static_cast<std::size_t>(rank));
  });
}

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds{{"threads", run_local}};
  for (const ProcessKind& kind : process_kinds()) {
    kinds.push_back(
        {kind.name, [make = kind.make](int ranks, const DeviceSets& sets, const Body& body) {
           return run_ranks(ranks, {.sets = sets, .make = make}, body);
         }});
  }
  return kinds;
}

const auto kName = [](const auto& info) { return info.param.name; };

class Transports : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(All, Transports, testing::ValuesIn(all_kinds()), kName);

// Whole numbers, which sum exactly in any order.
at::Tensor numbers(std::size_t rank, std::int64_t count) {
  return at::arange(count, at::kDouble).remainder(1000).add(static_cast<double>(rank));
}

at::Tensor rows_of(std::size_t rank, std::int64_t rows, std::int64_t width) {
  return at::arange(rows * width, at::kDouble)
      .remainder(1000)
      .add(static_cast<double>(1000 * rank))
      .view({rows, width});
}

// Ranks train in inference mode; what a transport does on threads of its own may not mind.
TEST_P(Transports, TakesTensorsOfInferenceMode) {
  const auto errors = GetParam().run(2, {everyone(2)}, [](Transport& transport, std::size_t rank) {
    const c10::InferenceMode mode;
    const at::Tensor expected = rows_of(0, 5, 3) + rows_of(1, 5, 3);
    const Cuts cuts = {0, 2, 5};
    at::Tensor whole = rows_of(rank, 5, 3), parts = whole.clone(), moved = whole.clone();
    transport.all_reduce(whole, 0);
    EXPECT_TRUE(whole.equal(expected));
    transport.reduce_scatter(parts, cuts, 0);
    transport.all_gather_rows(parts, cuts, 0);
    EXPECT_TRUE(parts.equal(expected));
    EXPECT_TRUE(transport.all_gather(moved, 0)[1].equal(rows_of(1, 5, 3)));
    if (rank == 0) transport.send(moved, DeviceId(1), 7);
    if (rank == 1) transport.receive(moved, DeviceId(0), 7);
    EXPECT_TRUE(moved.equal(rows_of(0, 5, 3)));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(Transports, SendsAnyDtypeAndShape) {
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
  const auto errors = GetParam().run(2, {}, [&](Transport& transport, std::size_t rank) {
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

TEST_P(Transports, SumsOverASet) {
  for (const int ranks : {2, 3, 5, 7}) {
    // From less than one value a rank to several pieces a segment.
    for (const std::int64_t count : {0, 1, 3, 1000, 3'000'001}) {
      at::Tensor expected = at::zeros({count}, at::kDouble);
      for (int rank = 0; rank < ranks; ++rank) {
        expected += numbers(static_cast<std::size_t>(rank), count);
      }
      const auto errors =
          GetParam().run(ranks, {everyone(ranks)}, [&](Transport& transport, std::size_t rank) {
            at::Tensor value = numbers(rank, count);
            transport.all_reduce(value, 0);
            EXPECT_TRUE(value.equal(expected)) << ranks << " ranks, " << count;
          });
      EXPECT_THAT(errors, Each(IsEmpty()));
    }
  }
}

// Values that round: each member may add in another order than one would, but all have one result.
TEST_P(Transports, SumsToTheSameBitsOnAllMembers) {
  constexpr int kRanks = 6;
  at::manual_seed(3);
  for (const auto& [type, count] : {std::pair{at::kFloat, 10'007},
                                    {at::kFloat, 7},
                                    {at::kFloat, 1'000'003},
                                    {at::kDouble, 3001},
                                    {at::kHalf, 10'007},
                                    {at::kBFloat16, 10'007}}) {
    std::vector<at::Tensor> inputs;
    for (int rank = 0; rank < kRanks; ++rank) inputs.push_back(at::randn({count}));
    std::vector<at::Tensor> sums(kRanks);
    const auto errors =
        GetParam().run(kRanks, {everyone(kRanks)}, [&](Transport& transport, std::size_t rank) {
          sums[rank] = inputs[rank].to(type, false, true);
          transport.all_reduce(sums[rank], 0);
        });
    EXPECT_THAT(errors, Each(IsEmpty()));
    at::Tensor exact = at::zeros({count}, at::kDouble);
    for (const at::Tensor& input : inputs) exact += input.to(type).to(at::kDouble);
    EXPECT_LT((sums[0].to(at::kDouble) - exact).abs().max().item<double>(), 0.1) << type;
    for (int rank = 1; rank < kRanks; ++rank) EXPECT_TRUE(sums[rank].equal(sums[0])) << type;
  }
}

// As ATen adds: of bools that is "or". Parts of two rows and of one.
TEST_P(Transports, SumsEveryDtype) {
  for (const at::ScalarType type :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kComplexFloat}) {
    const auto value_of = [&](std::size_t rank) {
      return at::arange(12).view({3, 4}).remainder(2 + static_cast<std::int64_t>(rank)).to(type);
    };
    at::Tensor expected = value_of(0).clone();
    expected.add_(value_of(1));
    const auto errors =
        GetParam().run(2, {everyone(2)}, [&](Transport& transport, std::size_t rank) {
          at::Tensor value = value_of(rank).clone();
          transport.all_reduce(value, 0);
          EXPECT_TRUE(value.equal(expected)) << type;
          const Cuts cuts{0, 2, 3};
          value = value_of(rank).clone();
          transport.reduce_scatter(value, cuts, 0);
          EXPECT_TRUE(part_of(value, cuts, rank).equal(part_of(expected, cuts, rank))) << type;
        });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

TEST_P(Transports, GathersInTheOrderOfTheSet) {
  const DeviceSets sets{devices({0, 1}), devices({0, 2, 3}), devices({1, 3})};
  const auto errors = GetParam().run(4, sets, [&](Transport& transport, std::size_t rank) {
    for (std::size_t set = 0; set < sets.size(); ++set) {
      const std::vector<DeviceId>& members = sets[set];
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
TEST_P(Transports, ThreeThreadsOfARankDoNotWaitForEachOther) {
  constexpr int kRanks = 3;
  constexpr int kRounds = 20;
  constexpr std::int64_t kCount = 100'000;
  const auto errors =
      GetParam().run(kRanks, {everyone(kRanks)}, [&](Transport& transport, std::size_t rank) {
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

struct Parts {
  std::int64_t width;
  Cuts cuts;
};

// Even and uneven, with empty parts, of less than a piece of a message and of many.
std::vector<Parts> parts_of(int ranks) {
  std::vector<Parts> all;
  Rng rng(static_cast<std::uint64_t>(ranks));
  for (const std::int64_t rows : {0, 1, 7, 1000, 300'000}) {
    for (int i = 0; i < 3; ++i) {
      Cuts cuts = {0, rows};
      for (int c = 1; c < ranks; ++c) {
        cuts.push_back(
            i == 0 ? rows * c / ranks
                   : static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(rows) + 1)));
      }
      std::sort(cuts.begin(), cuts.end());
      all.push_back({i + 1, cuts});
    }
  }
  return all;
}

TEST_P(Transports, LeaveEveryMemberItsPartOfTheSum) {
  for (const int ranks : {2, 3, 5, 7}) {
    const auto errors =
        GetParam().run(ranks, {everyone(ranks)}, [&](Transport& transport, std::size_t rank) {
          for (const Parts& parts : parts_of(ranks)) {
            const std::int64_t rows = parts.cuts.back();
            at::Tensor expected = at::zeros({rows, parts.width}, at::kDouble);
            for (int r = 0; r < ranks; ++r) {
              expected += rows_of(static_cast<std::size_t>(r), rows, parts.width);
            }
            at::Tensor value = rows_of(rank, rows, parts.width);
            transport.reduce_scatter(value, parts.cuts, 0);
            EXPECT_TRUE(part_of(value, parts.cuts, rank).equal(part_of(expected, parts.cuts, rank)))
                << ranks << " ranks, " << rows << " rows";
          }
        });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

TEST_P(Transports, PutTheMembersPartsTogether) {
  for (const int ranks : {2, 3, 5, 7}) {
    const auto errors =
        GetParam().run(ranks, {everyone(ranks)}, [&](Transport& transport, std::size_t rank) {
          for (const Parts& parts : parts_of(ranks)) {
            const at::Tensor expected = rows_of(7, parts.cuts.back(), parts.width);
            at::Tensor value = at::full_like(expected, -1);
            part_of(value, parts.cuts, rank).copy_(part_of(expected, parts.cuts, rank));
            transport.all_gather_rows(value, parts.cuts, 0);
            EXPECT_TRUE(value.equal(expected))
                << ranks << " ranks, " << parts.cuts.back() << " rows";
          }
        });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

// Of members that are not the first ranks, in turn with sums, so that neither is taken for another.
TEST_P(Transports, OfSeveralSetsInTurn) {
  const DeviceSets sets{devices({1, 3}), devices({0, 1, 3})};
  const auto errors = GetParam().run(4, sets, [&](Transport& transport, std::size_t rank) {
    for (int round = 0; round < 3; ++round) {
      for (std::size_t set = 0; set < sets.size(); ++set) {
        const auto& members = sets[set];
        const auto at = std::find(members.begin(), members.end(), DeviceId(rank));
        if (at == members.end()) continue;
        const auto own = static_cast<std::size_t>(at - members.begin());
        Cuts cuts = {0};
        for (std::size_t i = 0; i < members.size(); ++i) {
          cuts.push_back(cuts.back() + static_cast<std::int64_t>(2 * i + 1));
        }
        at::Tensor value = rows_of(rank, cuts.back(), 2);
        transport.reduce_scatter(value, cuts, set);
        transport.all_gather_rows(value, cuts, set);
        at::Tensor expected = rows_of(rank, cuts.back(), 2);
        transport.all_reduce(expected, set);
        EXPECT_TRUE(value.equal(expected)) << "member " << own << " of set " << set;
      }
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

}  // namespace
}  // namespace heterog::comm
