// The verbs that look at plans: explain, diff, report, and the memory of simulate.
#include <gmock/gmock.h>

#include <algorithm>

#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

const std::string kOn =
    " --graph models/vgg19-tiny.json.gz --cluster configs/clusters/heterog-4gpu.json ";

class Views : public ProgramTest {
 protected:
  std::string made_by(const std::string& planner) {
    const std::string file = path(planner + ".json");
    const Finished planned = run("plan " + kTiny + " --planner " + planner + " --out " + file);
    EXPECT_EQ(planned.code, 0) << planned.err;
    return file;
  }
  Json output(const std::string& arguments) {
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.code, 0) << finished.err;
    EXPECT_EQ(finished.err, "");
    return json(finished);
  }
};

std::int64_t nanoseconds(const Json& seconds) { return std::llround(seconds.get<double>() * 1e9); }

// Elements close in the order in which they open; what stands in scripts and styles is no markup.
void expect_nested(const std::string& page) {
  std::vector<std::string> open;
  for (std::size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    const bool closes = page[at + 1] == '/';
    const std::size_t begin = at + (closes ? 2 : 1);
    if (page[begin] == '!') continue;
    const std::string name = page.substr(begin, page.find_first_of(" >", begin) - begin);
    if (name == "meta" || name == "input") continue;
    if (closes) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), name);
      open.pop_back();
      continue;
    }
    open.push_back(name);
    if (name == "script" || name == "style") at = page.find("</" + name, at) - 1;
  }
  EXPECT_TRUE(open.empty());
}

TEST_F(Views, SimulateSaysWhatThePeakIsMadeOf) {
  for (const char* planner : {"cp-ar", "ev-ps", "horovod"}) {
    const Json simulated = output("simulate" + kOn + "--json --plan " + made_by(planner));
    for (const Json& device : simulated["devices"]) {
      const Json& memory = device["memory"];
      std::int64_t sum = 0;
      for (const char* purpose :
           {"parameters", "optimizer_state", "buffers", "reserve", "gradients", "activations",
            "temporaries", "buckets", "workspace"}) {
        sum += memory[std::string(purpose) + "_bytes"].get<std::int64_t>();
      }
      EXPECT_EQ(sum, device["peak_bytes"].get<std::int64_t>());
      EXPECT_GT(memory["parameters_bytes"].get<std::int64_t>(), 0);
      EXPECT_GT(memory["activations_bytes"].get<std::int64_t>(), 0);
      EXPECT_LE(nanoseconds(memory["at_seconds"]), nanoseconds(simulated["step_seconds"]));
      std::int64_t before = device["peak_bytes"].get<std::int64_t>();
      for (const Json& held : memory["largest"]) {
        EXPECT_LE(held["bytes"].get<std::int64_t>(), before);
        before = held["bytes"].get<std::int64_t>();
        for (const char* key : {"name", "purpose", "made_by", "kept_until"}) {
          EXPECT_NE(held[key].get<std::string>(), "");
        }
      }
    }
  }
}

