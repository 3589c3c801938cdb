// Training by processes: the bits of one, and what is left when a rank is lost or all are told to
// end.
#include <gmock/gmock.h>

#include <algorithm>

#include "cli/process.h"
#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class Train : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    config_ = write("config.json",
                    R"({"graphs": [{"graph": "models/lenet5-tiny.json.gz", "batches": [16, 32]},
                                   {"graph": "models/vgg19-tiny.json.gz", "batches": [32]}],
                        "clusters": ["configs/clusters/heterog-4gpu.json"],
                        "steps": 9, "cases_per_step": 3, "samples": 6, "checkpoint_every": 1,
                        "max_groups": 12})");
  }
  std::string arguments(const std::string& folder, const std::string& more = "") const {
    return "train --threads 1 --config " + config_ + " --out " + path(folder) + " " + more;
  }
  // `ranks` processes, as torchrun would start them.
  std::vector<std::unique_ptr<Process>> start(const std::string& folder, int ranks, int port,
                                              const std::string& more = "") const {
    std::vector<std::unique_ptr<Process>> processes;
    for (int rank = 0; rank < ranks; ++rank) {
      processes.push_back(std::make_unique<Process>(arguments(folder, more),
                                                    rank_variables(rank, port, ranks),
                                                    path(folder + std::to_string(rank))));
    }
    return processes;
  }
  // Until its log has so many steps.
  bool await_steps(const std::string& folder, int steps) const {
    const std::string log = path(folder) + "/train.log";
    return await([&] {
      const std::string text = std::filesystem::exists(log) ? read_file(log) : "";
      return std::count(text.begin(), text.end(), '\n') >= steps;
    });
  }
  void expect_same_files(const std::string& folder, const std::string& other) const {
    for (const char* file : {"/train.ckpt", "/policy.ckpt", "/train.log"}) {
      EXPECT_TRUE(read_file(path(folder) + file) == read_file(path(other) + file)) << other << file;
    }
  }
  static void expect_one_line(const std::string& err) {
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
    EXPECT_THAT(err, StartsWith("heterog: error: "));
  }

  static constexpr const char* kLong = "--set steps=40";
  std::string config_;
};

TEST_F(Train, ProcessesGiveTheBitsOfOne) {
  ASSERT_EQ(run(arguments("whole")).code, 0);
  const Finished two = run(arguments("two", "--processes 2 --json"));
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(two.err, "");
  EXPECT_EQ(json(two)["steps"], 9);  // once: rank 0 alone prints
  expect_same_files("whole", "two");

  const auto ranks = start("three", 3, free_port(), "--transport gloo");
  for (const auto& rank : ranks) EXPECT_EQ(rank->wait(), 0) << rank->err();
  EXPECT_THAT(ranks[0]->out(), HasSubstr("9 steps"));
  EXPECT_EQ(ranks[1]->out() + ranks[2]->out(), "");
  expect_same_files("whole", "three");
}

// With a run that is far from its end when the third step has been saved.
TEST_F(Train, GoesOnWithAnotherNumberWhenARankIsKilled) {
  ASSERT_EQ(run(arguments("whole", kLong)).code, 0);
  for (const int victim : {0, 1}) {
    const std::string folder = "killed" + std::to_string(victim);
    const auto ranks = start(folder, 2, free_port(1 + victim), kLong);
    ASSERT_TRUE(await_steps(folder, 3)) << ranks[0]->err();
    const auto& killed = ranks[static_cast<std::size_t>(victim)];
    const auto& left = ranks[static_cast<std::size_t>(1 - victim)];
    killed->kill(SIGKILL);
    const int code = left->wait();
    if (killed->wait() == 0) continue;  // on a strange machine, it was done before
    EXPECT_EQ(code, 4);
    expect_one_line(left->err());
    EXPECT_THAT(left->err(),
                AllOf(HasSubstr("rank " + std::to_string(victim) + ":"), HasSubstr("lost")));
    const std::string processes = victim == 0 ? "1" : "3";
    const Finished resumed = run(arguments(folder, kLong + (" --resume --processes " + processes)));
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    expect_same_files("whole", folder);
  }
}

TEST_F(Train, SavesACheckpointWhenToldToEnd) {
  ASSERT_EQ(run(arguments("whole", kLong)).code, 0);
  for (const int processes : {1, 2}) {
    const std::string folder = "told" + std::to_string(processes);
    const std::string more = kLong + (" --processes " + std::to_string(processes));
    Process job(arguments(folder, more), {}, path(folder + "-says"));
    ASSERT_TRUE(await_steps(folder, 3)) << job.err();
    const std::vector<pid_t> ranks = children_of(job.pid());
    EXPECT_EQ(ranks.size(), processes == 1 ? 0u : 2u);
    job.kill(processes == 1 ? SIGINT : SIGTERM);
    const int code = job.wait();
    if (std::filesystem::exists(path(folder) + "/policy.ckpt")) continue;  // it was done before
    EXPECT_EQ(code, 4);
    expect_one_line(job.err());
    EXPECT_THAT(job.err(),
                testing::ContainsRegex("stopped by signal (2 .SIGINT.|15 .SIGTERM.) after "
                                       "step [0-9]+ of 40; the same command with "
                                       "--resume goes on"));
    for (const pid_t rank : ranks) EXPECT_FALSE(runs(rank));
    const Finished resumed = run(arguments(folder, kLong + std::string(" --resume")));
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    expect_same_files("whole", folder);
  }
}

TEST_F(Train, RefusesRanksThatWereGivenOtherConfigs) {
  const int port = free_port(5);
  Process first(arguments("run"), rank_variables(0, port, 2), path("rank0"));
  Process second(arguments("run", "--seed 3"), rank_variables(1, port, 2), path("rank1"));
  for (Process* rank : {&first, &second}) {
    EXPECT_EQ(rank->wait(), 2);
    expect_one_line(rank->err());
    EXPECT_THAT(rank->err(), HasSubstr("rank 1: was given another config than rank 0"));
  }
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(Train, RefusesWhatMakesNoSense) {
  EXPECT_EQ(run(arguments("run", "--processes 0")).code, 2);
  const Finished unknown = run(arguments("run", "--processes 2 --transport nccl"));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--transport: \"nccl\" given"));
  // What all ranks refuse is said once, before any is started.
  const Finished config = run(arguments("run", "--processes 2 --set stpes=3"));
  EXPECT_EQ(config.code, 2);
  expect_one_line(config.err);
}

}  // namespace
}  // namespace heterog::cli
