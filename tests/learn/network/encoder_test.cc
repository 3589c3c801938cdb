// Group embeddings against the sum that defines them, and gradients through the whole encoder.
#include "learn/network/encoder.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "learn/network/finite_difference.h"
#include "learn/network/problems.h"

namespace heterog::learn {
namespace {

GraphEncoder encoder() {
  torch::manual_seed(1);
  return GraphEncoder(GraphEncoderOptions{
      .op_features = feature_count(Subject::kOp), .layers = 2, .heads = 2, .head_width = 3});
}

TEST(GraphEncoder, GroupIsTheActivatedSumOfItsOps) {
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 32, 8);
  const FeatureTensors features = to_tensors(make_features(*problem));
  GraphEncoder e = encoder();
  const auto ops = e->encode_ops(features);
  const auto groups = e->encode_groups(ops, features);
  const auto w = e->named_parameters()["pool.weight"];
  EXPECT_EQ(groups.size(0), static_cast<std::int64_t>(problem->grouping.count()));
  for (std::int64_t g = 0; g < groups.size(0); ++g) {
    auto sum = torch::zeros({e->width()});
    for (std::int64_t o = 0; o < ops.size(0); ++o) {
      if (features.group_of_op[o].item<std::int64_t>() == g) sum += w.matmul(ops[o]);
    }
    EXPECT_LT((torch::elu(sum) - groups[g]).abs().max().item<double>(), 1e-4);
  }
}

// What is not connected has no order: the numbers of ops mean nothing, who is whose neighbour does.
TEST(GraphEncoder, OpsInAnotherOrderMakeTheSameGroups) {
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 32, 8);
  const FeatureTensors features = to_tensors(make_features(*problem));
  GraphEncoder e = encoder();
  const auto groups = e->encode_groups(e->encode_ops(features), features);
  const std::int64_t count = features.ops.size(0);
  const auto order = torch::randperm(count);  // the old number of each op
  const auto number = torch::argsort(order);  // the new one
  FeatureTensors moved = features;
  moved.ops = features.ops.index_select(0, order);
  moved.group_of_op = features.group_of_op.index_select(0, order);
  const auto attached = e->encode_groups(e->encode_ops(moved), moved);
  moved.neighbours.source = number.index_select(0, features.neighbours.source);
  moved.neighbours.target = number.index_select(0, features.neighbours.target);
  const auto same = e->encode_groups(e->encode_ops(moved), moved);
  EXPECT_LT((same - groups).abs().max().item<double>(), 1e-4);
  EXPECT_GT((attached - groups).abs().max().item<double>(), 1e-2);  // with edges of other ops
}

TEST(GraphEncoder, GradientsAgreeWithFiniteDifferences) {
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 32, 4);
  FeatureTensors features = to_tensors(make_features(*problem));
  features.ops = features.ops.to(torch::kFloat64);
  GraphEncoder e = encoder();
  e->to(torch::kFloat64);
  const auto weights = torch::randn({features.groups.size(0), e->width()}, torch::kFloat64);
  expect_gradients_match(
      [&] { return (e->encode_groups(e->encode_ops(features), features) * weights).mean(); },
      e->parameters(), /*stride=*/7);
}

}  // namespace
}  // namespace heterog::learn
