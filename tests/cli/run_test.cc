// Plans executed by real processes: the same losses as in threads, and what is left when one fails.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/rng.h"
#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

using Clock = std::chrono::steady_clock;
using Variables = std::map<std::string, std::string>;

constexpr const char* kModel =
    " --graph models/lenet5-tiny.json.gz --cluster configs/clusters/local-2cpu.json";
constexpr double kEndsWithin = 10;  // seconds; far more than it takes, on a busy machine

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A program that runs beside the test.
class Process {
 public:
  // `arguments` as in a shell.
  Process(const std::string& arguments, const Variables& variables, std::string files)
      : files_(std::move(files)) {
    pid_ = fork();
    if (pid_ != 0) return;
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    const std::string command = "exec '" + std::string(HETEROG_PROGRAM) + "' " + arguments + " >'" +
                                files_ + ".out' 2>'" + files_ + ".err' </dev/null";
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  ~Process() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void kill(int number) const { ::kill(pid_, number); }

  // Its exit code, or minus the signal that ended it; kLate if it has not ended in time.
  static constexpr int kLate = 1000;
  int wait(double seconds) {
    for (const auto start = Clock::now(); seconds_since(start) < seconds;) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return kLate;
  }
  std::string out() const { return read_file(files_ + ".out"); }
  std::string err() const { return read_file(files_ + ".err"); }

  // Waits until `count` steps have been printed.
  bool await_steps(int count) const {
    for (const auto start = Clock::now(); seconds_since(start) < 60;) {
      const std::string text = std::filesystem::exists(files_ + ".out") ? out() : "";
      if (text.find("step " + std::to_string(count) + ":") != text.npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

 private:
  pid_t pid_ = -1;
  std::string files_;
};

// A zombie, whose parent has not asked for it yet, has ended.
bool runs(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::size_t name_end = text.str().rfind(") ");
  return name_end != std::string::npos && text.str()[name_end + 2] != 'Z';
}

std::vector<pid_t> children_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
  std::vector<pid_t> children;
  for (pid_t child; file >> child;) children.push_back(child);
  return children;
}

class Run : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    plan_ = path("plan.json");
    const Finished planned =
        run("plan --planner ev-ar --batch 8 --out " + plan_ + std::string(kModel));
    ASSERT_EQ(planned.code, 0) << planned.err;
  }
  std::string arguments(const std::string& more) const {
    return "run --plan " + plan_ + kModel + " " + more;
  }
  std::unique_ptr<Process> start(const std::string& name, const std::string& more,
                                 const Variables& variables = {}) const {
    return std::make_unique<Process>(arguments(more), variables, path(name));
  }
  // A rank as torchrun would start it.
  static Variables rank(int number, int port, int ranks = 2) {
    return {{"RANK", std::to_string(number)},
            {"LOCAL_RANK", std::to_string(number)},
            {"WORLD_SIZE", std::to_string(ranks)},
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", std::to_string(port)}};
  }
  // Other tests run at the same time; theirs are other processes.
  static int free_port(int offset = 0) { return 20'000 + (getpid() * 7 + offset) % 10'000; }

  static void expect_one_line(const std::string& err) {
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
    EXPECT_THAT(err, StartsWith("heterog: error: "));
  }

  std::string plan_;
};

TEST_F(Run, TrainsAlikeInThreadsAndInProcesses) {
  const nlohmann::json threads = json(run(arguments("--steps 3 --in-threads --json --seed 4")));
  const Finished finished = run(arguments("--steps 3 --json --seed 4"));
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(finished.err, "");
  const nlohmann::json processes = json(finished);
  ASSERT_EQ(processes["steps"].size(), 3u);
  for (std::size_t step = 0; step < 3; ++step) {
    const double expected = threads["steps"][step]["loss"];
    EXPECT_NEAR(processes["steps"][step]["loss"], expected, 1e-5 * std::abs(expected));
    EXPECT_GT(processes["steps"][step]["seconds"], 0);
  }
  EXPECT_NE(threads["steps"][0]["loss"], threads["steps"][1]["loss"]);
  const double measured = processes["median_step_seconds"];
  const double predicted = processes["predicted_step_seconds"];
  EXPECT_DOUBLE_EQ(processes["measured_over_predicted"], measured / predicted);
  EXPECT_EQ(processes["ranks_are"], "processes");
}

TEST_F(Run, MeasuresItsTasksUnlessToldNotTo) {
  const nlohmann::json measured = json(run(arguments("--steps 2 --in-threads --json")));
  EXPECT_FALSE(measured["drift"].empty());
  for (const std::string how : {"--in-threads", ""}) {
    const nlohmann::json alone = json(run(arguments("--steps 2 --json --no-measure " + how)));
    EXPECT_FALSE(alone.contains("drift"));
    EXPECT_GT(alone["median_step_seconds"], 0);
    EXPECT_EQ(alone["steps"].size(), 2u);
  }
  const Finished both = run(arguments("--no-measure --trace " + path("traces")));
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, AllOf(HasSubstr("--trace"), HasSubstr("--no-measure")));
}

TEST_F(Run, ASlowDeviceTakesLonger) {
  const auto median = [&](const std::string& more) {
    const Finished finished = run(arguments("--in-threads --steps 7 --threads 1 --json " + more));
    EXPECT_EQ(finished.code, 0) << finished.err;
    return json(finished)["median_step_seconds"].get<double>();
  };
  EXPECT_GT(median("--slow local/gpu1=40"), 2 * median(""));
}

TEST_F(Run, RefusesWhatMakesNoSense) {
  const auto refused = [&](const std::string& more, const std::string& part) {
    const Finished finished = run(arguments(more));
    EXPECT_EQ(finished.code, 2) << more;
    expect_one_line(finished.err);
    EXPECT_THAT(finished.err, HasSubstr(part));
  };
  refused("--steps 0", "--steps");
  refused("--timeout 0", "--timeout");
  refused("--threads -1", "--threads");
  refused("--slow local/gpu9=2", "local/gpu9");
  refused("--slow local/gpu1=fast", "FACTOR");
  refused("--master-port 70000", "--master-port");
  refused("--hostfile " + path("none"), "none");
  refused("--hostfile " + write("hosts", "a slots=1\nb slots=2\n") + " --host a", "3 slots");
  refused("--hostfile " + write("hosts", "a slots=1\nb slot=1\n") + " --host a", "hosts:2:");
  refused("--host a", "--hostfile");
}

TEST_F(Run, RefusesDevicesThatThisHostDoesNotHave) {
  const std::string model =
      " --graph models/lenet5-tiny.json.gz --cluster configs/clusters/fastt-2gpu.json";
  ASSERT_EQ(run("plan --planner ev-ar --batch 8 --out " + path("gpus.json") + model).code, 0);
  const Finished refused = run("run --plan " + path("gpus.json") + model);
  EXPECT_EQ(refused.code, 2);
  expect_one_line(refused.err);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("rank 0 ("), HasSubstr("is a CPU"),
                                 AnyOf(HasSubstr("has no CUDA"), HasSubstr("GPU"))));
  const Finished tried = run("run --any-device --steps 1 --plan " + path("gpus.json") + model);
  EXPECT_EQ(tried.code, 0) << tried.err;
}

