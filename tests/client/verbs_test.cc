// Verbs in the process of whoever calls the library: the program's results, its refusals word for
// word, and a process that is left as it was.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cli/program.h"
#include "client/heterog.h"

namespace heterog::client {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

using Words = std::vector<std::string>;

struct Answer {
  std::int32_t code = 0;
  std::string output;
  std::string error;
};

Answer run_verb(const Words& words, const std::int32_t* stop = nullptr) {
  std::vector<const char*> given;
  for (const std::string& word : words) given.push_back(word.c_str());
  const char* output = nullptr;
  const std::int32_t code =
      heterog_run_verb(given.data(), static_cast<std::int32_t>(given.size()), stop, &output);
  return {.code = code, .output = output ? output : "", .error = heterog_last_error()};
}

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// What a process has that verbs could have changed.
struct Kept {
  int threads = at::get_num_threads();
  caffe2::TypeMeta floats = at::get_default_dtype();
  at::Tensor random = at::detail::getDefaultCPUGenerator().get_state();
};

class Verbs : public cli::ProgramTest {
 protected:
  static Words files() {
    return {"--graph", "tests/data/mlp_sgd.json.gz", "--cluster",
            "configs/clusters/local-2cpu.json"};
  }
  Words plan(const std::string& name) const {
    return Words{"plan"} + files() +
           Words{"--batch", "16", "--evaluations", "300", "--seed", "3", "--out", path(name)};
  }
  // The same words for the program.
  cli::Finished program(const Words& words) const {
    std::string line;
    for (const std::string& word : words) line += " '" + word + "'";
    return run(line);
  }
};

TEST_F(Verbs, PlanIsThatOfTheProgramToTheByte) {
  const cli::Finished expected = program(plan("program.json") + Words{"--json"});
  ASSERT_EQ(expected.code, 0) << expected.err;
  const Answer found = run_verb(plan("library.json") + Words{"--json"});
  ASSERT_EQ(found.code, 0) << found.error;
  EXPECT_EQ(read_file(path("library.json")), read_file(path("program.json")));
  auto here = nlohmann::json::parse(found.output);
  auto there = json(expected);
  EXPECT_FALSE(here["baselines"].empty());
  here.erase("plan_seconds");
  there.erase("plan_seconds");
  EXPECT_EQ(here, there);
}

TEST_F(Verbs, RefuseInTheWordsOfTheProgram) {
  const Words cases[] = {
      {"plan"},
      Words{"plan"} + files() + Words{"--batch", "x", "--out", path("p.json")},
      Words{"plan"} + files() + Words{"--batch", "8", "--out", path("p.json"), "--planer", "x"},
      Words{"compare"} + files() + Words{"--batch", "8", "--planner", "nobody"},
      {"simulate", "--graph", "nowhere.json.gz", "--cluster", "c", "--plan", "p"},
      Words{"verify"} + files(),
      Words{"shares"} + files() + Words{"--batch", "8", "--planner", "x"},
  };
  for (const Words& words : cases) {
    const cli::Finished expected = program(words);
    const Answer found = run_verb(words);
    EXPECT_EQ(found.code, expected.code) << expected.err;
    EXPECT_EQ("heterog: error: " + found.error + "\n", expected.err);
  }
}

TEST_F(Verbs, OfTheProgramAloneAreNotInTheLibrary) {
  const Words others[] = {{}, {"run"}, {"train"}, {"finetune"}, {"profile"}, {"plna"}, {"--help"}};
  for (const Words& words : others) {
    const Answer found = run_verb(words);
    EXPECT_EQ(found.code, 2);
    EXPECT_THAT(found.error, AllOf(HasSubstr("no verb \""), HasSubstr("planners")));
  }
  const Answer help = run_verb({"plan", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.output, HasSubstr("--evaluations"));
}

TEST_F(Verbs, WhatDoesNotFitIsPrintedAllTheSame) {
  const std::string small = write("small.json", R"({"format": "heterog-cluster", "version": 1,
      "name": "small", "machines": [{"name": "a", "devices":
      [{"model": "T4", "memory_bytes": 850000000}]}]})");
  const Answer found =
      run_verb({"plan", "--graph", "models/vgg19-tiny.json.gz", "--cluster", small, "--batch",
                "1000000", "--planner", "single", "--out", path("p.json"), "--json"});
  EXPECT_EQ(found.code, 3);
  EXPECT_THAT(found.error, HasSubstr("a/gpu0 lacks"));
  EXPECT_EQ(nlohmann::json::parse(found.output)["feasible"], false);
}

TEST_F(Verbs, LeaveTheProcessAsItWas) {
  at::set_num_threads(3);
  at::set_default_dtype(caffe2::TypeMeta::Make<double>());
  at::manual_seed(7);
  const Kept before;
  // As torchrun sets them: a verb of the library is no rank all the same.
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", "1", 1);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const Answer planned = run_verb(plan("p.json") + Words{"--log-level", "debug"});
  const Words verify = Words{"verify"} + files() + Words{"--plan", path("p.json")};
  const Answer verified = run_verb(verify + Words{"--json"});
  const Answer processes = run_verb(verify + Words{"--processes"});
  const Answer hostfile = run_verb(verify + Words{"--hostfile", "hosts"});
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_THAT(printed + testing::internal::GetCapturedStderr(), IsEmpty());
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  const Kept after;
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.floats, before.floats);
  EXPECT_TRUE(at::equal(after.random, before.random));
  at::set_default_dtype(caffe2::TypeMeta::Make<float>());

