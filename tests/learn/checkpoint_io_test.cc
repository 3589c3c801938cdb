// Damaged training states and policies are input errors, whatever is damaged.
#include "learn/checkpoint_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/rng.h"
#include "learn/reinforce/learner.h"
#include "tensors/tensor_file_io.h"

namespace heterog::learn {
namespace {

using Json = nlohmann::json;
using tensors::pack_tensors;
using tensors::TensorFile;

TrainConfig small_config() {
  TrainConfig config;
  config.graphs = {{"models/lenet5-tiny.json.gz", {16}}};
  config.clusters = {"configs/clusters/local-2cpu.json"};
  config.steps = 50;
  config.samples = 2;
  config.max_groups = 4;
  config.gat_layers = 1;
  config.gat_heads = 1;
  config.gat_head_width = 4;
  config.txl_layers = 1;
  config.txl_heads = 1;
  config.txl_width = 4;
  config.txl_inner_width = 4;
  config.txl_segment = 4;
  config.head_width = 4;
  return config;
}

class CheckpointIo : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("heterog-checkpoint-test-{}", getpid());
    std::filesystem::create_directories(folder_);
    train_path_ = (folder_ / "train.ckpt").string();
    policy_path_ = (folder_ / "policy.ckpt").string();
    Learner learner(config_);
    learner.states.resize(cases_.size());
    for (int step = 0; step < 3; ++step) learn(learner);
    save_learner(learner, cases_, train_path_);
    save_policy(learner.network, config_, policy_path_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void learn(Learner& learner) {
    learn_step(learner, {.cases = cases_, .measure = simulated(threads_)}, 0.01);
  }

  // The message of the input error; empty if the state is accepted, and learning went on from it.
  std::string refusal(const std::string& bytes, bool go_on = true) {
    std::ofstream(train_path_, std::ios::binary) << bytes;
    try {
      Learner learner = load_learner(config_, cases_, train_path_);
      if (go_on) learn(learner);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "";
  }
  // With the checksum made anew.
  std::string refusal_with(const std::string& pointer, const Json& value) {
    TensorFile file = tensors::read_tensors(train_path_);
    const std::string whole = pack_tensors(file);
    Json progress = Json::parse(file.metadata.at("progress"));
    progress[Json::json_pointer(pointer)] = value;
    file.metadata["progress"] = progress.dump();
    const std::string message = refusal(pack_tensors(file));
    std::ofstream(train_path_, std::ios::binary) << whole;
    return message;
  }

  const TrainConfig config_ = small_config();
  Cases cases_{config_};
  ThreadPool threads_{1};
  std::filesystem::path folder_;
  std::string train_path_;
  std::string policy_path_;
};

TEST_F(CheckpointIo, EveryNumberIsInRange) {
  using testing::HasSubstr;
  EXPECT_EQ(refusal_with("/step", 3), "");
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const Json& value : {Json(-1), Json(51), Json(most), Json(1.5), Json("3"), Json(nullptr)}) {
    EXPECT_THAT(refusal_with("/step", value), HasSubstr("step")) << value;
  }
  EXPECT_THAT(refusal_with("/evaluations", most), HasSubstr("evaluations"));
  EXPECT_THAT(refusal_with("/cases", Json::array()), HasSubstr("0 cases"));
  EXPECT_THAT(refusal_with("/cases/0/name", "other"), HasSubstr("other"));
  EXPECT_THAT(refusal_with("/cases/0/average/0", -1), HasSubstr("average"));
  EXPECT_THAT(refusal_with("/cases/0/average/2", -0.5), HasSubstr("average"));
  EXPECT_THAT(refusal_with("/cases/0/average", Json{1, 2}), HasSubstr("average"));
  EXPECT_THAT(refusal_with("/cases/0/baseline/0", most), HasSubstr("baseline"));
  EXPECT_THAT(refusal_with("/cases/0/baseline/3", nullptr), HasSubstr("baseline"));
  EXPECT_THAT(refusal_with("/cases/0/more", 1), HasSubstr("more"));
  const Json progress = Json::parse(tensors::read_tensors(train_path_).metadata.at("progress"));
  const std::string parameter = progress["adam_steps"].begin().key();
  for (const Json& value : {Json(0), Json(51), Json(-3)}) {
    EXPECT_THAT(refusal_with("/adam_steps/" + parameter, value), HasSubstr(parameter));
  }
  EXPECT_THAT(refusal_with("/adam_steps/nothing", 1), HasSubstr("nothing"));
}

// A strategy of another length once wrote beyond the tensor that it was stacked into.
TEST_F(CheckpointIo, StrategiesAreOfTheCase) {
  using testing::HasSubstr;
  const Json progress = Json::parse(tensors::read_tensors(train_path_).metadata.at("progress"));
  Json longer = progress["cases"][0]["best"]["actions"];
  for (int i = 0; i < 100'000; ++i) longer.push_back(0);
  EXPECT_THAT(refusal_with("/cases/0/best/actions", longer), HasSubstr("actions"));
  EXPECT_THAT(refusal_with("/cases/0/best/actions", Json::array()), HasSubstr("actions"));
  for (const int action : {-1, 6, 255, 256 + 1}) {  // of 2 devices and 4 schemes
    EXPECT_THAT(refusal_with("/cases/0/best/actions/0", action), HasSubstr("actions[0]")) << action;
  }
}

TEST_F(CheckpointIo, AFlippedBitIsFound) {
  const std::string whole = read_file(train_path_), policy = read_file(policy_path_);
  Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = round % 2 == 0 ? whole : policy;
    // A third of them in the header, in which few bytes are.
    const std::size_t range =
        round % 3 == 0 ? std::min<std::size_t>(bytes.size(), 1000) : bytes.size();
    const std::size_t at = rng.below(range);
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.below(8)));
    if (round % 2 == 0) {
      EXPECT_NE(refusal(bytes), "") << at;
    } else {
      std::ofstream(policy_path_, std::ios::binary) << bytes;
      EXPECT_THROW(load_policy(policy_path_), Error) << at;
    }
  }
}

