// heterog shares: what it prints, the file that it writes, and that it is no worse than EV and CP.
#include <gmock/gmock.h>

#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::HasSubstr;

using Shares = ProgramTest;

std::int64_t sum(const nlohmann::json& samples) {
  std::int64_t sum = 0;
  for (const auto& n : samples) sum += n.get<std::int64_t>();
  return sum;
}

TEST_F(Shares, AreAtLeastAsFastAsTheBaselines) {
  const Finished found = run("shares " + kTiny + " --json --out " + path("shares.json"));
  ASSERT_EQ(found.code, 0) << found.err;
  const auto shares = json(found);
  EXPECT_EQ(sum(shares["samples_per_rank"]), 32);
  EXPECT_EQ(shares["devices"].size(), 4u);
  std::size_t rank = 0;
  for (const auto& device : shares["devices"]) {
    if (device["rank"].is_null()) {
      EXPECT_EQ(device["samples"], 0);
      continue;
    }
    EXPECT_EQ(device["rank"], rank);
    EXPECT_EQ(device["samples"], shares["samples_per_rank"][rank]);
    EXPECT_LE(device["peak_bytes"].get<double>(), device["capacity_bytes"].get<double>());
    EXPECT_GT(device["busy_seconds"].get<double>(), 0);
    ++rank;
  }
  EXPECT_EQ(rank, shares["samples_per_rank"].size());
  const auto compared = json(run("compare " + kTiny + " --planner ev-ar cp-ar --json"));
  for (const auto& row : compared["planners"]) {
    if (row["name"] != "ev-ar" && row["name"] != "cp-ar") continue;
    EXPECT_LE(shares["step_seconds"].get<double>(), row["step_seconds"].get<double>());
  }
  EXPECT_GE(shares["even"]["speedup"].get<double>(), 0);
  EXPECT_GE(shares["proportional"]["speedup"].get<double>(), 0);

  // The file is what was printed, without what depends on the clock.
  auto written = nlohmann::json::parse(read_file(path("shares.json")));
  EXPECT_EQ(written["format"], "heterog-shares");
  for (const auto& [key, value] : written.items()) EXPECT_EQ(value, shares[key]) << key;
  EXPECT_FALSE(written.contains("plan_seconds"));
}

TEST_F(Shares, OfTheBaselinesArePrintedWhenAskedFor) {
  const auto even = json(run("shares " + kTiny + " --planner ev-ar --json"));
  EXPECT_EQ(even["samples_per_rank"], nlohmann::json({8, 8, 8, 8}));
  EXPECT_EQ(even["step_seconds"], even["even"]["step_seconds"]);
  const Finished wrong = run("shares " + kTiny + " --planner policy");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("search, ev-ar or cp-ar"));
}

// LoRA of a 7B Llama: cards of 24 GB hold few texts at a time beside the base.
TEST_F(Shares, HaveMicroBatchesWhereThatIsFaster) {
  const std::string words =
      "shares --graph models/llama7b_lora.json.gz --cluster configs/clusters/three-cards.json "
      "--batch 16 ";
  const auto shares = json(run(words + "--json --out " + path("shares.json")));
  const std::int64_t count = shares["micro_batches"];
  EXPECT_GT(count, 1);
  EXPECT_EQ(sum(shares["samples_per_rank"]) * count, 16);
  EXPECT_EQ(shares["batch"], 16 / count);
  EXPECT_EQ(nlohmann::json::parse(read_file(path("shares.json")))["micro_batches"], count);
  const Finished table = run(words);
  const std::int64_t own = shares["samples_per_rank"][0];
  EXPECT_THAT(table.out, HasSubstr(std::to_string(count) + " of " + std::to_string(own) + " "));
  EXPECT_THAT(table.out, HasSubstr(std::to_string(count) + " micro-batches a step: accumulate"));
  // Even shares are of the batch as a whole.
  EXPECT_FALSE(json(run(words + "--planner ev-ar --json")).contains("micro_batches"));
}

TEST_F(Shares, ThatDoNotFitAreNotWritten) {
  // A card of 11 GB has no room for the parameters and their state.
  const std::string cluster = write(
      "two.json",
      R"({"format": "heterog-cluster", "version": 1, "name": "two", "machines": [{"name": "a",)"
      R"( "devices": [{"model": "GTX-1080-Ti", "count": 2}],)"
      R"( "fabric": {"kind": "switch", "link": "pcie5-staged"}}]})");
  const Finished found = run("shares --graph models/bert_large48.json.gz --cluster " + cluster +
                             " --batch 64 --evaluations 10 --out " + path("shares.json"));
  EXPECT_EQ(found.code, 3);
  EXPECT_THAT(found.err, HasSubstr("no plan fits in memory"));
  EXPECT_FALSE(std::filesystem::exists(path("shares.json")));
}

TEST_F(Shares, AreTheSameOnAnyNumberOfThreads) {
  for (const char* threads : {"1", "2"}) {
    const Finished found =
        run("shares " + kTiny + " --threads " + threads + " --out " + path(threads));
    ASSERT_EQ(found.code, 0);
    EXPECT_THAT(found.out, HasSubstr("proportional (CP)"));
  }
  EXPECT_EQ(read_file(path("1")), read_file(path("2")));
}

}  // namespace
}  // namespace heterog::cli
