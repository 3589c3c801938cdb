// Files of recorded steps: what is written is read, what is of another plan is refused.
#include "measure/records_io.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"

namespace heterog::measure {
namespace {

class Records : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() /
             ("heterog_records_" + std::to_string(::getpid()) + ".json"))
                .string();
    plan_.kind.assign(2, compiler::TaskKind::kCompute);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string refusal() const {
    try {
      read_records(path_, plan_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return std::string(error.what()).substr(path_.size());
    }
    return "accepted";
  }

  std::string path_;
  compiler::Plan plan_;
};

RecordedSteps one_step() {
  RecordedSteps records{.seconds = {0.5}};
  records.steps.push_back({.duration = 40});
  records.steps[0].begin.assign(2, 0);
  records.steps[0].end.assign(2, 30);
  records.steps[0].begin[TaskId(1)] = 10;
  return records;
}

TEST_F(Records, ComeBackAsTheyWere) {
  write_records(path_, one_step());
  const RecordedSteps read = read_records(path_, plan_);
  ASSERT_EQ(read.steps.size(), 1u);
  EXPECT_EQ(read.steps[0].begin, one_step().steps[0].begin);
  EXPECT_EQ(read.steps[0].end, one_step().steps[0].end);
  EXPECT_EQ(read.steps[0].duration, 40);
  EXPECT_EQ(read.seconds, std::vector<double>{0.5});
}

TEST_F(Records, OfAnotherPlanAreRefused) {
  write_records(path_, one_step());
  plan_.kind.push_back(compiler::TaskKind::kCompute);
  EXPECT_EQ(refusal(),
            ": steps[0].begin_ns: has 2 tasks, the plan has 3; records are of one plan, under the "
            "costs that it ran with");
}

TEST_F(Records, ThatMakeNoSenseAreRefused) {
  RecordedSteps backwards = one_step();
  backwards.steps[0].end[TaskId(1)] = 5;
  write_records(path_, backwards);
  EXPECT_EQ(refusal(), ": steps[0]: end_ns[1]: 5 is before the task's beginning, 10");
  write_records(path_, {});
  EXPECT_EQ(refusal(), ": steps is empty; a run records one at least");
}

}  // namespace
}  // namespace heterog::measure
