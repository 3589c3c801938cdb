// Distances by hand, and when a suggestion is made.
#include "base/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace heterog {
namespace {

TEST(EditDistance, CountsByHand) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("plan", "plan"), 0u);
  EXPECT_EQ(edit_distance("Plan", "plaN"), 0u);
  EXPECT_EQ(edit_distance("plna", "plan"), 1u);  // neighbours exchanged
  EXPECT_EQ(edit_distance("pla", "plan"), 1u);
  EXPECT_EQ(edit_distance("plans", "plan"), 1u);
  EXPECT_EQ(edit_distance("plon", "plan"), 1u);
  EXPECT_EQ(edit_distance("", "plan"), 4u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);  // an exchanged pair is not edited again
}

TEST(DidYouMean, NamesTheNearestOrNothing) {
  const std::vector<std::string> verbs = {"train", "finetune", "plan", "planners"};
  EXPECT_EQ(did_you_mean("plna", verbs), " (did you mean plan?)");
  EXPECT_EQ(did_you_mean("fine-tune", verbs), " (did you mean finetune?)");
  EXPECT_EQ(did_you_mean("PLANNER", verbs), " (did you mean planners?)");
  EXPECT_EQ(did_you_mean("colour", verbs), "");
  EXPECT_EQ(did_you_mean("", verbs), "");
  EXPECT_EQ(did_you_mean("x", verbs), "");
  EXPECT_EQ(did_you_mean(std::string(100000, 'p'), verbs), "");
  EXPECT_EQ(did_you_mean("plan", {}), "");
}

}  // namespace
}  // namespace heterog
