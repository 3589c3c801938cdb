// Collectives that leave parts of a value on their members: on every transport, and in plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/local_transport.h"
#include "comm/ranks.h"
#include "compiler/scattered_plan.h"
#include "runtime/check/verify.h"
#include "runtime/jobs.h"

namespace heterog::runtime {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

using Body = std::function<void(comm::Transport&, std::size_t rank)>;

struct Kind {
  const char* name;
  std::function<std::vector<std::string>(int ranks, const comm::DeviceSets& sets, const Body& body)>
      run;
};

std::vector<std::string> run_local(int ranks, const comm::DeviceSets& sets, const Body& body) {
  comm::LocalHub hub(static_cast<std::size_t>(ranks), sets);
  return comm::run_threads(ranks, [&](int rank) {
    const auto transport = hub.end_of(DeviceId(static_cast<std::size_t>(rank)));
    body(*transport, static_cast<std::size_t>(rank));
  });
}

std::vector<std::string> run_tcp(int ranks, const comm::DeviceSets& sets, const Body& body) {
  return comm::run_ranks(ranks, {.sets = sets}, body);
}

class Collectives : public testing::TestWithParam<Kind> {};

// Whole numbers, which sum exactly in any order.
at::Tensor numbers(std::size_t rank, std::int64_t rows, std::int64_t width) {
  return at::arange(rows * width, at::kDouble)
      .remainder(1000)
      .add(static_cast<double>(1000 * rank))
      .view({rows, width});
}

struct Parts {
  std::int64_t width;
  comm::Cuts cuts;
};

// Even and uneven, with empty parts, of less than a piece of a message and of many.
std::vector<Parts> parts_of(int ranks) {
  std::vector<Parts> all;
  Rng rng(static_cast<std::uint64_t>(ranks));
  for (const std::int64_t rows : {0, 1, 7, 1000, 300'000}) {
    for (int i = 0; i < 3; ++i) {
      comm::Cuts cuts = {0, rows};
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

TEST_P(Collectives, LeaveEveryMemberItsPartOfTheSum) {
  for (const int ranks : {2, 3, 5}) {
    const auto errors =
        GetParam().run(ranks, {comm::everyone(ranks)}, [&](auto& transport, auto rank) {
          for (const Parts& parts : parts_of(ranks)) {
            const std::int64_t rows = parts.cuts.back();
            at::Tensor expected = at::zeros({rows, parts.width}, at::kDouble);
            for (int r = 0; r < ranks; ++r) {
              expected += numbers(static_cast<std::size_t>(r), rows, parts.width);
            }
            at::Tensor value = numbers(rank, rows, parts.width);
            transport.reduce_scatter(value, parts.cuts, 0);
            EXPECT_TRUE(comm::part_of(value, parts.cuts, rank)
                            .equal(comm::part_of(expected, parts.cuts, rank)))
                << ranks << " ranks, " << rows << " rows";
          }
        });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

TEST_P(Collectives, PutTheMembersPartsTogether) {
  for (const int ranks : {2, 3, 5}) {
    const auto errors =
        GetParam().run(ranks, {comm::everyone(ranks)}, [&](auto& transport, auto rank) {
          for (const Parts& parts : parts_of(ranks)) {
            const at::Tensor expected = numbers(7, parts.cuts.back(), parts.width);
            at::Tensor value = at::full_like(expected, -1);
            comm::part_of(value, parts.cuts, rank).copy_(comm::part_of(expected, parts.cuts, rank));
            transport.all_gather_rows(value, parts.cuts, 0);
            EXPECT_TRUE(value.equal(expected))
                << ranks << " ranks, " << parts.cuts.back() << " rows";
          }
        });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

// Of members that are not the first ranks, in turn with sums, so that neither is taken for another.
TEST_P(Collectives, OfSeveralSetsInTurn) {
  const comm::DeviceSets sets{comm::devices({1, 3}), comm::devices({0, 1, 3})};
  const auto errors = GetParam().run(4, sets, [&](comm::Transport& transport, std::size_t rank) {
    for (int round = 0; round < 3; ++round) {
      for (std::size_t set = 0; set < sets.size(); ++set) {
        const auto& members = sets[set];
        const auto at = std::find(members.begin(), members.end(), DeviceId(rank));
        if (at == members.end()) continue;
        const auto own = static_cast<std::size_t>(at - members.begin());
        comm::Cuts cuts = {0};
        for (std::size_t i = 0; i < members.size(); ++i) {
          cuts.push_back(cuts.back() + static_cast<std::int64_t>(2 * i + 1));
        }
        at::Tensor value = numbers(rank, cuts.back(), 2);
        transport.reduce_scatter(value, cuts, set);
        transport.all_gather_rows(value, cuts, set);
        at::Tensor expected = numbers(rank, cuts.back(), 2);
        transport.all_reduce(expected, set);
        EXPECT_TRUE(value.equal(expected)) << "member " << own << " of set " << set;
      }
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Transports, Collectives,
                         testing::Values(Kind{"Threads", run_local}, Kind{"Tcp", run_tcp}),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- in plans ----

// Plans whose all-reduces are scattered and gathered train as one device.
TEST(ScatteredPlans, TrainAsOneDevice) {
  std::size_t scatters = 0, accumulations = 0;
  // Batch normalisation over a few samples per slice magnifies what sums round.
  for (const auto& [model, tolerance] :
       {std::pair{"lenet5-tiny", 1e-10}, {"ncf-tiny", 1e-10}, {"resnet50-tiny", 1e-6}}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", model, seed));
      const std::shared_ptr<const cost::Problem> problem =
          compiler::model_problem(model, 2 + seed % 3, 16);
      compiler::Strategy strategy = random_mix(*problem, seed);
      strategy.bucket_bytes = 0;
      TestJob test;
      test.plan = compiler::scattered(*problem, compiler::compile(*problem, strategy), seed);
      scatters += compiler::count_kind(test.plan, compiler::TaskKind::kReduceScatter);
      accumulations += compiler::count_kind(test.plan, compiler::TaskKind::kAccumulate);
      const sim::SimResult result = sim::simulate(test.plan, strategy.order);
      test.job = make_job(problem, test.plan, result.dispatch, {.capture_gradients = true}, "test");
      EXPECT_LE(verify(test.job, test.plan, {.steps = 2}).worst_relative(), tolerance);
    }
  }
  EXPECT_GT(scatters, 30u);
  EXPECT_GT(accumulations, 10u);
}

}  // namespace
}  // namespace heterog::runtime
