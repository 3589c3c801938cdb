// heterog hand-over: what each engine is given of a plan, what is rounded, and what is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::HasSubstr;

const std::string kBert =
    " --graph models/bert_large24.json.gz --cluster configs/clusters/heterog-4gpu.json ";

class HandOver : public ProgramTest {
 protected:
  std::string planned(const std::string& planner, int batch = 16) const {
    const Finished done = run("plan" + kBert + "--batch " + std::to_string(batch) + " --planner " +
                              planner + " --out " + path("plan.json"));
    EXPECT_EQ(done.code, 0) << done.err;
    return path("plan.json");
  }
  Finished handed(const std::string& plan, const std::string& to) const {
    return run("hand-over" + kBert + "--plan " + plan + " --to " + to + " --json --out " +
               path("out"));
  }
};

TEST_F(HandOver, StagesHaveEveryModuleOnceAndFollowOneAnother) {
  const Finished done = handed(planned("spp:stages=3,micro_batches=5"), "torch-pipelining");
  ASSERT_EQ(done.code, 0) << done.err;
  const auto found = nlohmann::json::parse(read_file(path("out")));
  EXPECT_EQ(found, json(done));
  EXPECT_EQ(found["schedule"], "Schedule1F1B");
  EXPECT_EQ(found["micro_batches"], 4);  // 5 of 16 samples are not alike
  EXPECT_THAT(found["changes"].dump(), HasSubstr("5 micro-batches: 4 of 4 samples each"));
  std::set<std::string> modules;
  std::set<std::string> devices;
  for (const auto& stage : found["stages"]) {
    ASSERT_EQ(stage["devices"].size(), 1u);
    devices.insert(stage["devices"][0]["name"]);
    EXPECT_EQ(stage["begins"].is_null(), &stage == &found["stages"][0]);
    for (const auto& name : stage["modules"]) {
      EXPECT_TRUE(modules.insert(name).second) << name << " is in two stages";
    }
  }
  EXPECT_EQ(devices.size(), found["stages"].size());
  EXPECT_TRUE(modules.contains("bert.encoder.layer.1"));
  EXPECT_GT(found["step_seconds"].get<double>(), 0);
}

// Stages of as many devices each stay so; of different numbers, there is a stage a device.
TEST_F(HandOver, StagesOfAsManyDevicesAreReplicas) {
  const std::string on =
      " --graph models/resnet50.json.gz --cluster configs/clusters/heterog-4gpu.json ";
  const auto rounded = [&](const std::string& planner, const std::string& to) {
    const Finished planned =
        run("plan" + on + "--batch 32 --planner " + planner + " --out " + path("plan.json"));
    EXPECT_EQ(planned.code, 0) << planned.err;
    return run("hand-over" + on + "--plan " + path("plan.json") + " --to " + to + " --json --out " +
               path("out"));
  };
  const Finished done = rounded("spp:stages=2,micro_batches=4", "torch-pipelining");
  ASSERT_EQ(done.code, 0) << done.err;
  const auto found = json(done);
  ASSERT_EQ(found["stages"].size(), 2u);
  EXPECT_EQ(found["stages"][0]["devices"].size(), 2u);
  EXPECT_EQ(found["stages"][1]["devices"].size(), 2u);
  EXPECT_EQ(found["samples"].size(), 2u);
  EXPECT_EQ(found["samples"][0].get<int>() + found["samples"][1].get<int>(), 8);
  EXPECT_THAT(found["changes"].dump(), Not(HasSubstr("a stage is on one device")));
  const Finished engine = rounded("spp:stages=3,micro_batches=4", "torch-pipelining");
  ASSERT_EQ(engine.code, 0) << engine.err;
  EXPECT_EQ(json(engine)["stages"].size(), 4u);
  EXPECT_THAT(json(engine)["changes"].dump(), HasSubstr("a stage is on one device"));
}

