// Masks of dropout: the same for an element wherever it is computed, and random enough.
#include "runtime/kernels/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "operators/allowed.h"
#include "operators/facts.h"
#include "runtime/exec/slices.h"
#include "runtime/jobs.h"
#include "runtime/kernels/dispatcher.h"
#include "runtime/program/draws.h"

namespace heterog::runtime {
namespace {

constexpr RandomStream kStream{7, 3, OpId(11)};

at::Tensor whole_mask(const std::vector<std::int64_t>& sizes, double rate) {
  return keep_mask(kStream, rate, sizes, Cut{}, at::kCPU);
}

// Along any dimension, also where it holds the batch inside (sequence first: 3 × batch).
TEST(KeepMask, OfASliceIsASliceOfTheMask) {
  const std::int64_t batch = 8;
  for (const auto& [dim, outer] : {std::pair{0, 1}, {1, 1}, {2, 1}, {0, 3}, {1, 3}}) {
    std::vector<std::int64_t> sizes = {5, 4, 2};
    sizes[static_cast<std::size_t>(dim)] = 2 * outer * batch;
    const at::Tensor whole = whole_mask(sizes, 0.4);
    for (const auto& [begin, count] : {std::pair{0, 3}, {3, 5}, {7, 1}}) {
      const Cut cut{static_cast<std::uint8_t>(dim), outer, batch, begin, count};
      sizes[static_cast<std::size_t>(dim)] = 2 * outer * count;
      const at::Tensor slice = keep_mask(kStream, 0.4, sizes, cut, at::kCPU);
      EXPECT_TRUE(slice.equal(cut_samples(whole, cut))) << dim << " " << outer << " " << begin;
      // What devices without a kernel of ours compute.
      EXPECT_TRUE(slice.equal(keep_mask_by_tensors(kStream, 0.4, sizes, cut, at::kCPU)));
    }
  }
}

TEST(KeepMask, KeepsItsShareAndChangesWithEveryKey) {
  const std::vector<std::int64_t> sizes = {1000, 1000};
  for (const double rate : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    const double kept = whole_mask(sizes, rate).to(at::kDouble).mean().item<double>();
    // Five standard deviations of a million draws.
    EXPECT_NEAR(kept, 1 - rate, 5 * std::sqrt(rate * (1 - rate) / 1e6) + 1e-12) << rate;
  }
  const at::Tensor mask = whole_mask(sizes, 0.5);
  for (const RandomStream& other :
       {RandomStream{8, 3, OpId(11)}, {7, 4, OpId(11)}, {7, 3, OpId(12)}}) {
    const at::Tensor theirs = keep_mask(other, 0.5, sizes, Cut{}, at::kCPU);
    const double alike = theirs.eq(mask).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(alike, 0.5, 5 * 0.5e-3);
  }
  // Neighbours along both dimensions are independent.
  for (const int dim : {0, 1}) {
    const double alike =
        mask.narrow(dim, 0, 999).eq(mask.narrow(dim, 1, 999)).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(alike, 0.5, 5 * 0.5e-3);
  }
}

// ---- operators that draw from the generator of the process ----

using graph::float_value;
using graph::Value;

Value truth(bool value) { return {.kind = Value::Kind::kBool, .integer = {0, value ? 1 : 0}}; }

bool draws(const std::string& type, const std::vector<Value>& more = {}) {
  support::GraphMaker maker;
  std::vector<Value> args = {graph::tensor_value(maker.input("x", {support::kB, support::n(3)}))};
  args.insert(args.end(), more.begin(), more.end());
  maker.op(type, args, {support::kB, support::n(3)});
  return draws_from_generator(std::move(maker).build(), OpId(0));
}

// All of a graph that ATen tags, whatever they are called.
TEST(RandomOperators, AreThoseThatAtenSaysAreRandom) {
  int found = 0, counted = 0;
  for (const std::string& type : operators::allowed_overloads()) {
    const auto handle = find_operator(type);
    ASSERT_TRUE(handle) << type;
    const bool random = handle->hasTag(at::Tag::nondeterministic_seeded);
    // Attention's gradient draws none of its own: it repeats what forward drew.
    const bool repeats = operators::facts(type).family == operators::Family::kAttentionBackward;
    EXPECT_EQ(operators::facts(type).random != operators::Random::kNone, random || repeats) << type;
    if (!random) continue;
    // With every argument but x left out: what trains by default, or says nothing of it.
    bool off = false;
    for (const auto& argument : handle->schema().arguments()) {
      const auto& by_default = argument.default_value();
      off |= argument.name() == "training" && by_default && !by_default->toBool();
      off |= argument.name() == "dropout_p" && by_default && by_default->toDouble() == 0;
    }
    const bool by_counter = operators::facts(type).random == operators::Random::kCounter;
    EXPECT_EQ(draws(type), !off && !by_counter) << type;
    ++found;
    counted += by_counter ? 1 : 0;
  }
  EXPECT_GT(found, 15);
  EXPECT_EQ(counted, 26);
}

TEST(RandomOperators, DrawNothingWhereTheirArgumentsSaySo) {
  const Value low = float_value(0.1), none = float_value(0);
  EXPECT_TRUE(draws("aten.randint_like.Tensor"));
  EXPECT_FALSE(draws("aten.rand_like.default")) << "by counter";
  EXPECT_TRUE(draws("aten.alpha_dropout.default", {low, truth(true)}));
  EXPECT_FALSE(draws("aten.alpha_dropout.default", {low, truth(false)}));
  const std::string attention = "aten.scaled_dot_product_attention.default";
  EXPECT_TRUE(draws(attention, {Value{}, Value{}, Value{}, low}));
  EXPECT_FALSE(draws(attention, {Value{}, Value{}, Value{}, none}));
  EXPECT_FALSE(draws(attention));
  EXPECT_FALSE(draws("aten.native_dropout.default", {low, truth(true)})) << "by counter";
  EXPECT_FALSE(draws("aten.native_dropout.default", {low, truth(false)}));
  EXPECT_FALSE(draws("aten.native_dropout.default", {low, Value{}})) << "by counter";
  EXPECT_TRUE(draws("aten.dropout.default", {low, truth(true)}));
  EXPECT_FALSE(draws("aten.relu.default"));
}

// How many numbers there are is what another tensor says.
TEST(RandomOperators, AreRefusedByName) {
  support::GraphMaker maker;
  const TensorId x = maker.input("x", {support::kB, support::n(3)});
  const TensorId high = maker.input("high", {}, graph::DType::kInt64);
  const TensorId noise =
      maker.op("aten.randint_like.Tensor", {graph::tensor_value(x), graph::tensor_value(high)},
               {support::kB, support::n(3)});
  maker.loss(maker.op("aten.sum.default", {graph::tensor_value(noise)}, {},
                      {.role = graph::TensorRole::kOutput}));
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(std::move(maker).build(), 2, 8);
  try {
    make_test_job(problem, weighted(*problem, {1, 1}, decide::SyncMethod::kAllReduce));
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("op 'randint_like' draws random numbers"),
                               testing::HasSubstr("aten.randint_like.Tensor")));
  }
}

}  // namespace
}  // namespace heterog::runtime
