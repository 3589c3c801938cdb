// Training configs: what is shipped loads, what is written is read back, what is wrong is named.
#include "learn/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/file.h"
#include "graph/types.h"

namespace heterog::learn {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_train_config(text, "c.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

TEST(TrainConfig, ShippedConfigsLoad) {
  for (const char* name : {"small", "paper", "zoo"}) {
    const auto config = read_train_config(fmt::format("configs/train/{}.json", name), {});
    EXPECT_FALSE(config.graphs.empty()) << name;
    EXPECT_TRUE(!config.clusters.empty() || config.random_cases > 0) << name;
  }
  const auto paper = read_train_config("configs/train/paper.json", {});
  EXPECT_EQ(paper.gat_layers, 12);
  EXPECT_EQ(paper.gat_heads, 8);
  EXPECT_EQ(paper.txl_layers, 8);
  EXPECT_EQ(paper.max_groups, 2000);
}

TEST(TrainConfig, WrittenIsReadBack) {
  TrainConfig config;
  config.graphs = {{"a.json.gz", {8, 16}}};
  config.clusters = {"x.json", "y.json"};
  config.seed = 77;
  config.fixed_devices = 8;
  config.learning_rate = 0.1234567890123456789;
  config.normalize_advantage = false;
  EXPECT_EQ(parse_train_config(train_config_text(config), "t"), config);
}

TEST(TrainConfig, OverridesAreLaidOverTheFile) {
  const auto config = read_train_config("configs/train/small.json", {{"steps", "7"},
                                                                     {"learning_rate", "1e-4"},
                                                                     {"clusters", R"(["c.json"])"},
                                                                     {"fixed_devices", "3"}});
  EXPECT_EQ(config.steps, 7);
  EXPECT_EQ(config.learning_rate, 1e-4);
  EXPECT_THAT(config.clusters, testing::ElementsAre("c.json"));
  EXPECT_EQ(config.fixed_devices, 3);
}

TEST(TrainConfig, ErrorsNameFileFieldAndRemedy) {
  EXPECT_THAT(error_of(R"({"stepz": 3})"),
              testing::AllOf(testing::HasSubstr("c.json"), testing::HasSubstr("stepz")));
  EXPECT_THAT(error_of(R"({"samples": 0})"), testing::HasSubstr("samples"));
  EXPECT_THAT(error_of(R"({"learning_rate": "fast"})"), testing::HasSubstr("learning_rate"));
  EXPECT_THAT(error_of(R"({"fixed_devices": 8, "actions": "formula"})"),
              testing::HasSubstr("where fixed_devices is not 0"));
  EXPECT_THAT(error_of(R"({"txl_width": 10, "txl_heads": 4})"), testing::HasSubstr("divide"));
  EXPECT_THAT(
      error_of(R"({"graphs": [{"graph": "g", "batches": [8]}, {"graph": "h", "batches": [8]},
                                      {"graph": "g", "batches": [16, 8]}]})"),
      testing::HasSubstr("graphs[2].batches[1]: g at batch 8 stands twice, expected one entry"));
  EXPECT_THAT(error_of(R"({"clusters": ["a", "b", "a"]})"),
              testing::HasSubstr("clusters[2]: a stands twice, expected one entry"));
  EXPECT_THAT(error_of(R"({"graphs": [{"graph": "g", "batches": []}]})"),
              testing::HasSubstr("batches"));
  for (const std::int64_t batch : {std::int64_t{0}, graph::kMaxSamples + 1}) {
    EXPECT_THAT(
        error_of(fmt::format(R"({{"graphs": [{{"graph": "g", "batches": [{}]}}]}})", batch)),
        testing::HasSubstr("batches"));
  }
  EXPECT_THROW(read_train_config("configs/train/small.json", {{"stepz", "7"}}), Error);
}

// What earlier versions knew is refused by its name, in one line.
TEST(TrainConfig, FieldsOfEarlierVersionsAreNamed) {
  for (const char* field :
       {"incumbent_features", "schedule", "proximal_passes", "baseline", "draws", "elite_from",
        "imitate_plain", "finetune_proposals", "head", "order"}) {
    const std::string said = error_of(fmt::format(R"({{"{}": 1}})", field));
    EXPECT_THAT(said, testing::HasSubstr(fmt::format("c.json: unknown key \"{}\"", field)));
    EXPECT_THAT(said, testing::Not(testing::HasSubstr("\n")));
  }
}

// Sizes that a network cannot have, one by one and together.
TEST(TrainConfig, BoundsTheNetwork) {
  EXPECT_THAT(error_of(R"({"txl_layers": 1000000})"), testing::HasSubstr("txl_layers"));
  EXPECT_THAT(error_of(R"({"gat_heads": 1e9})"), testing::HasSubstr("gat_heads"));
  EXPECT_THAT(error_of(R"({"txl_width": 8192, "txl_layers": 64})"),
              testing::AllOf(testing::HasSubstr("c.json"), testing::HasSubstr("parameters")));
  EXPECT_THAT(error_of(R"({"gat_heads": 64, "gat_head_width": 4096})"),
              testing::HasSubstr("parameters"));
  TrainConfig wide;
  wide.fixed_devices = 300;
  EXPECT_EQ(parse_train_config(train_config_text(wide), "t"), wide);
}

}  // namespace
}  // namespace heterog::learn