// What is planned for an engine loses nothing on its way there.
TEST_F(HandOver, TakesPlansForAnEngineAsTheyAre) {
  for (const std::string engine : {"ddp", "fsdp2", "torch-pipelining", "torchtitan", "megatron"}) {
    const Finished planned =
        run("plan" + kBert + "--batch 16 --for " + engine +
            " --planner ev-ar --evaluations 60 --json --out " + path("plan.json"));
    ASSERT_EQ(planned.code, 0) << planned.err;
    const double step = json(planned)["step_seconds"];
    EXPECT_EQ(json(planned)["for"], engine);
    EXPECT_EQ(json(planned)["planner"], "for " + engine);
    EXPECT_LE(json(planned)["free"]["step_seconds"], step);
    const Finished done = handed(path("plan.json"), engine);
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_EQ(json(done)["changes"], nlohmann::json::array()) << engine;
    EXPECT_EQ(json(done)["step_seconds"], step) << engine;
    EXPECT_EQ(json(done)["free_step_seconds"], step) << engine;
    if (engine == "torchtitan") {
      // Finer cuts than in front of layers would be faster, but are not what was planned.
      const Finished finer = handed(path("plan.json"), "torch-pipelining");
      EXPECT_EQ(json(finer)["step_seconds"], step);
    }
  }
}

TEST_F(HandOver, FreePlansBesideOneForAnEngineSayWhatItMisses) {
  const Finished done =
      run("plan" + kBert + "--batch 16 --for ddp --planner spp --out " + path("plan.json"));
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("free plan  "));
  EXPECT_THAT(done.out, HasSubstr(" ms by spp, +"));
  EXPECT_THAT(done.out, HasSubstr("hand-over --graph"));
}

// The slices of each micro-batch are what a rank takes of a batch.
TEST_F(HandOver, SharesOfMicroBatchesAreThoseOfOne) {
  for (const auto& [engine, all] : {std::pair("ddp", 48), std::pair("fsdp2", 64)}) {
    const Finished planned = run(fmt::format("plan{}--batch {} --for {} --planner ev-ar --out {}",
                                             kBert, all, engine, path("plan.json")));
    ASSERT_EQ(planned.code, 0) << planned.err;
    const Finished done = handed(path("plan.json"), engine);
    ASSERT_EQ(done.code, 0) << done.err;
    const auto found = json(done);
    const std::int64_t micro_batches = found["micro_batches"], batch = found["batch"];
    EXPECT_GT(micro_batches, 1);
    EXPECT_EQ(batch * micro_batches, all);
    std::int64_t samples = 0;
    for (const auto& one : found["samples_per_rank"]) samples += one.get<std::int64_t>();
    EXPECT_EQ(samples, batch);
    EXPECT_EQ(found["changes"], nlohmann::json::array());
  }
}

// Of four cards of 11 to 17 GB: what DistributedDataParallel keeps whole, fully_shard cuts up.
TEST_F(HandOver, PlansForFullyShardCountTheRowsOfParameters) {
  const auto planned = [&](const std::string& engine) {
    return run("plan" + kBert + "--batch 16 --planner ev-ar --json --out " + path("plan.json") +
               " --for " + engine);
  };
  ASSERT_EQ(planned("ddp").code, 0);
  const Finished rounded = handed(path("plan.json"), "fsdp2");
  ASSERT_EQ(rounded.code, 0) << rounded.err;
  const Finished whole = planned("fsdp2");
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Finished done = handed(path("plan.json"), "fsdp2");
  ASSERT_EQ(done.code, 0) << done.err;
  const auto found = json(done);
  EXPECT_EQ(found["format"], "heterog-shares");
  EXPECT_EQ(found["parameter_row_bytes"], json(whole)["parameter_row_bytes"]);
  EXPECT_GT(found["parameter_row_bytes"], 0);
  // A plan in shards is rounded for whom keeps all.
  EXPECT_THAT(json(handed(path("plan.json"), "ddp"))["changes"].dump(),
              HasSubstr("optimizer state in shards: whole on every device"));
}

