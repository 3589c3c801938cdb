// Ranks that are shell scripts: what they are told, and what happens when one ends badly.
#include "launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "comm/threads.h"

namespace heterog::launch {
namespace {

using comm::kHasty;
using comm::kPatient;
using testing::AllOf;
using testing::HasSubstr;

class Launcher : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("heterog_launcher_" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  LaunchOptions options(int ranks, const std::string& script) const {
    return {.program = "/bin/sh",
            .arguments = {"-c", "cd '" + folder_.string() + "'; " + script},
            .device_names = comm::device_names(ranks),
            .count = ranks,
            .grace = std::chrono::milliseconds(300)};
  }
  // The message of the error, and its kind's exit code.
  static std::pair<std::string, int> failure(const LaunchOptions& options) {
    try {
      launch_ranks(options);
    } catch (const Error& error) {
      return {error.what(), static_cast<int>(error.kind())};
    }
    return {"", 0};
  }
  // Waits until the file is there and holds a line.
  std::string await(const std::string& name) const {
    for (int i = 0; i < 12'000; ++i) {
      std::ifstream file(path(name));
      std::string line;
      if (std::getline(file, line)) return line;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << name << " was not written";
    return "0";
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(Launcher, TellsRanksWhoTheyAre) {
  LaunchOptions launch =
      options(5,
              "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $HETEROG_LISTEN_SOCKET "
              ">rank$RANK");
  launch.first = 2;
  launch.count = 2;
  launch.master_address = "10.1.2.3";
  launch.master_port = 4321;
  launch_ranks(launch);
  EXPECT_EQ(read_file(path("rank2")), "2 0 5 10.1.2.3 4321\n");
  EXPECT_EQ(read_file(path("rank3")), "3 1 5 10.1.2.3 4321\n");
  EXPECT_FALSE(std::filesystem::exists(path("rank0")));
}

TEST_F(Launcher, GivesRankZeroASocketThatListens) {
  launch_ranks(options(2,
                       "echo $MASTER_PORT >port$RANK; "
                       "readlink /proc/self/fd/$HETEROG_LISTEN_SOCKET >socket$RANK; true"));
  EXPECT_THAT(read_file(path("socket0")), HasSubstr("socket:"));
  EXPECT_EQ(read_file(path("socket1")), "");
  EXPECT_EQ(read_file(path("port0")), read_file(path("port1")));
  EXPECT_NE(read_file(path("port0")), "0\n");
}

TEST_F(Launcher, PassesOnWhatRanksSay) {
  testing::internal::CaptureStderr();
  launch_ranks(options(2, "echo one >&2; printf 'no end' >&2"));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said,
              AllOf(HasSubstr("[rank 0 host/cpu0] one\n"), HasSubstr("[rank 1 host/cpu1] one\n"),
                    HasSubstr("[rank 1 host/cpu1] no end\n")));
}

TEST_F(Launcher, NamesARankThatFails) {
  const auto [line, code] =
      failure(options(3,
                      "if [ $RANK = 1 ]; then echo 'heterog: error: no memory' >&2; exit 4; fi; "
                      "for i in $(seq 1200); do sleep 0.05; done; touch lasted"));
  EXPECT_EQ(line, "rank 1 (host/cpu1): no memory");
  EXPECT_EQ(code, 4);
  EXPECT_FALSE(std::filesystem::exists(path("lasted")));
}

TEST_F(Launcher, NamesRanksWithoutDevicesByTheirNumbers) {
  LaunchOptions launch = options(2, "echo one >&2; exit $RANK");
  launch.device_names = {"", ""};
  testing::internal::CaptureStderr();
  EXPECT_EQ(failure(launch).first, "rank 1: ended with exit code 1");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("[rank 1] one\n"));
}

TEST_F(Launcher, KeepsTheNameThatARankGives) {
  const auto [line, code] = failure(
      options(2, "[ $RANK = 0 ] || { echo 'heterog: error: rank 0 (x): gone' >&2; exit 2; }"));
  EXPECT_EQ(line, "rank 0 (x): gone");
  EXPECT_EQ(code, 2);
}

// Rank 1 misses rank 0 and is gone before it.
TEST_F(Launcher, TakesTheWordOfTheRankThatAnotherMisses) {
  const std::string lost = "echo 'heterog: error: rank 0 (d/0): lost' >&2; exit 4; ";
  LaunchOptions said = options(
      2, "if [ $RANK = 1 ]; then " + lost +
             "fi; sleep 0.2; echo 'heterog: error: rank 0 (d/0): the disk is full' >&2; exit 4");
  said.device_names = {"d/0", "d/1"};
  said.grace = kPatient;  // rank 0 has all the time it needs
  EXPECT_EQ(failure(said).first, "rank 0 (d/0): the disk is full");
  LaunchOptions killed = options(2, "if [ $RANK = 1 ]; then " + lost + "fi; sleep 0.2; kill -9 $$");
  killed.device_names = said.device_names;
  killed.grace = said.grace;
  EXPECT_THAT(failure(killed).first, AllOf(HasSubstr("rank 0 (d/0)"), HasSubstr("SIGKILL")));
}

TEST_F(Launcher, NamesARankThatSaysNothing) {
  EXPECT_EQ(failure(options(2, "exit $RANK")).first, "rank 1 (host/cpu1): ended with exit code 1");
}

TEST_F(Launcher, NamesTheSignalThatEndedARank) {
  const auto [line, code] = failure(options(3, "if [ $RANK = 2 ]; then kill -9 $$; fi; sleep 60"));
  EXPECT_EQ(line, "rank 2 (host/cpu2): ended by signal 9 (SIGKILL)");
  EXPECT_EQ(code, 4);
}

// Ranks that ignore SIGTERM are killed.
TEST_F(Launcher, EndsRanksThatDoNotWantTo) {
  const auto [line, code] =
      failure(options(3, "trap '' TERM; [ $RANK = 0 ] && exit 3; while :; do sleep 0.05; done"));
  EXPECT_EQ(line, "rank 0 (host/cpu0): ended with exit code 3");
  EXPECT_EQ(code, 4);
}

// All ranks end together, or not at all: one that is stopped when another has ended never will.
TEST_F(Launcher, NamesARankThatDoesNotEndWithTheOthers) {
  LaunchOptions launch = options(3, "[ $RANK = 1 ] && kill -STOP $$; exit 0");
  launch.timeout = kHasty;
  const auto [line, code] = failure(launch);
  EXPECT_THAT(line, AllOf(HasSubstr("rank 1 (host/cpu1): did not end within 0.6 s of rank ")));
  EXPECT_EQ(code, 4);
}

TEST_F(Launcher, SaysThatAProgramCannotBeStarted) {
  LaunchOptions launch = options(2, "");
  launch.program = "/no/such/program";
  EXPECT_THAT(failure(launch).first, HasSubstr("cannot be started"));
}

// A launcher in a process of its own, sent a signal once its ranks run.
class LauncherProcess : public Launcher {
 protected:
  pid_t launch_in_a_process() { return launch_in_a_process(options(2, kSleeps)); }
  pid_t launch_in_a_process(const LaunchOptions& launch) {
    const pid_t child = fork();
    if (child == 0) {
      const auto [line, code] = failure(launch);
      write_file(path("line"), line + "\n");
      _exit(code);
    }
    pids_ = {std::stoi(await("pid0")), std::stoi(await("pid1"))};
    return child;
  }
  static constexpr const char* kSleeps = "echo $$ >pid$RANK; exec sleep 60";
  bool ranks_end() const {
    for (int i = 0; i < 12'000; ++i) {
      if (std::none_of(pids_.begin(), pids_.end(), [](pid_t pid) { return runs(pid); }))
        return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  // Of children that nobody waits for, a zombie stays.
  static bool runs(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::stringstream text;
    text << file.rdbuf();
    const std::size_t name_end = text.str().rfind(") ");
    return name_end != std::string::npos && text.str()[name_end + 2] != 'Z';
  }
  std::vector<pid_t> pids_;
};

TEST_F(LauncherProcess, PassesOnSignals) {
  for (const int number : {SIGINT, SIGTERM}) {
    const pid_t launcher = launch_in_a_process();
    kill(launcher, number);
    int status = 0;
    ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
    EXPECT_EQ(WEXITSTATUS(status), 4);
    EXPECT_TRUE(ranks_end());
    EXPECT_THAT(read_file(path("line")), HasSubstr(number == SIGINT ? "SIGINT" : "SIGTERM"));
    std::filesystem::remove(path("pid0"));
    std::filesystem::remove(path("pid1"));
  }
}

// Ranks that put things in order first, for longer than those have that only miss another.
TEST_F(LauncherProcess, PassesOnWhatARankSaysWhenItIsTold) {
  LaunchOptions launch =
      options(2,
              "trap 'sleep 0.7; echo \"heterog: error: step $RANK is saved\" >&2; exit 4' TERM; "
              "echo $$ >pid$RANK; while :; do sleep 0.05; done");
  launch.obey = kPatient;
  const pid_t launcher = launch_in_a_process(launch);
  kill(launcher, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_EQ(WEXITSTATUS(status), 4);
  EXPECT_TRUE(ranks_end());
  EXPECT_EQ(read_file(path("line")), "step 0 is saved\n");
}

TEST_F(LauncherProcess, TakesItsRanksWithItWhenKilled) {
  const pid_t launcher = launch_in_a_process();
  kill(launcher, SIGKILL);
  ASSERT_EQ(waitpid(launcher, nullptr, 0), launcher);
  EXPECT_TRUE(ranks_end());
}

}  // namespace
}  // namespace heterog::launch