// A build without CUDA, and a machine without a GPU, say so in one line.
TEST_F(Run, SaysWhyThereAreNoGpus) {
  const std::string model = " --graph models/lenet5-tiny.json.gz";
  const auto refused = [&](const std::string& arguments, const std::string& part) {
    const Finished finished = run(arguments + model);
    EXPECT_EQ(finished.code, 2) << arguments;
    expect_one_line(finished.err);
    EXPECT_THAT(finished.err,
                AllOf(HasSubstr(part), AnyOf(HasSubstr("has no CUDA"), HasSubstr("no GPU"))));
  };
  refused(
      "verify --cluster configs/clusters/fastt-2gpu.json --batch 8 --planner ev-ar --devices plan",
      "v100/gpu0 is a V100-SXM2-16GB");
  refused("profile --device V100-SXM2-16GB --in-steps --out " + path("p.json"), "--device: V100");
  const Finished verified =
      run("verify --cluster configs/clusters/local-2cpu.json --batch 8 --planner ev-ar --steps 1 "
          "--devices plan" +
          model);
  EXPECT_EQ(verified.code, 0) << verified.err;
}

// As torchrun, Slurm and mpirun start ranks.
TEST_F(Run, TakesItsPlaceFromTheEnvironment) {
  const std::vector<std::pair<std::string, std::vector<Variables>>> starters = {
      {"slurm",
       {{{"SLURM_STEP_ID", "0"},
         {"SLURM_PROCID", "0"},
         {"SLURM_LOCALID", "0"},
         {"SLURM_NTASKS", "2"}},
        {{"SLURM_STEP_ID", "0"},
         {"SLURM_PROCID", "1"},
         {"SLURM_LOCALID", "1"},
         {"SLURM_NTASKS", "2"}}}},
      {"mpirun",
       {{{"OMPI_COMM_WORLD_RANK", "0"},
         {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
         {"OMPI_COMM_WORLD_SIZE", "2"}},
        {{"OMPI_COMM_WORLD_RANK", "1"},
         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
         {"OMPI_COMM_WORLD_SIZE", "2"}}}},
  };
  int port = free_port(5'000);
  for (const auto& [name, ranks] : starters) {
    ++port;
    std::vector<std::unique_ptr<Process>> processes;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      Variables variables = ranks[i];
      variables["MASTER_ADDR"] = "127.0.0.1";
      variables["MASTER_PORT"] = std::to_string(port);
      processes.push_back(start(name + std::to_string(i), "--steps 2", variables));
    }
    for (const auto& process : processes) EXPECT_EQ(process->wait(60), 0) << process->err();
    EXPECT_THAT(processes[0]->out(), HasSubstr("step 2: loss"));
    EXPECT_EQ(processes[1]->out(), "") << "one rank speaks for all";
  }
}

TEST_F(Run, StartsTheRanksOfAHostfile) {
  const std::string hosts = write("hosts", "first slots=1\nsecond slots=1\n");
  const std::string more = "--steps 2 --hostfile " + hosts +
                           " --master-addr 127.0.0.1 --master-port " +
                           std::to_string(free_port(6'000));
  const auto second = start("second", more + " --host second");
  const auto first = start("first", more + " --host first");
  EXPECT_EQ(first->wait(60), 0) << first->err();
  EXPECT_EQ(second->wait(60), 0) << second->err();
  EXPECT_THAT(first->out(), HasSubstr("step 2: loss"));
}

// Twenty random moments, from before the ranks meet to the middle of a step; half of the time
// ranks are started by heterog, half by something else that does not end the others.
TEST_F(Run, EndsWhenARankIsKilledAtAnyMoment) {
  for (int seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    const int victim = static_cast<int>(rng.below(2));
    const auto moment = std::chrono::milliseconds(
        seed % 4 < 2 ? rng.below(1'000) : rng.below(100));  // from the start, or from a step on
    const std::string name = "job" + std::to_string(seed);
    const std::string more = "--steps 1000000 --timeout 20 --threads 1";
    const std::string device =
        "rank " + std::to_string(victim) + " (local/gpu" + std::to_string(victim) + ")";
    if (seed % 2 == 0) {
      const auto job = start(name, more);
      if (seed % 4 == 2) {
        ASSERT_TRUE(job->await_steps(2)) << job->err();
      }
      std::this_thread::sleep_for(moment);
      std::vector<pid_t> ranks;
      while ((ranks = children_of(job->pid())).size() < 2) std::this_thread::yield();
      const auto killed = Clock::now();
      ::kill(ranks[static_cast<std::size_t>(victim)], SIGKILL);
      EXPECT_EQ(job->wait(kEndsWithin), 4);
      EXPECT_LT(seconds_since(killed), kEndsWithin);
      for (const pid_t rank : ranks) EXPECT_FALSE(runs(rank));
      expect_one_line(job->err());
      EXPECT_THAT(job->err(), HasSubstr(device + ": ended by signal 9 (SIGKILL)"));
      continue;
    }
    // A peer that never comes is another test: here both have met.
    const int port = free_port(seed);
    const auto first = start(name + "rank0", more, rank(0, port));
    const auto second = start(name + "rank1", more, rank(1, port));
    ASSERT_TRUE(first->await_steps(1)) << first->err() << second->err();
    std::this_thread::sleep_for(moment);
    Process& killed = victim == 0 ? *first : *second;
    Process& left = victim == 0 ? *second : *first;
    killed.kill(SIGKILL);
    EXPECT_EQ(left.wait(kEndsWithin), 4);
    expect_one_line(left.err());
    EXPECT_THAT(left.err(), HasSubstr(device));
    EXPECT_THAT(left.err(), HasSubstr("lost"));
    EXPECT_EQ(killed.wait(1), -SIGKILL);
  }
}

TEST_F(Run, EndsWhenAPeerNeverComes) {
  const auto first = start("first", "--timeout 2", rank(0, free_port(7'000)));
  EXPECT_EQ(first->wait(2 + kEndsWithin), 4);
  expect_one_line(first->err());
  EXPECT_THAT(first->err(),
              AllOf(HasSubstr("rank 1 (local/gpu1): did not come"), HasSubstr("within 2 s")));
  const auto second = start("second", "--timeout 2", rank(1, free_port(7'001)));
  EXPECT_EQ(second->wait(2 + kEndsWithin), 4);
  expect_one_line(second->err());
  EXPECT_THAT(second->err(), HasSubstr("rank 0 (local/gpu0): not reached at 127.0.0.1"));
}

TEST_F(Run, RefusesARankOfAnotherJob) {
  const int port = free_port(7'002);
  const auto first = start("first", "--timeout 4 --seed 1", rank(0, port));
  const auto second = start("second", "--timeout 4 --seed 2", rank(1, port));
  EXPECT_EQ(second->wait(4 + kEndsWithin), 2);
  expect_one_line(second->err());
  EXPECT_THAT(
      second->err(),
      MatchesRegex(".*rank 1 \\(local/gpu1\\): refused: .* of job [0-9a-f]{16}, rank 0 .* of "
                   "job [0-9a-f]{16}: .*\n"));
  EXPECT_EQ(first->wait(4 + kEndsWithin), 4);
  EXPECT_THAT(first->err(), HasSubstr("rank 1 (local/gpu1): did not come"));
}

// A host that hangs: nothing is closed, nothing is answered.
TEST_F(Run, EndsWhenAPeerIsSilent) {
  for (const int victim : {0, 1}) {
    const int port = free_port(7'003 + victim);
    const std::string more = "--steps 1000000 --timeout 3 --threads 1";
    const std::string name = "silent" + std::to_string(victim);
    const auto first = start(name + "rank0", more, rank(0, port));
    const auto second = start(name + "rank1", more, rank(1, port));
    ASSERT_TRUE(first->await_steps(1)) << first->err() << second->err();
    Process& stopped = victim == 0 ? *first : *second;
    Process& left = victim == 0 ? *second : *first;
    stopped.kill(SIGSTOP);
    EXPECT_EQ(left.wait(3 + kEndsWithin), 4);
    expect_one_line(left.err());
    EXPECT_THAT(left.err(), HasSubstr("rank " + std::to_string(victim) + " (local/gpu" +
                                      std::to_string(victim) + ")"));
    EXPECT_THAT(left.err(), HasSubstr("for 3 s"));
    stopped.kill(SIGCONT);
    EXPECT_EQ(stopped.wait(3 + kEndsWithin), 4);
  }
}

// The network between ranks goes away in the middle of a step: nothing closes a connection, and the
// store does not answer either. In a network of its own, where one may be made.
TEST_F(Run, EndsWhenTheNetworkIsGone) {
  if (std::system("unshare -rn ip link set lo up >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "this machine lets nobody make a network namespace";
  }
  const auto rank_of = [&](int number) {
    std::string command;
    for (const auto& [name, value] : rank(number, 29'500)) command += name + "=" + value + " ";
    const std::string name = path("rank" + std::to_string(number));
    return command + "'" + HETEROG_PROGRAM + "' " + arguments("--steps 1000000 --timeout 3") +
           " >" + name + ".out 2>" + name + ".err & pid" + std::to_string(number) + "=$!\n";
  };
  const std::string script =
      write("script", "ip link set lo up\n" + rank_of(0) + rank_of(1) +
                          "for i in $(seq 600); do grep -q 'step 1:' " + path("rank0.out") +
                          " && break; sleep 0.1; done\n"
                          "ip link set lo down; date +%s >" +
                          path("down") + "\nwait $pid0; echo $? >" + path("code0") +
                          "; wait $pid1; echo $? >" + path("code1") + "; date +%s >" +
                          path("ended") + "\n");
  ASSERT_EQ(std::system(("timeout -s KILL 120 unshare -rn sh " + script).c_str()), 0);
  for (const int number : {0, 1}) {
    EXPECT_EQ(read_file(path("code" + std::to_string(number))), "4\n");
    const std::string err = read_file(path("rank" + std::to_string(number) + ".err"));
    expect_one_line(err);
    EXPECT_THAT(err, HasSubstr("rank " + std::to_string(1 - number) + " (local/gpu" +
                               std::to_string(1 - number) + ")"));
  }
  EXPECT_LT(std::stol(read_file(path("ended"))) - std::stol(read_file(path("down"))),
            3 + static_cast<long>(kEndsWithin));
}

TEST_F(Run, EndsWithItsRanksOnASignal) {
  const auto job = start("job", "--steps 1000000 --threads 1");
  ASSERT_TRUE(job->await_steps(1)) << job->err();
  const std::vector<pid_t> ranks = children_of(job->pid());
  ASSERT_EQ(ranks.size(), 2u);
  job->kill(SIGTERM);
  EXPECT_EQ(job->wait(kEndsWithin), 4);
  expect_one_line(job->err());
  EXPECT_THAT(job->err(), HasSubstr("signal 15 (SIGTERM)"));
  for (const pid_t rank : ranks) EXPECT_FALSE(runs(rank));
}

std::string checkpoint(const std::string& file) { return "--threads 1 --checkpoint " + file; }

TEST_F(Run, GoesOnFromACheckpointBitForBit) {
  const std::string whole = path("whole.safetensors"), parts = path("parts.safetensors");
  ASSERT_EQ(run(arguments("--steps 6 " + checkpoint(whole))).code, 0);
  ASSERT_EQ(run(arguments("--steps 2 " + checkpoint(parts))).code, 0);
  EXPECT_NE(read_file(parts), read_file(whole));
  const Finished went_on = run(arguments("--steps 6 --resume " + checkpoint(parts)));
  ASSERT_EQ(went_on.code, 0) << went_on.err;
  EXPECT_THAT(went_on.out, testing::Not(HasSubstr("step 2:")));
  EXPECT_THAT(went_on.out, HasSubstr("step 3:"));
  EXPECT_TRUE(read_file(parts) == read_file(whole));
  // Threads of one process write the same file.
  const std::string threads = path("threads.safetensors");
  ASSERT_EQ(run(arguments("--in-threads --steps 6 " + checkpoint(threads))).code, 0);
  EXPECT_TRUE(read_file(threads) == read_file(whole));
}

TEST_F(Run, RefusesACheckpointOfAnotherRun) {
  const std::string file = path("run.safetensors");
  ASSERT_EQ(run(arguments("--in-threads --steps 1 " + checkpoint(file))).code, 0);
  const Finished other =
      run(arguments("--in-threads --steps 2 --seed 5 --resume " + checkpoint(file)));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("metadata.seed"));
  const std::string bytes = read_file(file);
  const std::string cut = write("cut.safetensors", bytes.substr(0, bytes.size() - 7));
  EXPECT_EQ(run(arguments("--in-threads --steps 2 --resume " + checkpoint(cut))).code, 2);
}

// Twenty kills, each at a random moment of a run that goes on where the last one was: while ranks
// meet, in a step, while the file is written. In the end nothing is different.
TEST_F(Run, LosesNothingHoweverOftenItIsKilled) {
  const std::string straight = path("straight.safetensors"), file = path("killed.safetensors");
  const std::string steps = "--steps 400 ";
  ASSERT_EQ(run(arguments(steps + checkpoint(straight))).code, 0);
  const std::string more = steps + "--every 1 --resume " + checkpoint(file);
  int killed = 0;
  for (int seed = 0; seed < 20; ++seed) {
    Rng rng(static_cast<std::uint64_t>(seed));
    const auto job = start("kill" + std::to_string(seed), more);
    std::vector<pid_t> ranks;
    while ((ranks = children_of(job->pid())).size() < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(300 + rng.below(900)));
    ::kill(ranks[rng.below(2)], SIGKILL);
    const int code = job->wait(kEndsWithin);
    EXPECT_THAT(code, testing::AnyOf(0, 4)) << job->err();
    killed += code == 4;
  }
  EXPECT_GT(killed, 10);
  const Finished finished = run(arguments(more));
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(read_file(file) == read_file(straight));
}

TEST_F(Run, SaysThatTheDiskIsFull) {
  const Finished full = run(arguments("--steps 1 " + checkpoint("/dev/full")));
  EXPECT_EQ(full.code, 4);
  expect_one_line(full.err);
  EXPECT_THAT(full.err, AllOf(HasSubstr("rank 0 (local/gpu0)"), HasSubstr("/dev/full"),
                              HasSubstr("was not saved")));
}

}  // namespace
}  // namespace heterog::cli
