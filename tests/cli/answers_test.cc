// What a person is told: one screen of a plan, samples a second, cards that are not needed, what
// would fit, and what a mistyped word meant.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

const std::string kOffice =
    " --graph models/vgg19.json.gz --cluster configs/clusters/office-mixed.json ";

class Answers : public ProgramTest {};

std::ptrdiff_t lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST_F(Answers, APlanIsOneScreen) {
  for (const char* cluster : {"local-2cpu", "heterog-12gpu"}) {
    const std::string command =
        "plan --graph models/lenet5-tiny.json.gz --cluster configs/clusters/" +
        std::string(cluster) + ".json --batch 128 --evaluations 30 --out " + path("plan.json");
    const Finished short_one = run(command);
    ASSERT_EQ(short_one.code, 0) << short_one.err;
    EXPECT_LE(lines(short_one.out), 24) << short_one.out;
    for (const char* part :
         {"samples/s", "gain", "bound", "memory", "gradients", "heterog explain"}) {
      EXPECT_THAT(short_one.out, HasSubstr(part));
    }
    const Finished all = run(command + " --verbose");
    EXPECT_GT(lines(all.out), lines(short_one.out) + 10);
    EXPECT_THAT(all.out, AllOf(HasSubstr("memory at the peak"), HasSubstr("speed-up over it")));
  }
}

// V100 have no units for bfloat16; RTX 3090 have; P100 and 1080 Ti cannot multiply in it at all.
TEST_F(Answers, WhatFloat16WouldGiveIsSaidWhereBfloat16IsEmulated) {
  const auto planned = [&](const char* cluster, const char* more) {
    return run(
        fmt::format("plan --graph tests/data/masters_bfloat16.json.gz --cluster {} "
                    "--batch 32 --evaluations 20 --out '{}'{}",
                    cluster, path("plan.json"), more));
  };
  const Finished emulated = planned("cloud-v100", "");
  ASSERT_EQ(emulated.code, 0) << emulated.err;
  EXPECT_THAT(emulated.out,
              AllOf(HasSubstr("bfloat16   V100-"), HasSubstr("has no units for it (1"),
                    HasSubstr("TFLOP/s; float16: 1"), HasSubstr("in float16 this plan takes ")));
  const Json json = Json::parse(planned("cloud-v100", " --json").out);
  EXPECT_LE(json["bfloat16"]["float16_step_seconds"], json["step_seconds"]);
  EXPECT_EQ(json["bfloat16"]["emulated_by"].size(), 1u);
  EXPECT_THAT(planned("workstation-3090-4090", "").out, Not(HasSubstr("no units for it")));
  const Finished refused = planned("heterog-8gpu", "");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("multiplies in bfloat16, which "),
                                 HasSubstr("export the model in float16")));
}

// What is said next can be run as it stands.
TEST_F(Answers, TheNextCommandsRun) {
  const Finished planned =
      run("plan --graph models/lenet5-tiny.json.gz --cluster configs/clusters/local-2cpu.json "
          "--batch 8 --evaluations 30 --out '" +
          path("a plan.json") + "'");
  ASSERT_EQ(planned.code, 0) << planned.err;
  int commands = 0;
  for (std::size_t at = 0; (at = planned.out.find("  heterog ", at)) != std::string::npos; ++at) {
    const std::string line = planned.out.substr(at + 10, planned.out.find('\n', at) - at - 10);
    EXPECT_EQ(run(line.substr(0, line.find(" #"))).code, 0) << line;
    ++commands;
  }
  EXPECT_EQ(commands, 2);
}

TEST_F(Answers, SamplesASecondStandBesideSeconds) {
  const std::string plan = path("plan.json");
  const Json planned =
      json(run("plan" + kOffice + "--batch 128 --planner cp-ar --json --out " + plan));
  const double rate = 128 / planned["step_seconds"].get<double>();
  const auto expect_rate = [&](const Json& found, double expected) {
    EXPECT_NEAR(found["samples_per_second"].get<double>(), expected, 1e-6 * expected);
  };
  expect_rate(planned, rate);
  expect_rate(json(run("simulate" + kOffice + "--json --plan " + plan)), rate);
  expect_rate(json(run("explain" + kOffice + "--json --plan " + plan)), rate);
  const Json shares = json(run("shares" + kOffice + "--batch 128 --json"));
  expect_rate(shares, 128 / shares["step_seconds"].get<double>());
  for (const Json& row :
       json(run("compare" + kOffice + "--batch 128 --planner cp-ar --json"))["planners"]) {
    expect_rate(row, 128 / row["step_seconds"].get<double>());
  }
  const std::string text = fmt::format("{:.0f} samples/s", rate);
  EXPECT_THAT(run("simulate" + kOffice + "--plan " + plan).out, HasSubstr(text));
  EXPECT_THAT(run("explain" + kOffice + "--plan " + plan).out, HasSubstr(text));
  EXPECT_THAT(run("compare" + kOffice + "--batch 128 --planner cp-ar").out, HasSubstr(text));
  EXPECT_THAT(run("shares" + kOffice + "--batch 128").out, HasSubstr("samples/s"));
  ASSERT_EQ(run("report" + kOffice + "--plan " + plan + " --out " + path("page.html")).code, 0);
  EXPECT_THAT(read_file(path("page.html")), HasSubstr("samples/s"));
}

