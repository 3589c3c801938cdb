// heterog launch, with a local shell in place of ssh.
#include <gmock/gmock.h>

#include <algorithm>

#include "cli/process.h"
#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class LaunchTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write("hosts", "big slots=2\nsmall\n");
    // As ssh: the host, then a line for its shell. What hosts it is called for, it notes.
    rsh_ = write("rsh",
                 "#!/bin/sh\necho \"$1\" >>'" + path("called") + "'\nshift\nexec sh -c \"$*\"\n");
    std::filesystem::permissions(rsh_, std::filesystem::perms::owner_all);
  }
  std::string launch(const std::string& command, const std::string& more = "") const {
    return "launch --hostfile '" + path("hosts") + "' --rsh '" + rsh_ + "' " + more + " -- " +
           command;
  }
  std::string rsh_;
};

TEST_F(LaunchTest, GivesEveryRankItsPlaceAndPassesOnWhatItSays) {
  const Finished done = run(launch(
      R"(sh -c 'echo "$RANK $LOCAL_RANK $LOCAL_WORLD_SIZE of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT $GREETING"; echo to-stderr >&2')",
      "--master-port 1234 --env GREETING='it'\"'\"'s'"));
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("[rank 0 big] 0 0 2 of 3 at big:1234 it's\n"),
                              HasSubstr("[rank 1 big] 1 1 2 of 3 at big:1234 it's\n"),
                              HasSubstr("[rank 2 small] 2 0 1 of 3 at big:1234 it's\n")));
  EXPECT_THAT(done.err, HasSubstr("[rank 2 small] to-stderr\n"));
  const std::string called = read_file(path("called"));
  EXPECT_EQ(std::count(called.begin(), called.end(), '\n'), 3);
  EXPECT_THAT(called, HasSubstr("small"));
}

TEST_F(LaunchTest, RunsInThisFolderWithThisEnvironment) {
  const Finished done =
      run_under("NCCL_DEBUG=INFO SECRET=no", launch("sh -c 'echo \"$PWD,$NCCL_DEBUG,$SECRET.\"'"));
  EXPECT_THAT(done.out, HasSubstr(std::filesystem::current_path().string() + ",INFO,"));
  EXPECT_THAT(run(launch("pwd", "--chdir /tmp")).out, HasSubstr("[rank 0 big] /tmp\n"));
}

TEST_F(LaunchTest, EndsAllWhenOneFailsAndEndsAsItDid) {
  const Finished done =
      run(launch("sh -c 'if [ $RANK = 1 ]; then exit 7; fi; sleep 300; echo never'"));
  EXPECT_EQ(done.code, 7);
  EXPECT_THAT(done.err, HasSubstr("rank 1 big: ended with exit code 7"));
  EXPECT_THAT(done.out, Not(HasSubstr("never")));
  const Finished killed = run(launch("sh -c 'if [ $RANK = 2 ]; then kill -9 $$; fi; sleep 300'"));
  EXPECT_EQ(killed.code, 128 + 9);
  EXPECT_THAT(killed.err, HasSubstr("rank 2 small: ended by signal 9 (SIGKILL)"));
}

// A rank with children, one of which hears no SIGTERM: none is left.
TEST_F(LaunchTest, PassesSignalsOnAndLeavesNobody) {
  const std::string pids = path("pids");
  Process process(launch("sh -c 'sleep 300 & echo $! >>" + pids +
                         "; (trap \"\" TERM; exec sleep 300) & echo $! >>" + pids + "; wait'"),
                  {}, path("launch"));
  ASSERT_TRUE(await([&] {
    if (!std::filesystem::exists(pids)) return false;
    const std::string all = read_file(pids);
    return std::count(all.begin(), all.end(), '\n') == 6;
  }));
  process.kill(SIGTERM);
  EXPECT_EQ(process.wait(), 128 + SIGTERM);
  std::istringstream all(read_file(pids));
  for (pid_t pid = 0; all >> pid;) {
    EXPECT_TRUE(await([&] { return !runs(pid); })) << pid;
  }
}

// When launch itself is killed, the connections close, and hosts end their ranks by themselves.
TEST_F(LaunchTest, RanksEndWithAConnection) {
  const std::string pids = path("pids");
  Process process(launch("sh -c 'echo $$ >>" + pids + "; exec sleep 300'"), {}, path("launch"));
  ASSERT_TRUE(await([&] {
    if (!std::filesystem::exists(pids)) return false;
    const std::string all = read_file(pids);
    return std::count(all.begin(), all.end(), '\n') == 3;
  }));
  process.kill(SIGKILL);
  std::istringstream all(read_file(pids));
  for (pid_t pid = 0; all >> pid;) {
    EXPECT_TRUE(await([&] { return !runs(pid); })) << pid;
  }
}

TEST_F(LaunchTest, RunsAPlanOnTwoHosts) {
  write("hosts", "one\ntwo\n");
  const std::string files =
      " --graph models/lenet5-tiny.json.gz --cluster configs/clusters/local-2cpu.json ";
  ASSERT_EQ(run("plan" + files + "--batch 8 --planner ev-ar --out " + path("plan.json")).code, 0);
  const std::string port = std::to_string(20'000 + (getpid() * 7 + 8'000) % 10'000);
  const Finished ran = run(launch("run" + files + "--plan " + path("plan.json") + " --steps 2",
                                  "--master-addr 127.0.0.1 --master-port " + port));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("[rank 0 one] step 2: loss"), Not(HasSubstr("[rank 1"))));
}

// ssh takes a host that begins with a dash for an option, which may run any command.
TEST_F(LaunchTest, HandsNoHostToSshAsAnOption) {
  write("hosts", "-oProxyCommand=touch${IFS}" + path("touched") + "\n");
  const Finished refused = run(launch("true", "--master-addr here"));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("hosts:1: \"-oProxyCommand"), HasSubstr("[USER@]NAME")));
  write("hosts", "big\n");
  const std::string ssh =
      write("ssh", "#!/bin/sh\n[ \"$1\" = -- ] || exit 9\nshift 2\nexec sh -c \"$*\"\n");
  std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
  EXPECT_EQ(run("launch --hostfile '" + path("hosts") + "' --rsh '" + ssh + "' -- true").code, 0);
}

TEST_F(LaunchTest, RefusesWhatCannotWork) {
  EXPECT_THAT(run("launch --hostfile /no/hosts -- true").err, HasSubstr("/no/hosts"));
  EXPECT_EQ(run(launch("true", "--env 1A=2")).code, 2);
  EXPECT_THAT(run(launch("true", "--env NOT_SET_HERE")).err, HasSubstr("NOT_SET_HERE"));
  write("hosts", "localhost\nother\n");
  EXPECT_THAT(run(launch("true")).err, AllOf(HasSubstr("other"), HasSubstr("--master-addr")));
  EXPECT_EQ(run("launch --master-addr here --rsh /no/such/shell --hostfile '" + path("hosts") +
                "' -- true")
                .code,
            1);
}

}  // namespace
}  // namespace heterog::cli
