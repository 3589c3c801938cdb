// Plans executed by real processes: the same losses as in threads, and what is left when one fails.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <tuple>

#include "base/rng.h"
#include "cli/process.h"
#include "cli/program.h"
#include "support/rounds.h"

namespace heterog::cli {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

constexpr const char* kModel =
    " --graph models/lenet5-tiny.json.gz --cluster configs/clusters/local-2cpu.json";

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
                                 const Variables& variables = {},
                                 Process::Out out = Process::Out::kFile) const {
    return std::make_unique<Process>(arguments(more), variables, path(name), out);
  }
  // Those that it has started.
  static std::vector<pid_t> await_ranks(const Process& job, std::size_t count = 2) {
    std::vector<pid_t> ranks;
    EXPECT_TRUE(await([&] { return (ranks = children_of(job.pid())).size() == count; }));
    return ranks;
  }
  static std::string name(int rank) {
    return "rank " + std::to_string(rank) + " (local/gpu" + std::to_string(rank) + ")";
  }
  // Whether somebody listens on this port of 127.0.0.1.
  static bool listens(int port) {
    const int line = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{.sin_family = AF_INET,
                        .sin_port = htons(static_cast<std::uint16_t>(port)),
                        .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    const bool reached = connect(line, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(line);
    return reached;
  }
  // A test in which ranks have to meet before a time-out passes that it then waits for: with more
  // and more patience, as a busy machine may need. `attempt` says whether they had met.
  template <class Attempt>
  static void with_patience(const Attempt& attempt) {
    for (const int seconds : {3, 12, 60}) {
      if (attempt(seconds)) return;
    }
    ADD_FAILURE() << "the ranks did not meet within a minute";
  }
  static Variables rank(int number, int port, int ranks = 2) {
    return rank_variables(number, port, ranks);
  }

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

TEST_F(Run, TrainsAlikeByEveryTransport) {
  const nlohmann::json expected = json(run(arguments("--steps 3 --json")));
  const nlohmann::json found = json(run(arguments("--steps 3 --json --transport gloo")));
  for (std::size_t step = 0; step < 3; ++step) {
    const double loss = expected["steps"][step]["loss"];
    EXPECT_NEAR(found["steps"][step]["loss"], loss, 1e-5 * std::abs(loss));
  }
  const Finished verified =
      run("verify --planner ev-ps --batch 8 --processes --transport gloo" + std::string(kModel));
  EXPECT_EQ(verified.code, 0) << verified.err;
}

TEST_F(Run, SaysWhichTransportsThereAre) {
  for (const std::string& verb : {"run --plan " + plan_, std::string("verify --planner ev-ar")}) {
    const Finished finished = run(verb + " --transport nccl" + kModel);
    EXPECT_EQ(finished.code, 2);
    EXPECT_EQ(finished.err,
              "heterog: error: --transport: \"nccl\" given; this build of heterog has tcp, gloo\n");
  }
  // Threads pass tensors in memory.
  EXPECT_EQ(run(arguments("--in-threads --transport gloo")).code, 2);
  const Finished threads =
      run("verify --planner ev-ar --batch 8 --transport gloo" + std::string(kModel));
  EXPECT_EQ(threads.code, 2);
  EXPECT_THAT(threads.err, HasSubstr("--transport: \"gloo\" given; it is of ranks"));
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

// Beside the other device, in the same steps: whatever slows both down does not matter.
// Counted by the allocator, and predicted by the simulator, which knows nothing of it. Neither
// depends on time: data parallelism holds all gradients until they are summed, and pipelines keep
// to turns.
TEST_F(Run, TakesTheMemoryThatWasPredicted) {
  for (const auto& [model, batch, planner] : {
           std::tuple("bert_large24-tiny", "256", "ev-ar"),
           std::tuple("transformer6-tiny", "256", "accumulate:micro_batches=4"),
           std::tuple("gnmt4-tiny", "128", "pipedream:stages=2,micro_batches=4,turns=strict"),
       }) {
    const std::string named = std::string(" --graph models/") + model +
                              ".json.gz --cluster configs/clusters/local-2cpu.json --plan " +
                              path("memory.json");
    const Finished planned = run(std::string("plan --graph models/") + model +
                                 ".json.gz --cluster configs/clusters/local-2cpu.json --batch " +
                                 batch + " --planner " + planner + " --out " + path("memory.json"));
    ASSERT_EQ(planned.code, 0) << planned.err;
    const nlohmann::json said = json(run("run --json --steps 2" + named));
    ASSERT_EQ(said["memory"].size(), 2u);
    for (const nlohmann::json& rank : said["memory"]) {
      const double predicted = rank["predicted"]["peak_bytes"];
      const double measured = rank["measured"]["peak_bytes"];
      EXPECT_NEAR(measured / predicted, 1, 0.1) << model << ' ' << planner << rank;
      EXPECT_EQ(rank["measured"]["parameters_bytes"], rank["predicted"]["parameters_bytes"]);
      EXPECT_EQ(rank["measured"]["optimizer_bytes"], rank["predicted"]["optimizer_bytes"]);
    }
    EXPECT_THAT(run("run --steps 2" + named).out, HasSubstr("memory at the peak"));
    EXPECT_FALSE(json(run("run --json --no-measure --steps 2" + named)).contains("memory"));
  }
}

TEST_F(Run, ASlowDeviceTakesLonger) {
  const Finished finished =
      run(arguments("--in-threads --steps 9 --threads 1 --json --slow local/gpu1=40"));
  ASSERT_EQ(finished.code, 0) << finished.err;
  const nlohmann::json said = json(finished);
  double quick = 0, slow = 0;
  for (const nlohmann::json& row : said["drift"]) {
    const std::string what = row["what"];
    const double seconds = row["measured_seconds"];
    if (what.find("convolutions on local/gpu0") == 0) quick += seconds;
    if (what.find("convolutions on local/gpu1") == 0) slow += seconds;
  }
  EXPECT_GT(quick, 0);
  EXPECT_GT(slow, 4 * quick);
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
    for (const auto& process : processes) EXPECT_EQ(process->wait(), 0) << process->err();
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
  EXPECT_EQ(first->wait(), 0) << first->err();
  EXPECT_EQ(second->wait(), 0) << second->err();
  EXPECT_THAT(first->out(), HasSubstr("step 2: loss"));
}

// Two machines whose hosts serve: of each, two devices and the host, which come last in the job.
// The losses are those of threads.
TEST_F(Run, StartsHostsThatServeWithTheirMachines) {
  const std::string on = " --graph models/lenet5-tiny.json.gz --cluster " +
                         write("served.json", served_cluster(2)) + " ";
  const std::string plan = path("served_plan.json");
  const Finished planned = run("plan --planner ev-ps --batch 8 --out " + plan + on);
  ASSERT_EQ(planned.code, 0) << planned.err;
  const std::string two_steps = "run --steps 2 --plan " + plan + on;
  const std::string more =
      two_steps + "--hostfile " + write("hosts", "first slots=3\nsecond slots=3\n") +
      " --master-addr 127.0.0.1 --master-port " + std::to_string(free_port(6'000));
  Process second(more + " --host second", {}, path("second")),
      first(more + " --host first", {}, path("first"));
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_THAT(first.out(), HasSubstr("6 ranks, processes"));
  const auto losses = [](const std::string& out) {
    std::vector<std::string> found;
    for (std::size_t at = 0; (at = out.find("loss ", at)) != out.npos; ++at) {
      found.push_back(out.substr(at, out.find(',', at) - at));
    }
    return found;
  };
  const std::vector<std::string> said = losses(first.out());
  EXPECT_EQ(said.size(), 2u);
  EXPECT_EQ(said, losses(run(two_steps + "--in-threads").out));
  const Finished few =
      run(two_steps + "--host first --hostfile " + write("few", "first slots=4\n"));
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(few.err, HasSubstr("has 4 slots in all, cluster served has 4 devices and 2 hosts"));
}

// Moments from before the ranks meet to the middle of a step; half of the time ranks are
// started by heterog, half by something else that does not end the others; by each transport.
TEST_F(Run, EndsWhenARankIsKilledAtAnyMoment) {
  for (int seed = 0; seed < support::rounds(32); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    const int victim = static_cast<int>(rng.below(2));
    const int steps = static_cast<int>(rng.below(seed % 4 < 2 ? 2 : 30));  // it has done, or more
    const std::string job_name = "job" + std::to_string(seed);
    const std::string more = "--steps 1000000 --timeout 300 --threads 1 --transport " +
                             std::string(seed % 8 < 4 ? "tcp" : "gloo");
    if (seed % 2 == 0) {
      const auto job = start(job_name, more);
      const std::vector<pid_t> ranks = await_ranks(*job);
      ASSERT_EQ(ranks.size(), 2u);
      if (steps > 0) {
        ASSERT_TRUE(job->await_step(steps)) << job->err();
      }
      ::kill(ranks[static_cast<std::size_t>(victim)], SIGKILL);
      EXPECT_EQ(job->wait(), 4);
      for (const pid_t rank : ranks) EXPECT_FALSE(runs(rank));
      expect_one_line(job->err());
      EXPECT_THAT(job->err(), HasSubstr(name(victim) + ": ended by signal 9 (SIGKILL)"));
      EXPECT_THAT(job->err(), HasSubstr("; to go on without it, take it out of "));
      EXPECT_THAT(job->err(), HasSubstr(": heterog plan --from "));
      continue;
    }
    // A peer that never comes is another test: here both have met.
    const int port = free_port(seed);
    const auto first = start(job_name + "rank0", more, rank(0, port));
    const auto second = start(job_name + "rank1", more, rank(1, port));
    ASSERT_TRUE(first->await_step(1 + steps)) << first->err() << second->err();
    Process& killed = victim == 0 ? *first : *second;
    Process& left = victim == 0 ? *second : *first;
    killed.kill(SIGKILL);
    EXPECT_EQ(left.wait(), 4);
    expect_one_line(left.err());
    EXPECT_THAT(left.err(), HasSubstr(name(victim)));
    EXPECT_THAT(left.err(), HasSubstr("lost"));
    EXPECT_EQ(killed.wait(), -SIGKILL);
  }
}

TEST_F(Run, EndsWhenAPeerNeverComes) {
  const auto first = start("first", "--timeout 2", rank(0, free_port(7'000)));
  EXPECT_EQ(first->wait(), 4);
  expect_one_line(first->err());
  EXPECT_THAT(first->err(), AllOf(HasSubstr(name(1) + ": did not come"), HasSubstr("within 2 s")));
  const auto second = start("second", "--timeout 2", rank(1, free_port(7'001)));
  EXPECT_EQ(second->wait(), 4);
  expect_one_line(second->err());
  EXPECT_THAT(second->err(), HasSubstr(name(0) + ": not reached at 127.0.0.1"));
}

TEST_F(Run, RefusesARankOfAnotherJob) {
  with_patience([&](int seconds) {
    const int port = free_port(7'002 + seconds);
    const std::string more = "--timeout " + std::to_string(seconds);
    const auto first = start("first", more + " --seed 1", rank(0, port));
    const auto second = start("second", more + " --seed 2", rank(1, port));
    const int code = second->wait();
    EXPECT_EQ(first->wait(), 4);
    EXPECT_THAT(first->err(), HasSubstr(name(1) + ": did not come"));
    expect_one_line(second->err());
    if (code == 4) return false;
    EXPECT_EQ(code, 2);
    EXPECT_THAT(
        second->err(),
        MatchesRegex(".*rank 1 \\(local/gpu1\\): refused: .* of job [0-9a-f]{16}, rank 0 .* of "
                     "job [0-9a-f]{16}: .*\n"));
    return true;
  });
}

// A host that hangs: nothing is closed, nothing is answered.
TEST_F(Run, EndsWhenAPeerIsSilent) {
  for (const auto& [victim, transport] :
       {std::pair{0, "tcp"}, {1, "tcp"}, {0, "gloo"}, {1, "gloo"}}) {
    with_patience([&, victim = victim, transport = std::string(transport)](int seconds) {
      const int port = free_port(7'100 + 4 * seconds + victim + (transport == "gloo" ? 2 : 0));
      const std::string more = "--steps 1000000 --threads 1 --timeout " + std::to_string(seconds) +
                               " --transport " + transport;
      const std::string job_name = "silent" + std::to_string(victim);
      const auto first = start(job_name + "rank0", more, rank(0, port));
      const auto second = start(job_name + "rank1", more, rank(1, port));
      if (!first->await_step(1)) return false;
      Process& stopped = victim == 0 ? *first : *second;
      Process& left = victim == 0 ? *second : *first;
      stopped.kill(SIGSTOP);
      EXPECT_EQ(left.wait(), 4);
      expect_one_line(left.err());
      if (left.err().find(name(victim)) == std::string::npos) return false;  // it was slow before
      EXPECT_THAT(left.err(), AnyOf(HasSubstr("for " + std::to_string(seconds) + " s"),
                                    HasSubstr("job's store (no answer")));
      stopped.kill(SIGCONT);
      EXPECT_EQ(stopped.wait(), 4);
      return true;
    });
  }
}

// The kernel takes connections for a process that is stopped, so that its silence is all there is.
TEST_F(Run, EndsWhenRankZeroIsStoppedWhileRanksMeet) {
  const auto job = start("job", "--timeout 2");
  const std::vector<pid_t> ranks = await_ranks(*job);
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[0], SIGSTOP);
  EXPECT_EQ(job->wait(), 4);
  expect_one_line(job->err());
  EXPECT_THAT(job->err(), HasSubstr(name(0) + ": not reached"));
  for (const pid_t rank : ranks) EXPECT_FALSE(runs(rank));

  // It listens, and the other comes only then.
  const int port = free_port(7'300);
  const auto first = start("first", "--timeout 300", rank(0, port));
  ASSERT_TRUE(await([&] { return listens(port); }));
  first->kill(SIGSTOP);
  const auto second = start("second", "--timeout 2", rank(1, port));
  EXPECT_EQ(second->wait(), 4);
  expect_one_line(second->err());
  EXPECT_THAT(second->err(), HasSubstr(name(0)));
}

// As rank 0 writes what there is to write after the last step, it comes to a stop.
TEST_F(Run, EndsWhenARankFreezesAfterTheLastStep) {
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);  // that nobody ever reads
  with_patience([&](int seconds) {
    const auto job = start(
        "job", "--steps 1 --timeout " + std::to_string(seconds) + " --checkpoint " + path("fifo"));
    EXPECT_EQ(job->wait(), 4);
    expect_one_line(job->err());
    if (job->out().find("step 1:") == std::string::npos) return false;
    EXPECT_THAT(job->err(), HasSubstr(name(0) + ": did not send for"));
    return true;
  });
}

// The network between ranks goes away in the middle of a step: nothing closes a connection, and the
// store does not answer either. In a network of its own, where one may be made.
TEST_F(Run, EndsWhenTheNetworkIsGone) {
  if (std::system("unshare -rn ip link set lo up >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "this machine lets nobody make a network namespace";
  }
  with_patience([&](int seconds) {
    const auto rank_of = [&](int number) {
      std::string command;
      for (const auto& [key, value] : rank(number, 29'500)) command += key + "=" + value + " ";
      const std::string files = path("rank" + std::to_string(number));
      return command + "'" + HETEROG_PROGRAM + "' " +
             arguments("--steps 1000000 --timeout " + std::to_string(seconds)) + " >" + files +
             ".out 2>" + files + ".err & pid" + std::to_string(number) + "=$!\n";
    };
    const std::string script =
        write("script", "ip link set lo up\n" + rank_of(0) + rank_of(1) +
                            "until grep -q 'step 1:' " + path("rank0.out") +
                            "; do kill -0 $pid0 2>/dev/null || break; sleep 0.1; done\n" +
                            "ip link set lo down\nwait $pid0; echo $? >" + path("code0") +
                            "; wait $pid1; echo $? >" + path("code1") + "\n");
    const std::string limit = std::to_string(kForEver.count());
    const std::string command = "timeout -s KILL " + limit + " unshare -rn sh " + script;
    EXPECT_EQ(std::system(command.c_str()), 0) << "it does not end";
    // Rank 0 that misses the store before it misses the other was too slow for the time-out.
    const bool met = read_file(path("rank0.out")).find("step 1:") != std::string::npos &&
                     read_file(path("rank0.err")).find("job's store") == std::string::npos;
    for (const int number : {0, 1}) {
      EXPECT_EQ(read_file(path("code" + std::to_string(number))), "4\n");
      const std::string err = read_file(path("rank" + std::to_string(number) + ".err"));
      expect_one_line(err);
      EXPECT_THAT(err, HasSubstr(met ? name(1 - number) : "rank "));
    }
    return met;
  });
}

TEST_F(Run, EndsWithItsRanksOnASignal) {
  const auto job = start("job", "--steps 1000000 --threads 1");
  ASSERT_TRUE(job->await_step(1)) << job->err();
  const std::vector<pid_t> ranks = children_of(job->pid());
  ASSERT_EQ(ranks.size(), 2u);
  job->kill(SIGTERM);
  EXPECT_EQ(job->wait(), 4);
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
  // One bit of a value, refused by every rank, and said once.
  std::string flipped = bytes;
  flipped[flipped.size() - 5] = static_cast<char>(flipped[flipped.size() - 5] ^ 0x10);
  const Finished damaged =
      run(arguments("--steps 2 --resume " + checkpoint(write("flipped.safetensors", flipped))));
  EXPECT_EQ(damaged.code, 2);
  expect_one_line(damaged.err);
  EXPECT_THAT(damaged.err, AllOf(HasSubstr("flipped.safetensors"), HasSubstr("checksum")));
}

// What a file says a device's type is called becomes the name of a file of --profile-out.
TEST_F(Run, WritesNothingOutsideTheFoldersItIsGiven) {
  std::string devices = read_file("configs/devices.json");
  const std::string cpu = "\"name\": \"CPU\"";
  ASSERT_NE(devices.find(cpu), std::string::npos);
  std::filesystem::create_directories(path("machines"));
  for (const std::string type : {"../CPU", "CPU/../../CPU", ".CPU"}) {
    std::string changed = devices;
    changed.replace(changed.find(cpu), cpu.size(), "\"name\": \"" + type + "\"");
    write("machines/devices.json", changed);
    write("machines/cluster.json",
          R"({"format": "heterog-cluster", "version": 1, "name": "one", "machines": [{"name": "a",
              "devices": [{"model": ")" +
              type + R"("}]}]})");
    const Finished refused =
        run("plan --planner single --batch 8 --out " + path("one.json") +
            " --graph models/lenet5-tiny.json.gz --cluster " + path("machines/cluster.json"));
    EXPECT_EQ(refused.code, 2) << type;
    expect_one_line(refused.err);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("machines/devices.json"), HasSubstr(type)));
  }
}

// Twenty kills of a run that goes on where the last one was: while ranks meet, in a step, while the
// file is written. In the end nothing is different. The run goes no further than its lines are
// taken, so that every kill finds it at work.
TEST_F(Run, LosesNothingHoweverOftenItIsKilled) {
  const std::string straight = path("straight.safetensors"), file = path("killed.safetensors");
  const std::string steps = "--steps 200 ";  // more than the lines that all rounds take
  ASSERT_EQ(run(arguments(steps + checkpoint(straight))).code, 0);
  const std::string more = steps + "--every 1 --resume " + checkpoint(file);
  const auto writes = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(path(""))) {
      const std::string name = entry.path().filename();
      if (name.find("killed.safetensors.") == 0 && name.ends_with(".tmp")) return true;
    }
    return false;
  };
  for (int seed = 0; seed < support::rounds(32); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    const auto job = start("kill" + std::to_string(seed), more, {}, Process::Out::kLines);
    const std::vector<pid_t> ranks = await_ranks(*job);
    ASSERT_EQ(ranks.size(), 2u);
    for (std::uint64_t line = 0, lines = rng.below(5); line < lines; ++line) {
      ASSERT_NE(job->line(), "") << job->err();
    }
    const bool in_the_middle = rng.below(2) == 0;  // of a file, if it can be caught at it
    for (int look = 0; look < 2000 && in_the_middle && !writes(); ++look) continue;
    ::kill(ranks[rng.below(2)], SIGKILL);
    job->hear_no_more();
    EXPECT_EQ(job->wait(), 4) << job->err();
  }
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