TEST_F(Views, ExplainFollowsTheStepWithoutAGap) {
  for (const char* planner : {"cp-ar", "ev-ps"}) {
    const std::string plan = made_by(planner);
    const Json explained = output("explain" + kOn + "--batch 32 --json --plan " + plan);
    const Json simulated = output("simulate" + kOn + "--json --plan " + plan);
    EXPECT_EQ(explained["step_seconds"], simulated["step_seconds"]);
    const std::int64_t step = nanoseconds(explained["step_seconds"]);
    std::int64_t at = 0;
    for (const Json& segment : explained["critical_path"]) {
      EXPECT_EQ(nanoseconds(segment["begin_seconds"]), at);
      at += nanoseconds(segment["seconds"]);
      EXPECT_EQ(segment.contains("waited_for"), segment["cause"] != "start");
    }
    EXPECT_EQ(at, step);
    const auto sum = [&](const Json& list, const char* key) {
      std::int64_t total = 0;
      for (const Json& item : list) total += nanoseconds(item[key]);
      return total;
    };
    EXPECT_EQ(sum(explained["by_kind"], "seconds"), step);
    EXPECT_EQ(sum(explained["by_group"], "seconds"), step);
    EXPECT_EQ(sum(explained["stretches"], "seconds"), step);
    for (std::size_t i = 0; i < explained["devices"].size(); ++i) {
      const Json& device = explained["devices"][i];
      EXPECT_EQ(device["computing_seconds"], simulated["devices"][i]["busy_seconds"]);
      std::int64_t total = 0;
      for (const char* key : {"computing", "moving", "queued", "waiting", "done"}) {
        total += nanoseconds(device[std::string(key) + "_seconds"]);
      }
      EXPECT_EQ(total, step);
    }
    std::int64_t largest = 0;
    for (const auto& [name, bound] : explained["bounds"].items()) {
      largest = std::max(largest, nanoseconds(bound));
    }
    EXPECT_EQ(nanoseconds(explained["lower_bound_seconds"]), largest);
    EXPECT_LE(largest, step);
    // 4 devices of 2 types on 2 machines, each with a NIC and, where there are two, ports.
    EXPECT_GE(explained["twice_as_fast"].size(), 8u);
    const Json& best = explained["twice_as_fast"][0];
    EXPECT_EQ(step - nanoseconds(best["saved_seconds"]), nanoseconds(best["step_seconds"]));
    EXPECT_GT(nanoseconds(best["saved_seconds"]), 0);
  }
}

// One plan has one bound, whoever names it. On a network of 10 ms it is that of one machine, the
// collectives, which wait for one another and do not begin with the step.
TEST_F(Views, SimulateAndExplainNameTheSameBound) {
  std::string text = read_file("configs/clusters/heterog-4gpu.json");
  const std::string latency = "\"latency_seconds\": 3e-6";
  ASSERT_NE(text.find(latency), std::string::npos);
  text.replace(text.find(latency), latency.size(), "\"latency_seconds\": 1e-2");
  const std::string on =
      " --graph models/vgg19-tiny.json.gz --cluster " + write("far.json", text) + " ";
  const std::string plan = path("plan.json");
  ASSERT_EQ(run("plan" + on + "--batch 32 --planner cp-ar --out " + plan).code, 0);
  for (const std::string collectives : {"per-device", "serial"}) {
    const std::string with = on + "--json --plan " + plan + " --collectives " + collectives;
    const Json simulated = output("simulate" + with), explained = output("explain" + with);
    EXPECT_EQ(simulated["lower_bound_seconds"], explained["lower_bound_seconds"]);
    EXPECT_EQ(simulated["any_plan_bound_seconds"], explained["any_plan_bound_seconds"]);
    const Json& bounds = explained["bounds"];
    EXPECT_EQ(bounds["plan_one_machine_seconds"], explained["lower_bound_seconds"]);
    EXPECT_GT(bounds["plan_one_machine_seconds"], bounds["plan_collectives_seconds"]);
    EXPECT_LE(simulated["lower_bound_seconds"].get<double>(),
              simulated["step_seconds"].get<double>());
  }
}

TEST_F(Views, ExplainFitsOnAScreen) {
  const Finished explained = run("explain" + kOn + "--plan " + made_by("ev-ps"));
  ASSERT_EQ(explained.code, 0) << explained.err;
  EXPECT_LE(std::count(explained.out.begin(), explained.out.end(), '\n'), 100);
  for (const char* part : {"critical path:", "on the path", "busiest", "no order of this plan"}) {
    EXPECT_THAT(explained.out, HasSubstr(part));
  }
}

TEST_F(Views, DiffOfAPlanWithItselfIsNothing) {
  const std::string plan = made_by("cp-ar");
  const Json same = output("diff" + kOn + "--json " + plan + " " + plan);
  EXPECT_EQ(same["groups_changed"], 0);
  EXPECT_EQ(same["time_share_changed"].get<double>(), 0);
  EXPECT_TRUE(same["decisions"].empty());
  EXPECT_TRUE(same["parameters"].empty());
  EXPECT_EQ(same["a"]["step_seconds"], same["b"]["step_seconds"]);
}

