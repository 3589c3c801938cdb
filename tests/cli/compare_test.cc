// compare: planners that give no plan, and many problems at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;

class Compare : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    cases_ = write("cases.txt",
                   "# two that are, four that are not\n"
                   "vgg19-tiny heterog-4gpu 32  # the first\n"
                   "\n"
                   "vgg19-tiny heterog-4gpu\n"
                   "resnet50-tiny heterog-8gpu 64\n"
                   "vgg19-tiny heterog-4gpu 0\n"
                   "vgg19-tiny heterog-4gpu 32\n"
                   "vgg19-tiny heterog-5gpu 32\n");
  }
  std::string cases_;
  // What does not depend on how fast it was.
  static Json without_seconds(Json json) {
    for (auto& one : json["cases"]) {
      for (auto& row : one["planners"]) row.erase("plan_seconds");
    }
    return json;
  }
  static Json row(const Json& planners, const std::string& name) {
    for (const auto& one : planners) {
      if (one["name"] == name) return one;
    }
    return {};
  }
};

// `exact` takes four devices at most.
TEST_F(Compare, APlannerWithoutAPlanIsARow) {
  const std::string problem =
      "compare --graph vgg19-tiny --cluster heterog-8gpu --batch 32 --planner exact";
  const Finished both = run(problem + " m-etf --json");
  ASSERT_EQ(both.code, 0) << both.err;
  const Json exact = row(json(both)["planners"], "exact");
  EXPECT_THAT(exact["reason"].get<std::string>(), StartsWith("exact: 8 devices; expected at most"));
  EXPECT_TRUE(exact["step_seconds"].is_null());
  EXPECT_EQ(exact["feasible"], false);
  EXPECT_TRUE(row(json(both)["planners"], "m-etf")["reason"].is_null());
  EXPECT_THAT(run(problem + " m-etf").out, HasSubstr("\nexact: exact: 8 devices; "));
  // Nothing else was asked for.
  const Finished alone = run(problem);
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("exact: 8 devices"));
}

TEST_F(Compare, ATooSlowPlannerIsARow) {
  const Finished slow = run("compare " + kTiny +
                            " --planner random m-etf --evaluations 1000000000 "
                            "--seconds-each 0.5 --json");
  ASSERT_EQ(slow.code, 0) << slow.err;
  const Json random = row(json(slow)["planners"], "random");
  EXPECT_EQ(random["reason"], "took longer than 0.5 s (--seconds-each)");
  EXPECT_GE(random["plan_seconds"].get<double>(), 0.5);
}

// Rows are under the hidden costs: those of plain data parallelism change, and the same seed shows
// the same, in both forms of the command and in `plan`.
TEST_F(Compare, HiddenCostsAreShownAndNotSeen) {
  const std::string words = "compare " + kTiny + " --planner fastt m-etf --json";
  const Json plain = json(run(words))["planners"],
             hidden = json(run(words + " --hidden 3:0.5"))["planners"],
             again = json(run(words + " --hidden 3:0.5"))["planners"],
             other = json(run(words + " --hidden 4:0.5"))["planners"];
  for (const char* name : {"ev-ar", "single", "fastt", "m-etf"}) {
    EXPECT_NE(row(plain, name)["step_seconds"], row(hidden, name)["step_seconds"]) << name;
    EXPECT_NE(row(other, name)["step_seconds"], row(hidden, name)["step_seconds"]) << name;
    EXPECT_EQ(row(again, name)["step_seconds"], row(hidden, name)["step_seconds"]) << name;
  }
  const Finished planned =
      run("plan " + kTiny + " --planner ev-ar --hidden 3:0.5 --json --out " + path("hidden.plan"));
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_EQ(json(planned)["step_seconds"], row(hidden, "ev-ar")["step_seconds"]);
  // A comparison of other costs is another one.
  ASSERT_EQ(run("compare --cases " + write("one.txt", "vgg19-tiny heterog-4gpu 32\n") +
                " --planner ev-ar --hidden 3 --out " + path("hidden.rows"))
                .code,
            0);
  EXPECT_THAT(
      run("compare --cases " + path("one.txt") + " --planner ev-ar --out " + path("hidden.rows"))
          .err,
      HasSubstr("has other settings"));
  EXPECT_THAT(run(words + " --hidden x").err, HasSubstr("--hidden: \"x\""));
  EXPECT_THAT(run(words + " --hidden 1:3").err, HasSubstr("--hidden: the spread"));
  EXPECT_THAT(run("plan " + kTiny + " --hidden 1 --for ddp --out " + path("p")).err,
              HasSubstr("--hidden: given beside --for"));
}

