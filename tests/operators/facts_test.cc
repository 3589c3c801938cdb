// The table of facts: every row is found, and belongs to operators that a graph may hold.
#include "operators/facts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "operators/allowed.h"

namespace heterog::operators {
namespace {

bool has_overload(std::string_view row) { return row.find('.') != row.npos; }

// The allowed overloads that a row speaks of.
std::vector<std::string> overloads_of(std::string_view row) {
  std::vector<std::string> found;
  for (const std::string& type : allowed_overloads()) {
    const std::string name = type.substr(type.find('.') + 1);
    if (row == (has_overload(row) ? name : name.substr(0, name.find('.')))) found.push_back(type);
  }
  return found;
}

TEST(Facts, EveryRowIsOfOperatorsThatAGraphMayHold) {
  EXPECT_GT(rows_of_facts().size(), 100u);
  for (std::string_view row : rows_of_facts()) EXPECT_FALSE(overloads_of(row).empty()) << row;
}

// A row for one overload of which the packet has no other is a row for the packet.
TEST(Facts, OverloadsHaveRowsWhereTheyDiffer) {
  const std::vector<std::string_view> rows = rows_of_facts();
  for (std::string_view row : rows) {
    if (!has_overload(row)) continue;
    const std::string_view packet = row.substr(0, row.find('.'));
    EXPECT_GT(overloads_of(packet).size(), 1u) << row;
  }
}

TEST(Facts, OfAnOverloadAreItsOwnElseItsPackets) {
  EXPECT_EQ(facts("aten.mm.default").family, Family::kMatMul);
  EXPECT_EQ(facts("aten.sum.dim_IntList").family, Family::kReduction);
  EXPECT_TRUE(facts("aten.squeeze.dims").alias);
  EXPECT_TRUE(facts("aten.split.Tensor").alias);
  EXPECT_FALSE(facts("aten.split.sizes").alias);
  EXPECT_EQ(&facts("aten.sum.default"), &facts("aten.sum.dim_IntList"));
}

// Two that are not the same tensor operand, or argument.
TEST(Facts, NameDifferentOperands) {
  for (std::string_view row : rows_of_facts()) {
    for (const std::string& type : overloads_of(row)) {
      const Facts& of = facts(type);
      if (of.sparse_gradient) {
        EXPECT_NE(of.sparse_gradient->rows, of.sparse_gradient->indices) << type;
      }
      if (of.indices.of != Indices::Of::kNone) {
        EXPECT_NE(of.indices.argument, of.indices.in) << type;
      }
      if (of.batch_statistics) {
        EXPECT_GE(of.batch_statistics->training, of.batch_statistics->samples) << type;
      }
      EXPECT_TRUE(of.called_as.empty() || is_allowed(of.called_as)) << type;
    }
  }
}

TEST(Facts, OfUnlistedOperatorsAreTheDefaults) {
  for (const char* type : {"aten.cos.default", "mine.mm.default", "mm.default", "mm", "", "."}) {
    EXPECT_EQ(facts(type).family, Family::kElementwise) << type;
    EXPECT_FALSE(facts(type).alias) << type;
    EXPECT_FALSE(facts(type).in_place_twin) << type;
    EXPECT_EQ(facts(type).random, Random::kNone) << type;
  }
}

}  // namespace
}  // namespace heterog::operators
