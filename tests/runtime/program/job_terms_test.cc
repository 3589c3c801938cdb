// What makes two jobs the same, and who sends to whom.
#include "runtime/program/job_terms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <type_traits>

#include "runtime/jobs.h"
#include "runtime/program/faults.h"
#include "runtime/program/job_fields.h"
#include "runtime/program/traffic.h"

namespace heterog::runtime {
namespace {

using decide::SyncMethod;

class Terms : public testing::Test {
 protected:
  TestJob job(const std::vector<double>& weights, SyncMethod sync) const {
    return make_test_job(problem_, weighted(*problem_, weights, sync));
  }
  launch::JobTerms terms(const Job& job, const TermsOptions& options = {}) const {
    return runtime::terms_of(job, IdVector<DeviceId, Bytes>(2, 1000), options);
  }

  const std::shared_ptr<const cost::Problem> problem_ =
      decide::toy_problem(support::tiny_mlp_graph(), 2, 8);
};

TEST_F(Terms, HashesWhatRanksDo) {
  const TestJob even = job({1, 1}, SyncMethod::kAllReduce);
  const TermsOptions plain;
  const std::uint64_t hash = terms(even.job).hash;
  EXPECT_EQ(terms(job({1, 1}, SyncMethod::kAllReduce).job).hash, hash);
  std::set<std::uint64_t> hashes{hash};
  const auto is_new = [&](const launch::JobTerms& terms) {
    return hashes.insert(terms.hash).second;
  };
  EXPECT_TRUE(is_new(terms(job({1, 3}, SyncMethod::kAllReduce).job)));
  EXPECT_TRUE(is_new(terms(job({1, 1}, SyncMethod::kParameterServer).job)));
  EXPECT_TRUE(is_new(terms(even.job, {.seed = 1})));
  EXPECT_TRUE(is_new(terms(even.job, {.others = {"3 steps"}})));
  TestJob broken = job({1, 1}, SyncMethod::kAllReduce);
  inject(broken.job, broken.plan, Fault::kDropContribution);
  EXPECT_TRUE(is_new(terms(broken.job)));
  // The same tasks in another order, as a compiler that breaks ties otherwise would put them.
  TestJob moved = job({1, 1}, SyncMethod::kAllReduce);
  auto& queue = moved.job.programs[DeviceId(1)].instructions;
  std::swap(queue[InstructionId(0)], queue[InstructionId(1)]);
  EXPECT_TRUE(is_new(terms(moved.job)));
}

template <class Tag>
void change(Id<Tag>& id) {
  id = id.valid() ? Id<Tag>() : Id<Tag>(7);
}
void change(bool& flag) { flag = !flag; }
template <class Number>
requires std::is_arithmetic_v<Number>
void change(Number& number) { number = static_cast<Number>(number + 1); }
template <class Enumerator>
requires std::is_enum_v<Enumerator>
void change(Enumerator& enumerator) {
  enumerator = static_cast<Enumerator>(static_cast<int>(enumerator) + 1);
}

// Ranks that differ in anything would train something else, or wait for each other for ever.
TEST_F(Terms, HashesEveryFieldOfAJob) {
  TestJob test = job({1, 3}, SyncMethod::kParameterServer);
  const std::uint64_t hash = terms(test.job).hash;
  std::size_t fields = 0;
  visit_leaves(test.job, [&](auto& leaf) {
    if constexpr (!std::is_const_v<std::remove_reference_t<decltype(leaf)>>) {
      const auto before = leaf;
      change(leaf);
      EXPECT_NE(terms(test.job).hash, hash) << "field " << fields;
      leaf = before;
      ++fields;
    }
  });
  EXPECT_GT(fields, 1000u);
  EXPECT_EQ(terms(test.job).hash, hash);
}

// The fields that a hash by hand left out.
TEST_F(Terms, HashesRegistersSlotsAndCuts) {
  const TestJob test = job({1, 3}, SyncMethod::kAllReduce);
  const std::uint64_t hash = terms(test.job).hash;
  const auto changed = [&](const auto& change) {
    TestJob other = test;
    Program& program = other.job.programs[DeviceId(0)];
    for (Instruction& instruction : program.instructions) {
      for (BodyStep& step : instruction.body) change(program, instruction, step);
    }
    return terms(other.job).hash != hash;
  };
  EXPECT_TRUE(changed([](Program&, Instruction&, BodyStep& s) { s.in_place = !s.in_place; }));
  EXPECT_TRUE(changed([](Program&, Instruction&, BodyStep& s) { ++s.cut.dim; }));
  EXPECT_TRUE(changed([](Program&, Instruction&, BodyStep& s) { ++s.cut.outer; }));
  EXPECT_TRUE(changed([](Program&, Instruction&, BodyStep& s) { std::ranges::reverse(s.in); }));
  EXPECT_TRUE(changed([](Program&, Instruction& i, BodyStep&) { i.slots.clear(); }));
  EXPECT_TRUE(changed([](Program& p, Instruction&, BodyStep&) { p.captures.clear(); }));
}

TEST_F(Terms, NeedsWhatThePlanHoldsBesideTheReserve) {
  const TestJob even = job({1, 1}, SyncMethod::kAllReduce);
  const Bytes reserve = problem_->cluster->type_of(DeviceId(0)).reserve_bytes;
  IdVector<DeviceId, Bytes> peaks(2, reserve + 300);
  peaks[DeviceId(1)] = reserve / 2;
  const launch::JobTerms terms = runtime::terms_of(even.job, peaks, {});
  EXPECT_EQ(terms.ranks[0].needed_bytes, 300);
  EXPECT_EQ(terms.ranks[1].needed_bytes, 0);
  EXPECT_EQ(terms.ranks[1].device, problem_->cluster->device(DeviceId(1)).name);
}

TEST(Traffic, IsBetweenThoseWhoSend) {
  const std::shared_ptr<const cost::Problem> problem = decide::model_problem("lenet5-tiny", 3, 12);
  const auto reduced = weighted(*problem, {1, 1, 1}, decide::SyncMethod::kAllReduce);
  EXPECT_TRUE(traffic_of(make_test_job(problem, reduced).job).pairs.empty());
  const TestJob test = make_test_job(problem, random_mix(*problem, 1));
  const auto pairs = traffic_of(test.job).pairs;
  EXPECT_FALSE(pairs.empty());
  EXPECT_TRUE(std::is_sorted(pairs.begin(), pairs.end()));
  for (const Program& program : test.job.programs) {
    for (const Instruction& instruction : program.instructions) {
      if (instruction.queue != Queue::kSend) continue;
      EXPECT_TRUE(std::binary_search(pairs.begin(), pairs.end(),
                                     std::pair(program.device, instruction.peer)));
    }
  }
}

}  // namespace
}  // namespace heterog::runtime