TEST_F(Compare, CasesAreProblemsAndBadLinesAreNamed) {
  const std::string words =
      "compare --cases " + cases_ + " --planner m-etf exact:units=1,layers=0 --json";
  const Finished one = run(words + " --threads 1");
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.err, HasSubstr("cases.txt: line 4: 2 words; expected 3: a graph, a cluster and a "
                                 "batch; and 3 more lines"));
  const Json cases = json(one)["cases"];
  ASSERT_EQ(cases.size(), 6u);
  std::vector<int> lines;
  for (const auto& each : cases) lines.push_back(each["line"]);
  EXPECT_THAT(lines, testing::ElementsAre(2, 4, 5, 6, 7, 8));
  EXPECT_THAT(cases[3]["reason"].get<std::string>(), HasSubstr("batch: \"0\""));
  EXPECT_EQ(cases[4]["reason"], "the same as line 2");
  EXPECT_THAT(cases[5]["reason"].get<std::string>(), HasSubstr("did you mean heterog-4gpu"));
  EXPECT_TRUE(cases[5]["planners"].empty());
  // As on one problem.
  const Json alone =
      json(run("compare " + kTiny + " --planner m-etf exact:units=1,layers=0 --json"));
  ASSERT_EQ(alone["planners"].size(), cases[0]["planners"].size());
  for (const auto& each : alone["planners"]) {
    const Json here = row(cases[0]["planners"], each["name"]);
    EXPECT_EQ(here["step_seconds"], each["step_seconds"]) << each["name"];
    EXPECT_EQ(here["speedup"], each["speedup"]) << each["name"];
  }
  EXPECT_THAT(row(cases[2]["planners"], "exact:units=1,layers=0")["reason"].get<std::string>(),
              HasSubstr("8 devices"));
  EXPECT_EQ(without_seconds(json(run(words + " --threads 3"))), without_seconds(json(one)));
}

// What is in the file is not done again, so what is changed there comes back; a row that was
// written in part is.
TEST_F(Compare, GoesOnFromItsFile) {
  const std::string words =
      "compare --cases " + cases_ + " --planner m-etf --json --out " + path("rows") + " ";
  const Json first = json(run(words));
  std::string kept = read_file(path("rows"));
  const std::size_t rows = std::ranges::count(kept, '\n');
  kept.resize(kept.size() - 20);
  const std::size_t at = kept.find("\"evaluations\":", kept.find('\n')) + 14;
  kept.insert(at, "77");
  write_file(path("rows"), kept);
  const Json second = json(run(words));
  EXPECT_EQ(std::ranges::count(read_file(path("rows")), '\n'), rows);
  int changed = 0;
  for (std::size_t i = 0; i < first["cases"].size(); ++i) {
    const Json& before = first["cases"][i]["planners"];
    const Json& after = second["cases"][i]["planners"];
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t p = 0; p < before.size(); ++p) {
      EXPECT_EQ(before[p]["step_seconds"], after[p]["step_seconds"]);
      const std::string was = before[p]["evaluations"].dump();
      const std::string is = after[p]["evaluations"].dump();
      changed += is == "77" + was ? 1 : is != was ? 100 : 0;
    }
  }
  EXPECT_EQ(changed, 1);
  const Finished other = run(words + "--seed 5");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("rows: line 1 has other settings than this comparison"));
  write_file(path("rows"), "no rows");
  EXPECT_THAT(run(words).err, HasSubstr("not a file of compare --cases"));
}

TEST_F(Compare, SaysWhatIsMissing) {
  for (const char* words : {"compare --graph vgg19-tiny --batch 8", "compare --cases x --batch 8",
                            "compare", "compare --cases ", "compare --cases nothing.txt"}) {
    EXPECT_EQ(run(words).code, 2) << words;
  }
  EXPECT_THAT(run("compare --graph vgg19-tiny --batch 8").err, HasSubstr("--cluster is required"));
  EXPECT_THAT(run("compare " + kTiny + " --out x").err, HasSubstr("--out: given without --cases"));
  const std::string none = write("none.txt", "# nothing\n");
  EXPECT_THAT(run("compare --cases " + none).err, HasSubstr("none.txt: no cases; expected lines"));
  const Finished wrong = run("compare --cases " + cases_ + " --planner m-eft");
  EXPECT_THAT(wrong.err, HasSubstr("did you mean m-etf?"));
}

}  // namespace
}  // namespace heterog::cli