// Five slower cards behind 10 GbE: the two A100 of one machine do it, and the wires are why.
TEST_F(Answers, CardsThatAreNotNeededAreNamed) {
  const std::string plan = path("plan.json");
  const Finished text = run("plan" + kOffice + "--batch 128 --evaluations 120 --out " + plan);
  EXPECT_THAT(text.out, AllOf(HasSubstr(" of 7 devices do it."), HasSubstr("the reason is "),
                              HasSubstr("/nic.")));
  EXPECT_THAT(run("explain" + kOffice + "--plan " + plan).out, HasSubstr(" of 7 devices do it."));
  EXPECT_THAT(run("shares" + kOffice + "--batch 128").out, HasSubstr("2 of 7 devices do it."));
  const Json found = json(run("explain" + kOffice + "--json --plan " + plan));
  EXPECT_FALSE(found["unused_devices"].empty());
  EXPECT_THAT(found["all_devices"]["busiest"].get<std::string>(), HasSubstr("/nic."));
  EXPECT_GT(found["all_devices"]["step_seconds"].get<double>(),
            found["step_seconds"].get<double>());
  // Of a plan on all cards, those behind the wires could do something else.
  ASSERT_EQ(run("plan" + kOffice + "--batch 128 --planner ev-ar --out " + plan).code, 0);
  const Json even = json(run("explain" + kOffice + "--json --plan " + plan));
  EXPECT_TRUE(even["unused_devices"].empty());
  EXPECT_TRUE(even["all_devices"].is_null());
  EXPECT_FALSE(even["enough_devices"]["left_out"].empty());
  EXPECT_LE(even["enough_devices"]["step_seconds"].get<double>(),
            1.01 * even["step_seconds"].get<double>());
}

TEST_F(Answers, WhereNothingFitsWhatWould) {
  const std::string on =
      "plan --graph models/vgg19.json.gz --cluster configs/clusters/heterog-4gpu.json "
      "--out " +
      path("plan.json") + " --planner ev-ar --batch ";
  const Finished none = run(on + "2048 --json");
  ASSERT_EQ(none.code, 3) << none.err;
  const Json fits = json(none)["would_fit"];
  const auto largest = fits["whole"]["batch"].get<std::int64_t>();
  EXPECT_GE(largest, 2);
  EXPECT_LT(largest, 2048);
  EXPECT_GT(fits["recomputing"]["batch"].get<std::int64_t>(), largest);
  // The largest batch fits by the planner that is named, the next one by none of those tried.
  const std::string best = fits["whole"]["planner"];
  const auto plan = [&](const std::string& planner, std::int64_t batch,
                        const std::string& more = "") {
    return run("plan --graph models/vgg19.json.gz --cluster "
               "configs/clusters/heterog-4gpu.json --out " +
               path("plan.json") + " --planner " + planner + more + " --batch " +
               std::to_string(batch))
        .code;
  };
  EXPECT_EQ(plan(best + (best == "single" ? "" : ":rank"), largest), 0);
  for (const char* planner : {"ev-ar:rank", "cp-ar:rank", "single"}) {
    EXPECT_EQ(plan(planner, largest + 1), 3) << planner;
  }
  const auto parts = fits["micro_batches"]["micro_batches"].get<std::int64_t>();
  EXPECT_EQ(plan(fits["micro_batches"]["planner"], fits["micro_batches"]["batch"],
                 " --accumulate " + std::to_string(parts)),
            0);
  const Finished text = run(on + "2048");
  EXPECT_EQ(text.code, 3);
  EXPECT_THAT(text.out, AllOf(HasSubstr("fits up to " + std::to_string(largest)),
                              HasSubstr("micro-batches"), HasSubstr("forward passes again")));
}

TEST_F(Answers, MistypedWordsGetTheNearest) {
  const auto said = [&](const std::string& arguments) {
    const Finished refused = run(arguments);
    EXPECT_EQ(refused.code, 2) << arguments;
    return refused.err;
  };
  const std::string rest = " --batch 8 --out " + path("plan.json");
  EXPECT_THAT(said("plna"), HasSubstr("did you mean plan?"));
  EXPECT_THAT(said("plan --grpah x"), HasSubstr("did you mean --graph?"));
  EXPECT_THAT(said("plan" + kOffice + rest + " --planner anealing"),
              HasSubstr("did you mean annealing?"));
  EXPECT_THAT(
      said("plan --graph models/resnt50.json.gz --cluster configs/clusters/office-mixed.json" +
           rest),
      HasSubstr("did you mean models/resnet50.json.gz?"));
  EXPECT_THAT(said("plan --graph resnt50 --cluster configs/clusters/office-mixed.json" + rest),
              HasSubstr("did you mean resnet50?"));
  EXPECT_THAT(said("plan --graph resnet50 --cluster ofice-mixed" + rest),
              HasSubstr("did you mean office-mixed?"));
  EXPECT_THAT(
      said("plan --graph models/resnet50.json.gz --cluster configs/clusters/ofice-mixed.json" +
           rest),
      HasSubstr("did you mean configs/clusters/office-mixed.json?"));
}

}  // namespace
}  // namespace heterog::cli
