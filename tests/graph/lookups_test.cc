// Gradients of tables as the rows that were looked up, counted by hand.
#include "graph/lookups.h"

#include <gtest/gtest.h>

#include "support/graphs.h"

namespace heterog::graph {
namespace {

using support::GraphMaker;
using support::kB;
using support::n;

// The gradient of a table of 100 rows of 8 floats, of `words` words a sample.
TensorId lookup_gradient(GraphMaker& make, const std::string& name, std::int64_t words) {
  const TensorId indices = make.input(name, {kB, n(words)}, DType::kInt64);
  const TensorId upstream = make.input(name + "_gradient", {kB, n(words), n(8)});
  return make.op("aten.embedding_dense_backward.default",
                 {tensor_value(upstream), tensor_value(indices), int_value(100), int_value(-1)},
                 {n(100), n(8)});
}

TensorId sum(GraphMaker& make, TensorId a, TensorId b) {
  return make.op("aten.add.Tensor", {tensor_value(a), tensor_value(b)}, {n(100), n(8)});
}

// 3 words a sample, an index of 8 bytes and a row of 32 each.
TEST(Lookups, OfOneAreItsOwn) {
  GraphMaker make;
  const TensorId gradient = lookup_gradient(make, "words", 3);
  const ModelGraph graph = std::move(make).build();
  for (const std::int64_t samples : {1, 5}) {
    const auto found = lookups(graph, gradient, samples);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->rows, 3 * samples);
    EXPECT_EQ(found->index_bytes, 3 * samples * 8);
    EXPECT_EQ(found->row_bytes, 3 * samples * 32);
  }
}

TEST(Lookups, OfASumAreThoseOfAll) {
  GraphMaker make;
  const TensorId two =
      sum(make, lookup_gradient(make, "words", 3), lookup_gradient(make, "places", 2));
  const TensorId three = sum(make, lookup_gradient(make, "types", 1), two);
  const ModelGraph graph = std::move(make).build();
  const auto found = lookups(graph, three, 4);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rows, 6 * 4);
  EXPECT_EQ(found->index_bytes, 6 * 4 * 8);
  EXPECT_EQ(found->row_bytes, 6 * 4 * 32);
}

TEST(Lookups, OfAnythingElseThereAreNone) {
  GraphMaker make;
  const TensorId given = make.input("given", {n(100), n(8)});
  const TensorId gradient = lookup_gradient(make, "words", 3);
  const TensorId tied = sum(make, gradient, given);
  const TensorId scaled =
      make.op("aten.mul.Tensor", {tensor_value(gradient), tensor_value(given)}, {n(100), n(8)});
  const ModelGraph graph = std::move(make).build();
  for (TensorId other : {given, tied, scaled}) EXPECT_FALSE(lookups(graph, other, 4));
}

}  // namespace
}  // namespace heterog::graph
