// heterog profile, and planning with what it writes.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "cli/process.h"
#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::HasSubstr;

constexpr const char* kProfiled = "models/lenet5-tiny.json.gz";

class ProfileVerb : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    cluster_ = write("cluster.json", R"({"format": "heterog-cluster", "version": 1, "name": "pair",
      "machines": [{"name": "a", "devices": [{"model": "CPU", "count": 2}],
      "fabric": {"kind": "bus", "bandwidth_bytes_per_second": 2e9, "latency_seconds": 1e-5}}]})");
  }
  std::string profile_arguments(const std::string& out, const std::string& repeat = "1") const {
    return std::string("profile --graph ") + kProfiled + " --slices 1,2,4 --repeat " + repeat +
           // A machine that runs other tests is a busy one.
           " --threads 1 --json --force --out " + path(out);
  }
  std::string problem(const std::string& graph = kProfiled) const {
    return " --graph " + graph + " --cluster " + cluster_;
  }
  void expect_refused(const std::string& arguments, const std::vector<std::string>& parts) {
    SCOPED_TRACE(arguments);
    const Finished refused = run(arguments);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_EQ(refused.out, "");
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
    for (const std::string& part : parts) EXPECT_THAT(refused.err, HasSubstr(part));
  }
  std::string cluster_;
};

// A run writes what its links did; plans are then predicted by it.
TEST_F(ProfileVerb, TakesLinksAsARunHasMeasuredThem) {
  // Of a bus without latency, all that is sent says something.
  cluster_ = write("bus.json", std::regex_replace(read_file(cluster_), std::regex("1e-5"), "1e-9"));
  ASSERT_EQ(run("plan --batch 8 --planner ev-ar --out " + path("plan.json") + problem()).code, 0);
  const std::string plan = " --plan " + path("plan.json") + problem();
  const Finished ran =
      run("run --in-threads --steps 3 --threads 1 --profile-out " + path("out") + plan);
  ASSERT_EQ(ran.code, 0) << ran.err;
  const std::string file = path("out/links.profile.json");
  auto links = nlohmann::json::parse(read_file(file));
  EXPECT_GT(links["flows"], 0);
  ASSERT_EQ(links["links"].size(), 1u);  // the bus
  EXPECT_LE(links["error_after"], links["error_before"]);
  // At a thousandth of the bandwidth the same plan takes longer.
  links["links"][0]["bandwidth_bytes_per_second"] = 2e6;
  const std::string slow = write("slow.json", links.dump());
  const auto step = [&](const std::string& more) {
    const Finished simulated = run("simulate --json" + plan + more);
    EXPECT_EQ(simulated.code, 0) << simulated.err;
    return json(simulated)["step_seconds"].get<double>();
  };
  EXPECT_GT(step(" --profile " + slow), 10 * step(""));
  EXPECT_GT(step(" --profile " + slow + " --profile " + path("out/CPU.profile.json")),
            10 * step(""));
  expect_refused("simulate" + plan + " --profile " + slow + " --profile " + file,
                 {"--profile: ", "both have links"});
  links["links"][0]["name"] = "b/bus";
  expect_refused("simulate" + plan + " --profile " + write("other.json", links.dump()),
                 {"other.json: links[0]: no link 'b/bus' in cluster pair"});
  links["links"][0] = {{"name", "a/bus"}, {"bandwidth_bytes_per_second", 0}};
  expect_refused("simulate" + plan + " --profile " + write("none.json", links.dump()),
                 {"none.json: links[0].bandwidth_bytes_per_second"});
}

