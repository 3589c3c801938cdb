// Ctrl-C while a verb searches: what was found by then is there, and said.
#include <gmock/gmock.h>
#include <signal.h>

#include "cli/process.h"
#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::HasSubstr;

class Stopping : public ProgramTest {
 protected:
  // Ended by a signal once it has simulated plans; a budget of an hour is not waited for.
  std::string stopped(const std::string& arguments, int signal = SIGINT) const {
    Process process(arguments + " --budget 3600 --log-level debug", {}, path("stopped"));
    EXPECT_TRUE(await([&] { return process.err().find("evaluations: ") != std::string::npos; }));
    process.kill(signal);
    EXPECT_EQ(process.wait(), 4) << process.err();
    out_ = process.out();
    const std::string err = process.err();
    const std::size_t last = err.find("heterog: error: ");
    return last == std::string::npos ? err : err.substr(last);
  }
  mutable std::string out_;
};

TEST_F(Stopping, PlanWritesTheBestSoFar) {
  const std::string said = stopped("plan " + kTiny + " --out " + path("plan.json"));
  EXPECT_THAT(said, HasSubstr("stopped by signal 2 (SIGINT) after "));
  EXPECT_THAT(said, HasSubstr(path("plan.json") + " has the best of "));
  EXPECT_THAT(out_, HasSubstr("samples/s"));
  EXPECT_THAT(out_, HasSubstr("plan.json is written. Next:"));
  const std::string again = " --graph models/vgg19-tiny.json.gz --cluster heterog-4gpu --plan ";
  EXPECT_EQ(run("simulate --check" + again + path("plan.json")).code, 0);
}

// While the engine's own search goes on, and while the free plan beside it is looked for.
TEST_F(Stopping, PlansForAnEngineToo) {
  const std::string bert =
      " --graph models/bert_large24.json.gz --cluster configs/clusters/heterog-8gpu.json ";
  const std::string said =
      stopped("plan" + bert + "--batch 48 --for torch-pipelining --out " + path("plan.json"));
  EXPECT_THAT(said, HasSubstr(path("plan.json") + " has the best of "));
  EXPECT_THAT(out_, HasSubstr("plan.json is written. Next:"));
  EXPECT_EQ(run("hand-over" + bert + "--plan " + path("plan.json") +
                " --to torch-pipelining --out " + path("out"))
                .code,
            0);
  stopped("plan " + kTiny + " --for ddp --planner random --out " + path("plan.json"));
  EXPECT_THAT(out_, HasSubstr("plan.json is written. Next:"));
}

TEST_F(Stopping, OtherPlannersAndMicroBatchesDoSoToo) {
  const std::string said = stopped(
      "plan " + kTiny + " --planner random --accumulate 2 " + "--json --out " + path("plan.json"),
      SIGTERM);
  EXPECT_THAT(said, HasSubstr("stopped by signal 15 (SIGTERM) after "));
  const auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["stopped"], true);
  EXPECT_EQ(json["planner"], "random, stopped, 2 micro-batches");
  EXPECT_EQ(nlohmann::json::parse(read_file(path("plan.json")))["planner"], json["planner"]);
}

TEST_F(Stopping, FinetuneWritesPolicyAndPlan) {
  const std::string files = path("x.ckpt") + " --plan " + path("plan.json");
  const std::string said = stopped("finetune " + kTiny + " --out " + files);
  EXPECT_THAT(said, HasSubstr("stopped by signal 2 (SIGINT) after "));
  EXPECT_THAT(said, HasSubstr("x.ckpt has the policy as it was then, "));
  const std::string again = " --graph models/vgg19-tiny.json.gz --cluster heterog-4gpu --plan ";
  EXPECT_EQ(run("simulate --check" + again + path("plan.json")).code, 0);
  EXPECT_EQ(run("plan " + kTiny + " --planner policy --policy " + path("x.ckpt") + " --out " +
                path("again.json"))
                .code,
            0);
}

TEST_F(Stopping, SharesAndComparePrintWhatTheyHave) {
  const std::string shares = stopped(
      "shares --graph vgg19 --cluster mixed-64gpu --batch 1024 --out " + path("shares.json"));
  EXPECT_THAT(shares, HasSubstr("these are the best shares of "));
  EXPECT_THAT(out_, HasSubstr("samples"));
  EXPECT_TRUE(std::filesystem::exists(path("shares.json")));
  const std::string compared = stopped("compare " + kTiny + " --planner random");
  EXPECT_THAT(compared, HasSubstr("; those before it are compared"));
}

}  // namespace
}  // namespace heterog::cli