// Half of the rows of parameters that it needs are missing: without them, the same would fit.
TEST_F(HandOver, WhatDoesNotFitWithTheRowsOfParametersIsNoPlan) {
  const auto planned = [&](const std::string& memory, const std::string& options) {
    const std::string card = R"({"model": "V100-PCIE-16GB")" + memory + "}";
    const std::string cluster = write(
        "two.json", R"({"format": "heterog-cluster", "version": 1, "name": "two", "machines": [)"
                    R"({"name": "a", "fabric": {"kind": "switch", "link": "pcie3"}, "devices": [)" +
                        card + "," + card + "]}]}");
    return run("plan --graph models/bert_large24.json.gz --cluster " + cluster +
               " --batch 2 --json --out " + path("two-plan.json") + options);
  };
  const Finished whole = planned("", " --planner ev-ar --for fsdp2");
  ASSERT_EQ(whole.code, 0) << whole.err;
  const std::int64_t peak = json(whole)["devices"][0]["peak_bytes"],
                     rows = json(whole)["parameter_row_bytes"];
  const std::string memory = R"(, "memory_bytes": )" + std::to_string(peak + rows / 2);
  EXPECT_EQ(planned(memory, " --planner horovod:state=sharded").code, 0);
  std::filesystem::remove(path("two-plan.json"));
  const Finished done = planned(memory, " --planner ev-ar --for fsdp2");
  EXPECT_EQ(done.code, 3);
  EXPECT_THAT(done.err, HasSubstr("no plan for fsdp2 fits in memory: with parameters that stay"));
  EXPECT_FALSE(std::filesystem::exists(path("two-plan.json")));
}

TEST_F(HandOver, FullyShardGathersWhatIsNotTrained) {
  const std::string on =
      " --graph models/llama7b_lora-tiny.json.gz --cluster configs/clusters/three-cards.json ";
  const auto refused = [&](const std::string& verb) {
    const Finished done = run(verb + " --out " + path("x"));
    EXPECT_EQ(done.code, 2);
    EXPECT_FALSE(std::filesystem::exists(path("x")));
    return done.err;
  };
  EXPECT_THAT(refused("plan" + on + "--batch 8 --for fsdp2"),
              HasSubstr("GB of weights that are not trained (model.embed_tokens.weight), and "));
  const Finished planned =
      run("plan" + on + "--batch 8 --planner ev-ar --out " + path("plan.json"));
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(refused("hand-over" + on + "--plan " + path("plan.json") + " --to fsdp2"),
              HasSubstr("fully_shard gathers those in each step too"));
}

TEST_F(HandOver, PlansForNoEngineAreRefused) {
  const auto refused = [&](const std::string& options) {
    const Finished done = run("plan" + kBert + "--batch 16 " + options + " --out " + path("x"));
    EXPECT_EQ(done.code, 2);
    EXPECT_FALSE(std::filesystem::exists(path("x")));
    return done.err;
  };
  EXPECT_THAT(refused("--for deepspeed"),
              HasSubstr("--for: \"deepspeed\" given; expected torch-pipelining, torchtitan"));
  EXPECT_THAT(refused("--for ddp --accumulate 2"), HasSubstr("--for: given beside --accumulate"));
  EXPECT_THAT(refused("--for ddp --order-rounds 2"),
              HasSubstr("--for: given beside --order-rounds"));
}

TEST_F(HandOver, LayersAreCountedForMegatronAndNamedForTorchtitan) {
  const std::string plan = planned("gpipe:micro_batches=4");
  ASSERT_EQ(handed(plan, "megatron").code, 0);
  const std::string arguments = read_file(path("out"));
  EXPECT_THAT(arguments, HasSubstr("--pipeline-model-parallel-size 4\n"));
  EXPECT_THAT(arguments, HasSubstr("--micro-batch-size 4\n--global-batch-size 16\n"));
  ASSERT_EQ(handed(plan, "torchtitan").code, 0);
  const std::string config = read_file(path("out"));
  EXPECT_THAT(config, HasSubstr("pipeline_parallel_schedule = \"GPipe\"\n"));
  EXPECT_THAT(config, HasSubstr("[\"tok_embeddings\""));
  EXPECT_THAT(config, HasSubstr("\"norm\", \"output\"]"));
}