// On one device a step is the sum of its ops: what `plan` predicts is what the profile adds up to.
TEST_F(ProfileVerb, GivesThePlannersItsCosts) {
  const Finished profiled = run(profile_arguments("p.json") + " --step 3");
  ASSERT_EQ(profiled.code, 0) << profiled.err;
  EXPECT_EQ(profiled.err, "");
  const auto said = json(profiled);
  EXPECT_TRUE(said["finished"].get<bool>());
  EXPECT_EQ(said["measured_now"], said["operators"]);
  EXPECT_GE(said["fit"]["worst_relative_error"], said["fit"]["median_relative_error"]);
  EXPECT_EQ(said["held_out"].size(), 3u);
  EXPECT_GT(said["links"][0]["bandwidth_bytes_per_second"].get<double>(), 0);
  EXPECT_FALSE(std::filesystem::exists(path("p.json.partial")));

  const auto profile = nlohmann::json::parse(read_file(path("p.json")));
  // Updates are one task, which takes one launch (launch_seconds of the CPU in
  // configs/devices.json).
  constexpr double kLaunch = 2e-6;
  double sum = 0, apart = 0, together = kLaunch;
  for (const auto& op : profile["operators"]) {
    const auto line = [&](double samples) {
      return op["fixed_seconds"].get<double>() + samples * op["seconds_per_sample"].get<double>();
    };
    double scale = 0;  // at 3 samples: the mean of those at 2 and 4, or the only one
    for (const auto& measured : op["measured"]) {
      const double samples = measured["samples"].get<double>();
      const double off = measured["seconds"].get<double>() / line(samples);
      if (op["measured"].size() == 1) scale = off;
      if (op["measured"].size() > 1 && samples >= 2) scale += off / 2;
    }
    const auto count = static_cast<double>(op["ops"].size());
    const double seconds = scale * line(3);
    sum += count * seconds;
    if (op["ops"][0].get<std::string>().find("_fused_sgd") == std::string::npos) continue;
    apart += count * seconds;
    together += count * std::max(seconds - kLaunch, 0.0);
  }
  EXPECT_GT(apart, together);
  EXPECT_NEAR(said["step"]["predicted_seconds"].get<double>(), sum, 1e-9 * sum);
  EXPECT_GT(said["step"]["measured_seconds"].get<double>(), 0);
  const std::string plan =
      "plan" + problem() + " --batch 3 --planner single --json --out " + path("plan.json");
  const Finished analytic = run(plan);
  const Finished measured = run(plan + " --profile " + path("p.json"));
  ASSERT_EQ(measured.code, 0) << measured.err;
  // Each op's time is kept in single precision and rounded up to a nanosecond.
  EXPECT_NEAR(json(measured)["step_seconds"].get<double>(), sum - apart + together,
              1e-6 * sum + 1e-6);
  EXPECT_NE(json(measured)["step_seconds"], json(analytic)["step_seconds"]);

  const Finished simulated = run("simulate" + problem() + " --json --check --plan " +
                                 path("plan.json") + " --profile " + path("p.json"));
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  EXPECT_EQ(json(simulated)["step_seconds"], json(measured)["step_seconds"]);
  const Finished compared = run("compare" + problem() + " --batch 3 --planner single --json " +
                                "--profile " + path("p.json"));
  ASSERT_EQ(compared.code, 0) << compared.err;
  for (const auto& row : json(compared)["planners"]) {
    if (row["name"] == "single") {
      EXPECT_EQ(row["step_seconds"], json(measured)["step_seconds"]);
    }
  }
}

TEST_F(ProfileVerb, GoesOnAfterAnInterruption) {
  const Finished part = run(profile_arguments("p.json") + " --limit 0.001");
  ASSERT_EQ(part.code, 0) << part.err;
  EXPECT_FALSE(json(part)["finished"].get<bool>());
  EXPECT_GE(json(part)["measured_now"], 1);
  EXPECT_FALSE(std::filesystem::exists(path("p.json")));
  const auto first = nlohmann::json::parse(read_file(path("p.json.partial")))["operators"][0];
  expect_refused("plan" + problem() + " --batch 4 --out " + path("plan.json") + " --profile " +
                     path("p.json.partial"),
                 {"p.json.partial", "finished"});
  expect_refused(profile_arguments("p.json", "2"), {"p.json.partial", "repeat"});

  const Finished rest = run(profile_arguments("p.json"));
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_TRUE(json(rest)["finished"].get<bool>());
  EXPECT_LT(json(rest)["measured_now"], json(rest)["operators"]);
  EXPECT_EQ(nlohmann::json::parse(read_file(path("p.json")))["operators"][0], first);
  EXPECT_FALSE(std::filesystem::exists(path("p.json.partial")));
}

// Killed once it has kept something, long before so many repeats are done: what is there is whole,
// and is gone on from.
TEST_F(ProfileVerb, LosesNothingWhenItIsKilled) {
  const std::string partial = path("p.json.partial");
  const auto kept = [&] {
    return std::filesystem::exists(partial)
               ? nlohmann::json::parse(read_file(partial))["operators"].size()
               : std::size_t{0};
  };
  {
    Process process(profile_arguments("p.json", "5000"), {}, path("killed"));
    ASSERT_TRUE(await([&] { return kept() > 0; })) << process.err();
    process.kill(SIGKILL);
    EXPECT_EQ(process.wait(), -SIGKILL);
  }
  EXPECT_FALSE(std::filesystem::exists(path("p.json")));
  const std::size_t before = kept();
  const Finished more = run(profile_arguments("p.json", "5000") + " --limit 0.001");
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_GT(kept(), before);
}

