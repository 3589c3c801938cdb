// Checkpoints of runs: what is damaged or out of range is refused, and nothing goes on from it.
#include "runtime/ranks/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/rng.h"
#include "runtime/jobs.h"
#include "runtime/ranks/training_run.h"
#include "tensors/tensor_file_io.h"

namespace heterog::runtime {
namespace {

using testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest()
      : problem_(decide::model_problem("lenet5-tiny", 2, 8)),
        test_(make_test_job(problem_, weighted(*problem_, {1, 2}, decide::SyncMethod::kAllReduce))),
        run_(ranks_in_threads(test_.job, test_.plan, IdVector<DeviceId, WorkerOptions>(2)), {}),
        path_(testing::TempDir() + "heterog_checkpoint_" + std::to_string(getpid())) {
    run_.step(1);
    run_.save(path_, 1);
    whole_ = read_file(path_);
  }
  ~CheckpointTest() override { std::filesystem::remove(path_); }

  // Why these bytes are refused; empty if they are not.
  std::string refusal(const std::string& bytes) {
    write_file(path_, bytes);
    try {
      step_ = run_.load(path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
      EXPECT_THAT(error.what(), testing::StartsWith(path_));
      return error.what();
    }
    return "";
  }
  // With the checksum made anew.
  std::string refusal(const std::string& key, const std::string& value) {
    tensors::TensorFile file = tensors::unpack_tensors(whole_, "whole");
    file.metadata[key] = value;
    return refusal(tensors::pack_tensors(file));
  }

  std::shared_ptr<const cost::Problem> problem_;
  TestJob test_;
  TrainingRun run_;
  const std::string path_;
  std::string whole_;
  std::int64_t step_ = 0;
};

TEST_F(CheckpointTest, AFlippedBitIsFound) {
  EXPECT_EQ(refusal(whole_), "");
  EXPECT_EQ(step_, 1);
  Rng rng(1);
  for (int round = 0; round < 400; ++round) {
    // Half of them in the header, in which few bytes are.
    const std::size_t at = rng.below(round % 2 == 0 ? 1500 : whole_.size());
    std::string bytes = whole_;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.below(8)));
    EXPECT_NE(refusal(bytes), "") << "byte " << at;
  }
}

TEST_F(CheckpointTest, TheStepIsInRange) {
  EXPECT_EQ(refusal("step", "0"), "");
  for (const char* step : {"9223372036854775807", "1099511627777", "18446744073709551616", "-1", "",
                           "1.5", " 1", "0x1"}) {
    EXPECT_THAT(refusal("step", step), HasSubstr("metadata.step")) << step;
  }
  EXPECT_THAT(refusal("version", "3"), HasSubstr("metadata.version"));
  EXPECT_THAT(refusal("seed", "1"), HasSubstr("metadata.seed"));
}

// Files of before there were checksums.
TEST_F(CheckpointTest, TheEarlierVersionLoadsUnchecked) {
  tensors::TensorFile file = tensors::unpack_tensors(whole_, "whole");
  EXPECT_TRUE(file.checked);
  const auto without = [](const tensors::TensorFile& of) {
    std::string bytes = tensors::pack_tensors(of);
    return bytes.replace(bytes.find("\"checksum\""), 10, "\"checksun\"");
  };
  EXPECT_THAT(refusal(without(file)), HasSubstr("checksum"));
  file.metadata.erase("version");
  EXPECT_EQ(refusal(without(file)), "");
}

}  // namespace
}  // namespace heterog::runtime