TEST_F(Views, DiffNamesWhatIsDecidedDifferently) {
  const std::string a = made_by("ev-ps"), b = made_by("cp-ar");
  const Json diff = output("diff" + kOn + "--json " + a + " " + b);
  EXPECT_EQ(diff["groups_changed"], diff["groups"]);
  EXPECT_NEAR(diff["time_share_changed"].get<double>(), 1, 1e-9);
  ASSERT_EQ(diff["decisions"].size(), 1u);
  EXPECT_EQ(diff["decisions"][0]["a"], "all devices equally, ps");
  EXPECT_THAT(diff["decisions"][0]["b"].get<std::string>(), HasSubstr("all-reduce"));
  for (const Json& change : diff["parameters"]) {
    EXPECT_THAT(change["a"].get<std::string>(), HasSubstr("ps at "));
    EXPECT_EQ(change["b"], "all-reduce over 4 devices");
  }
  for (const auto& [side, plan] : {std::pair("a", a), std::pair("b", b)}) {
    const Json simulated = output("simulate" + kOn + "--json --plan " + plan);
    EXPECT_EQ(diff[side]["step_seconds"], simulated["step_seconds"]);
    for (std::size_t i = 0; i < simulated["devices"].size(); ++i) {
      EXPECT_EQ(diff["devices"][i][std::string(side) + "_peak_bytes"],
                simulated["devices"][i]["peak_bytes"]);
    }
    for (std::size_t i = 0; i < simulated["links"].size(); ++i) {
      EXPECT_EQ(diff["links"][i][std::string(side) + "_bytes"], simulated["links"][i]["bytes"]);
    }
  }
  const Finished text = run("diff" + kOn + a + " " + b);
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("all devices equally, ps"));
}

// Where no baseline fits, the page compares with what is done by hand: gradients accumulated.
TEST_F(Views, AReportWhereNoBaselineFitsListsAccumulation) {
  const std::string cluster =
      R"({"format": "heterog-cluster", "version": 1, "name": "small", "machines": [
          {"name": "m", "devices": [{"model": "V100-PCIE-16GB", "count": 2, "memory_bytes": 4200000000}],
           "fabric": {"kind": "switch", "link": "pcie3"}}],
          "network": {"latency_seconds": 3e-6}})";
  const std::string file = path("small.json"), plan = path("accumulated.json");
  const std::string on = " --graph models/vgg19.json.gz --batch 64 --cluster " + file;
  write_file(file, cluster);
  for (const char* baseline : {"ev-ps", "ev-ar", "cp-ps", "cp-ar", "horovod"}) {
    ASSERT_EQ(run("plan" + on + " --out " + plan + " --planner " + baseline).code, 3) << baseline;
  }
  ASSERT_EQ(run("plan" + on + " --out " + plan + " --planner accumulate").code, 0);
  const std::string out = path("page.html");
  const Finished made = run("report" + on + " --plan " + plan + " --out " + out);
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(read_file(out), HasSubstr(R"("name":"accumulate","baseline":true,"step":)"));
}