  EXPECT_EQ(planned.code, 0) << planned.error;
  EXPECT_EQ(verified.code, 0) << verified.error;
  EXPECT_EQ(nlohmann::json::parse(verified.output)["ranks_are"], "threads of one process");
  EXPECT_EQ(processes.code, 2);
  EXPECT_THAT(processes.error, HasSubstr("--processes: starts the program heterog again"));
  EXPECT_EQ(hostfile.code, 2);
  EXPECT_THAT(hostfile.error, HasSubstr("--hostfile: starts the program heterog again"));
}

TEST_F(Verbs, GiveUpWhenTheyAreTold) {
  std::int32_t stop = 1;
  const Words forever =
      Words{"plan"} + files() + Words{"--batch", "16", "--budget", "1e6", "--out", path("p.json")};
  const Answer at_once = run_verb(forever, &stop);
  EXPECT_EQ(at_once.code, 4);
  EXPECT_THAT(at_once.error, HasSubstr("stopped by the caller"));

  stop = 0;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  });
  EXPECT_EQ(run_verb(forever, &stop).code, 4);
  later.join();
  ASSERT_EQ(run_verb(plan("p.json")).code, 0);
  const Answer steps = run_verb(Words{"verify"} + files() + Words{"--plan", path("p.json")}, &stop);
  EXPECT_EQ(steps.error, "stopped by the caller");
}

TEST_F(Verbs, WaitForTheOneThatRuns) {
  std::int32_t stop = 0;
  const Words forever = Words{"plan"} + files() +
                        Words{"--batch", "16", "--budget", "1e6", "--out", path("never.json")};
  std::thread first([&] { EXPECT_EQ(run_verb(forever, &stop).code, 4); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  std::thread second([&] { EXPECT_EQ(run_verb(plan("second.json")).code, 0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_FALSE(std::filesystem::exists(path("second.json")));
  // One that waits can be stopped too.
  const std::int32_t at_once = 1;
  EXPECT_EQ(run_verb(plan("third.json"), &at_once).error, "stopped by the caller");
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  first.join();
  second.join();
  EXPECT_TRUE(std::filesystem::exists(path("second.json")));
}

TEST_F(Verbs, OfSeveralThreadsEndAsOneAlone) {
  ASSERT_EQ(run_verb(plan("alone.json")).code, 0);
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([this, i, &failed] {
      failed += run_verb(plan("p" + std::to_string(i))).code != 0 ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(read_file(path("p" + std::to_string(i))), read_file(path("alone.json")));
  }
}

// A C function knows nothing of the test.
std::set<std::int32_t>& heard() {
  static std::set<std::int32_t> levels;
  return levels;
}

TEST_F(Verbs, SayWhatTheyDoToWhoListens) {
  heterog_log_to([](std::int32_t level, const char* line) {
    EXPECT_THAT(line, testing::Not(HasSubstr("\n")));
    heard().insert(level);
  });
  ASSERT_EQ(run_verb(plan("p.json")).code, 0);
  EXPECT_THAT(heard(), IsEmpty());
  ASSERT_EQ(run_verb(plan("p.json") + Words{"--log-level", "debug"}).code, 0);
  EXPECT_THAT(heard(), testing::ElementsAre(1, 2)) << "finds of the search; files";
  heterog_log_to(nullptr);
  heard().clear();
  ASSERT_EQ(run_verb(plan("p.json") + Words{"--log-level", "debug"}).code, 0);
  EXPECT_THAT(heard(), IsEmpty());
}

TEST_F(Verbs, NullPointersAreRefused) {
  const char* output = nullptr;
  const char* nothing[] = {nullptr};
  EXPECT_EQ(heterog_run_verb(nullptr, 1, nullptr, &output), 2);
  EXPECT_EQ(heterog_run_verb(nothing, 1, nullptr, &output), 2);
  EXPECT_EQ(heterog_run_verb(nothing, 0, nullptr, nullptr), 2);
  EXPECT_EQ(heterog_run_verb(nullptr, -1, nullptr, &output), 2);
  EXPECT_EQ(heterog_run_verb(nullptr, 0, nullptr, &output), 2) << "no verb";
}

}  // namespace
}  // namespace heterog::client