TEST_F(HandOver, SharesOfAPlanOfSharesAreItsOwn) {
  const Finished done = handed(planned("ev-ar"), "ddp");
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(json(done)["samples_per_rank"], nlohmann::json({4, 4, 4, 4}));
  EXPECT_EQ(json(done)["changes"], nlohmann::json::array());
  EXPECT_EQ(nlohmann::json::parse(read_file(path("out")))["format"], "heterog-shares");
}

// Schedule1F1B refuses fewer micro-batches than stages.
TEST_F(HandOver, FewMicroBatchesGoThroughGPipe) {
  const Finished done = handed(planned("spp:stages=4,micro_batches=2"), "torch-pipelining");
  ASSERT_EQ(done.code, 0) << done.err;
  ASSERT_EQ(json(done)["stages"].size(), 4u);
  EXPECT_EQ(json(done)["schedule"], "ScheduleGPipe");
  EXPECT_THAT(json(done)["changes"].dump(), HasSubstr("forward-first, strictly"));
}

// What is put off fills waits in front of backward passes, and the step is shorter than with none.
TEST_F(HandOver, TheOrderOfPassesMayPutGradientsOff) {
  const std::string plan = planned("spp:stages=4,micro_batches=8,gradients=put-off");
  const auto at_once = json(handed(plan, "torch-pipelining"));
  EXPECT_EQ(at_once["schedule"], "Schedule1F1B");
  const Finished done =
      run("hand-over" + kBert + "--plan " + plan + " --to torch-pipelining --json --out " +
          path("out") + " --schedule-csv " + path("order.csv"));
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(json(done)["schedule"], "csv");
  EXPECT_LT(json(done)["step_seconds"], at_once["step_seconds"]);
  EXPECT_THAT(json(done)["changes"].dump(), HasSubstr("a micro-batch at a time"));
  const std::string order = read_file(path("order.csv"));
  EXPECT_THAT(order, testing::StartsWith("0F0,0F1,0F2,0F3,0I0,0F4,0I1,"));
  EXPECT_LT(order.find("0W0"), order.find("0I7"));
  EXPECT_THAT(order, testing::EndsWith("3W7\n"));
  const Finished refused = run("hand-over" + kBert + "--plan " + plan + " --to megatron --out " +
                               path("x") + " --schedule-csv " + path("y"));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--schedule-csv: given with --to megatron; it is for"));
}

TEST_F(HandOver, RefusesWhatIsNoPipelineAndWhatIsNoEngine) {
  const std::string plan = planned("ev-ar");
  const Finished no_pipeline = handed(plan, "torch-pipelining");
  EXPECT_EQ(no_pipeline.code, 2);
  EXPECT_THAT(no_pipeline.err, HasSubstr("the plan is no pipeline (1 micro-batch on 4 devices); "
                                         "expected stages: plan with --for, or --planner spp"));
  const Finished no_engine = handed(plan, "deepspeed");
  EXPECT_EQ(no_engine.code, 2);
  EXPECT_THAT(no_engine.err, HasSubstr("--to: \"deepspeed\" given; expected torch-pipelining"));
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

// Of an encoder and a decoder, and of a network that calls one module again and again.
TEST_F(HandOver, RefusesModelsThatAnEngineCannotSplit) {
  const auto refused = [&](const std::string& model, const std::string& to) {
    const std::string on =
        " --graph models/" + model + ".json.gz --cluster configs/clusters/heterog-4gpu.json ";
    const Finished planned =
        run("plan" + on + "--batch 16 --planner gpipe:micro_batches=4 --out " + path("plan.json"));
    EXPECT_EQ(planned.code, 0) << planned.err;
    const Finished done = run("hand-over" + on + "--plan " + path("plan.json") + " --to " + to +
                              " --out " + path("x"));
    EXPECT_EQ(done.code, 2);
    EXPECT_FALSE(std::filesystem::exists(path("x")));
    return done.err;
  };
  EXPECT_THAT(refused("transformer6", "megatron"),
              HasSubstr("two lists of layers, encoder and decoder; such an engine knows"));
  EXPECT_THAT(refused("gnmt4", "torch-pipelining"),
              HasSubstr("2 modules in a row, between which one tensor passes, for 4 devices"));
}

}  // namespace
}  // namespace heterog::cli