TEST_F(Views, ReportIsOnePageWithTheFiguresOfSimulate) {
  const std::string a = made_by("cp-ar"), b = made_by("ev-ps");
  const std::string out = path("page.html");
  const Json said = output("report" + kOn + "--json --plan " + a + " " + b + " --out " + out);
  const std::string page = read_file(out);
  EXPECT_EQ(said["bytes"], page.size());
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
  // Nothing is fetched: no address, no import, no element that names a file.
  for (const char* fetch : {"http:", "https:", "src=", "url(", "@import", "<link", "import(",
                            "fetch(", "XMLHttpRequest", "@DATA@", "@SCRIPT@", "@STYLE@"}) {
    EXPECT_THAT(page, testing::Not(HasSubstr(fetch)));
  }
  expect_nested(page);

  const std::string mark = "<script id=\"data\" type=\"application/json\">";
  const std::size_t begin = page.find(mark) + mark.size();
  const Json data = Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  ASSERT_EQ(data["plans"].size(), 2u);
  EXPECT_EQ(data["planners"].size(), 8u);  // six baselines, two plans
  const std::string plans[] = {a, b};
  for (std::size_t p = 0; p < 2; ++p) {
    const Json simulated = output("simulate" + kOn + "--json --plan " + plans[p]);
    const Json& drawn = data["plans"][p];
    EXPECT_EQ(drawn["step"].get<std::int64_t>(), nanoseconds(simulated["step_seconds"]));
    EXPECT_EQ(drawn["tasks"]["kind"].size(), simulated["tasks"].get<std::size_t>());
    for (std::size_t i = 0; i < simulated["devices"].size(); ++i) {
      const Json &device = simulated["devices"][i], &shown = drawn["devices"][i];
      EXPECT_EQ(shown["name"], device["name"]);
      EXPECT_EQ(shown["peak"], device["peak_bytes"]);
      EXPECT_EQ(shown["capacity"], device["capacity_bytes"]);
      EXPECT_EQ(shown["busy"].get<std::int64_t>(), nanoseconds(device["busy_seconds"]));
      std::int64_t busy = 0;
      for (const Json& length : drawn["lanes"][i]["length"]) busy += length.get<std::int64_t>();
      EXPECT_EQ(busy, nanoseconds(device["busy_seconds"]));
    }
    for (const Json& row : data["planners"]) {
      if (row["name"] == (p == 0 ? "cp-ar" : "ev-ps")) {
        EXPECT_EQ(row["step"], drawn["step"]);
      }
    }
  }
}

// A host that serves stands where devices stand, in every view.
TEST_F(Views, ShowHostsThatServe) {
  const std::string on = " --graph models/vgg19-tiny.json.gz --cluster " +
                         write("served.json", served_cluster(2)) + " ";
  const auto made = [&](const std::string& planner) {
    const std::string file = path(planner + ".json");
    const Finished planned = run("plan --batch 16 --planner " + planner + " --out " + file + on);
    EXPECT_EQ(planned.code, 0) << planned.err;
    EXPECT_THAT(planned.out,
                HasSubstr(planner == "ev-ps" ? "by parameter servers on 2 hosts among 4 devices"
                                             : "by all-reduce among 4 devices"));
    return file;
  };
  const std::string served = made("ev-ps"), reduced = made("ev-ar");
  const std::string trace = path("trace.json");
  const Json simulated =
      output("simulate --check --json" + on + "--plan " + served + " --trace " + trace);
  ASSERT_EQ(simulated["devices"].size(), 6u);
  const Json& host = simulated["devices"][5];
  EXPECT_EQ(host["name"], "m-1/host");
  EXPECT_EQ(host["work_share"], 0);
  EXPECT_GT(host["busy_seconds"], 0);
  EXPECT_EQ(host["capacity_bytes"], 8589934592);
  EXPECT_GT(host["memory"]["parameters_bytes"], 0);
  EXPECT_EQ(host["memory"]["activations_bytes"], 0);
  EXPECT_THAT(read_file(trace), HasSubstr("m-1/host (CPU)"));
  const Json explained = output("explain --json" + on + "--plan " + served);
  EXPECT_EQ(explained["devices"][4]["name"], "m-0/host");
  EXPECT_GT(explained["devices"][4]["computing_seconds"], 0);
  for (const char* verb : {"explain", "simulate"}) {
    const Finished text = run(verb + on + "--plan " + served);
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_THAT(text.out, HasSubstr("m-1/host"));
  }
  const Json diff = output("diff --json" + on + served + " " + reduced);
  EXPECT_GT(diff["devices"][4]["a_busy_seconds"], 0);
  EXPECT_EQ(diff["devices"][4]["b_busy_seconds"], 0);
  const std::string page = path("page.html");
  EXPECT_EQ(run("report" + on + "--plan " + served + " --out " + page).code, 0);
  EXPECT_THAT(read_file(page), HasSubstr("m-0/host"));
}

}  // namespace
}  // namespace heterog::cli