// What was measured on a machine that stood still for most of the time is not written, and planned
// with only where that is wanted, and then said.
TEST_F(ProfileVerb, OfABusyMachineIsRefused) {
  ASSERT_EQ(run(profile_arguments("p.json")).code, 0);
  auto profile = nlohmann::json::parse(read_file(path("p.json")));
  std::filesystem::remove(path("p.json"));
  // As if a burst of another program had hit one size of one operator.
  for (auto& op : profile["operators"]) {
    if (op["measured"].size() < 2) continue;
    op["measured"][0]["seconds"] = 10.0;
    break;
  }
  for (auto& link : profile["links"]) link["r2"] = 0.1;
  write("p.json.partial", profile.dump());
  const Finished forced = run(profile_arguments("p.json"));
  ASSERT_EQ(forced.code, 0) << forced.err;
  EXPECT_EQ(json(forced)["measured_now"], 0);
  const std::string plan = "plan" + problem() + " --batch 4 --planner single --out " +
                           path("plan.json") + " --profile " + path("p.json");
  const Finished planned = run(plan);
  EXPECT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.err, HasSubstr("p.json: measured on a busy machine ("));
  EXPECT_THAT(planned.err, HasSubstr("R2 is 0.10"));
  EXPECT_THAT(planned.err, HasSubstr("a whole step is off by -"));
  // Without --force the finished one is not taken: it is measured again.
  std::filesystem::rename(path("p.json"), path("p.json.partial"));
  const Finished again =
      run("profile --graph " + std::string(kProfiled) +
          " --slices 1,2,4 --repeat 1 --threads 1 --json --out " + path("p.json"));
  if (again.code == 0) {
    EXPECT_EQ(json(again)["measured_now"], json(again)["operators"]);
  } else {
    EXPECT_EQ(again.code, 4);
    EXPECT_THAT(again.err, HasSubstr("p.json is not written"));
    EXPECT_FALSE(std::filesystem::exists(path("p.json")));
  }
}

TEST_F(ProfileVerb, KnowsTheDevicesBesideIt) {
  write("devices.json", R"({"format": "heterog-devices", "version": 1, "devices": [
      {"name": "CPU-of-mine", "memory_bytes": 8000000000, "reserve_bytes": 0,
       "fp32_flops_per_second": 1e12, "half_flops_per_second": 1e12, "fp64_flops_per_second": 1e12,
       "memory_bytes_per_second": 1e10, "launch_seconds": 1e-6, "half_efficiency_flop": 0,
       "efficiency": "cpu", "calibration": "cpu"}]})");
  const Finished profiled = run(profile_arguments("p.json") + " --device CPU-of-mine");
  EXPECT_EQ(profiled.code, 0) << profiled.err;
  const auto profile = nlohmann::json::parse(read_file(path("p.json")));
  EXPECT_EQ(profile["device"], "CPU-of-mine");
  expect_refused(profile_arguments("p.json") + " --device CPU-of-his", {"CPU-of-his", "CPU-slow"});
}

TEST_F(ProfileVerb, IsRefusedWhereItDoesNotBelong) {
  ASSERT_EQ(run(profile_arguments("p.json")).code, 0);
  const std::string with = " --batch 4 --out " + path("plan.json") + " --profile " + path("p.json");
  expect_refused("plan" + problem("models/vgg19-tiny.json.gz") + with,
                 {"p.json", "graph.hash", "lenet5"});
  expect_refused(std::string("plan --graph ") + kProfiled +
                     " --cluster configs/clusters/heterog-4gpu.json" + with,
                 {"p.json", "device", "CPU", "V100"});
  expect_refused("plan" + problem() + with + " --profile " + path("p.json"), {"p.json", "device"});
  std::string text = read_file(path("p.json"));
  const std::string version = "\"version\": 1";
  ASSERT_NE(text.find(version), std::string::npos);
  write("new.json", text.replace(text.find(version), version.size(), "\"version\": 9"));
  expect_refused("plan" + problem() + " --batch 4 --out " + path("plan.json") + " --profile " +
                     path("new.json"),
                 {"new.json", "version", "expected 1, found 9"});
  EXPECT_FALSE(std::filesystem::exists(path("plan.json")));
}

TEST_F(ProfileVerb, RefusesWrongOptions) {
  const std::string profile =
      std::string("profile --graph ") + kProfiled + " --out " + path("p.json");
  expect_refused(profile + " --device CPUU", {"--device", "CPUU", "T4"});
  expect_refused(profile + " --device T4:48", {"--device: T4:48 is a part of 48", "T4 has 40"});
  expect_refused(profile + " --device CPU:1", {"--device: CPU:1 is a part of 1", "CPU has 1"});
  expect_refused(profile + " --device T4:8", {"--device: T4:8 is a GPU"});
  expect_refused(profile + " --slices 4", {"--slices", "two sizes"});
  expect_refused(profile + " --slices 0,4", {"--slices", "0"});
  expect_refused(profile + " --slices 4,4", {"--slices", "4"});
  expect_refused(profile + " --repeat 0", {"--repeat", "0"});
  expect_refused(profile + " --limit -1", {"--limit", "-1"});
  expect_refused("profile --graph models/none.json.gz --out " + path("p.json"), {"none.json.gz"});
  const Finished nowhere =
      run(std::string("profile --graph ") + kProfiled + " --out /nonexistent/p.json");
  EXPECT_EQ(nowhere.code, 4) << nowhere.err;
  EXPECT_THAT(nowhere.err, HasSubstr("/nonexistent/p.json"));
  EXPECT_FALSE(std::filesystem::exists(path("p.json")));
}

}  // namespace
}  // namespace heterog::cli