// What another version holds is not read; a file of the present one has a checksum, which one of
// version 1 does without.
TEST_F(CheckpointIo, OtherVersionsAndFilesWithoutAChecksumAreRefused) {
  const auto refusal_of = [&](const std::string& version, bool checked) -> std::string {
    TensorFile file = tensors::read_tensors(train_path_);
    file.metadata["version"] = version;
    std::string bytes = pack_tensors(file);
    if (!checked) bytes.replace(bytes.find("\"checksum\""), 10, "\"checksun\"");
    write_file(policy_path_, bytes);
    try {
      EXPECT_EQ(load_policy(policy_path_).config, config_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal_of("8", true), "");
  EXPECT_EQ(refusal_of("1", false), "");
  EXPECT_THAT(refusal_of("8", false), testing::HasSubstr("checksum: is missing"));
  EXPECT_THAT(refusal_of("7", true),
              testing::HasSubstr("version: is 7, this program's is 8; train the policy again"));
}

// Bytes and texts changed at random: those with a checksum that holds, and those without one.
TEST_F(CheckpointIo, DamageIsAnInputError) {
  const TensorFile file = tensors::read_tensors(train_path_);
  Rng rng(7);
  int accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    TensorFile changed = file;
    changed.metadata["version"] = round % 2 == 0 ? "8" : "1";
    std::string& text = changed.metadata["progress"];
    for (std::uint64_t i = 0, n = rng.below(4); i < n && round % 2 == 0; ++i) {
      const std::size_t at = rng.below(text.size());
      const char c = "0123456789-+.e,[]{}\":tfn"[rng.below(24)];
      switch (rng.below(3)) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1 + rng.below(3), c);
          break;
        case 2:
          text.erase(at, 1 + rng.below(3));
          break;
      }
    }
    std::string bytes = pack_tensors(changed);
    if (round % 2 == 1) {
      bytes[bytes.find("\"checksum\"") + 1] = 'C';
      std::uint64_t header = 0;
      std::memcpy(&header, bytes.data(), sizeof header);
      for (std::uint64_t i = 0, n = 1 + rng.below(3); i < n; ++i) {
        const std::size_t range = rng.below(2) == 0 ? 8 + header : bytes.size();
        bytes[rng.below(range)] = static_cast<char>(rng.below(256));
      }
    }
    accepted += refusal(bytes, round % 16 == 0).empty();
    if (round % 2 == 1) {
      std::ofstream(policy_path_, std::ios::binary) << bytes;
      try {
        load_policy(policy_path_);
      } catch (const Error& error) {
        ASSERT_EQ(error.kind(), ErrorKind::kInput) << error.what();
      }
    }
  }
  EXPECT_GT(accepted, 200) << "or nothing was tried behind the first check";
}

}  // namespace
}  // namespace heterog::learn
