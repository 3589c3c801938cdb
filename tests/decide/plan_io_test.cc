// Plan files: what is written is read back, what does not fit is refused, nothing crashes.
#include "decide/plan_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/rng.h"
#include "compiler/compile.h"
#include "decide/layout.h"
#include "decide/problems.h"
#include "support/mutate.h"

namespace heterog::decide {
namespace {

PlanRecord random_record(const cost::Problem& problem, Rng& rng) {
  PlanRecord record;
  for (std::size_t u = 0; u < problem.grouping.count(); ++u) {
    UnitDecision decision = rng.below(2) ? even_decision(problem, SyncMethod::kParameterServer)
                                         : single_decision(DeviceId(rng.below(3)));
    if (rng.below(3) == 0) decision.replicas[0].weight = 0.1 + rng.uniform();
    decision.in_turn = rng.below(3) == 0;
    record.strategy.units.push_back(decision);
  }
  const TensorId parameter = problem.graph->parameters()[0];
  record.strategy.sync.push_back(
      {parameter, SyncMethod::kParameterServer,
       lay_out(problem, record.strategy).home(parameter).replicas.back()});
  record.strategy.order = OrderPolicy::kFifo;
  record.strategy.bucket_bytes = 123;
  record.planner = "test \"quoted\"";
  record.step_seconds = 0.125;
  record.feasible = true;
  record.peak_bytes = {1, 2, 3};
  return record;
}

std::string file_name() {
  return (std::filesystem::temp_directory_path() /
          ("heterog_plan_" + std::to_string(::getpid()) + ".json"))
      .string();
}

TEST(PlanFile, ReadsBackWhatWasWritten) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 3, 12);
  Rng rng(1);
  for (int i = 0; i < 20; ++i) {
    PlanRecord record = random_record(*problem, rng);
    if (i % 2 == 1) {
      const OpId first = problem->folded->ops.front();
      record.strategy.order = OrderPolicy::kPriority;
      record.strategy.priorities = {{first, 0, -5}, {problem->folded->ops[1], 0, 1LL << 40}};
    }
    if (i % 3 == 1) {
      record.strategy.units[UnitId(0)].recompute = true;
    }
    if (i % 4 == 1) record.strategy.order_rounds = i;
    if (i % 3 == 2) {
      record.strategy.units[UnitId(0)].sync = i % 2 ? SyncMethod::kSharded : SyncMethod::kGathered;
      record.strategy.row_weights.assign(3, 0.25);
      record.strategy.row_weights[DeviceId(1)] = i;
    }
    if (i % 4 == 3) {
      record.strategy.sync.push_back({.parameter = problem->graph->parameters()[1],
                                      .method = SyncMethod::kAllReduce,
                                      .group = static_cast<std::uint32_t>(i)});
    }
    if (i % 4 == 2) {
      record.strategy.micro_batches = 3;
      record.strategy.pattern = Pattern::kListed;
      record.strategy.strict = true;
      record.strategy.pipeline_of.assign(3, 0);
      record.strategy.pipeline_of[DeviceId(1)] = 1;
    }
    if (i % 5 == 1) {
      for (OpId op : problem->graph->op_ids()) {
        record.strategy.unit_of_op.push_back(UnitId(op.value() / 3 % record.strategy.units.size()));
      }
      record.strategy.sync.clear();
    }
    write_plan(file_name(), record, *problem);
    const PlanHeader header = read_plan_header(file_name());
    EXPECT_EQ(header.batch, 12);
    EXPECT_EQ(header.graph_hash, problem->graph->hash());
    const PlanRecord back = read_plan(file_name(), *problem);
    EXPECT_EQ(back.strategy, record.strategy);
    EXPECT_EQ(back.planner, record.planner);
    EXPECT_EQ(back.step_seconds, record.step_seconds);
    EXPECT_EQ(back.peak_bytes, record.peak_bytes);
  }
  std::filesystem::remove(file_name());
}

TEST(PlanFile, SaysHowGradientsAreCompressed) {
  const auto plain = toy_problem(support::tiny_mlp_graph(), 3, 12);
  for (const char* text : {"fp16", "bf16,feedback", "powersgd:rank=3"}) {
    const auto problem = with_compression(*plain, text);
    Rng rng(2);
    write_plan(file_name(), random_record(*problem, rng), *problem);
    EXPECT_EQ(read_plan_header(file_name()).compression, problem->compression);
    EXPECT_NO_THROW(read_plan(file_name(), *problem));
    EXPECT_THROW(read_plan(file_name(), *plain), Error);
  }
  std::filesystem::remove(file_name());
}

std::string refusal(const std::string& text, const cost::Problem& problem) {
  try {
    parse_plan(text, "p.json", problem);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

TEST(PlanFile, RefusesAPlanForSomethingElse) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 3, 12);
  Rng rng(1);
  write_plan(file_name(), random_record(*problem, rng), *problem);
  const std::string text = read_file(file_name());
  std::filesystem::remove(file_name());
  const auto other_batch = toy_problem(support::tiny_mlp_graph(), 3, 6);
  const auto other_cluster = toy_problem(support::tiny_mlp_graph(), 4, 12);
  const auto other_graph = model_problem("lenet5-tiny", 3, 12);
  EXPECT_EQ(refusal(text, *other_batch), "p.json: batch: made for batch 12, asked for 6");
  EXPECT_THAT(refusal(text, *other_cluster), testing::HasSubstr("cluster.hash: made for cluster"));
  EXPECT_THAT(refusal(text, *other_graph), testing::HasSubstr("graph.hash: made for graph"));
}

TEST(PlanFile, RefusesCompressionOfAWrongForm) {
  const auto plain = toy_problem(support::tiny_mlp_graph(), 3, 12);
  const auto problem = with_compression(*plain, "fp16");
  Rng rng(1);
  write_plan(file_name(), random_record(*problem, rng), *problem);
  const std::string text = read_file(file_name());
  std::filesystem::remove(file_name());
  const auto with = [&](const std::string& value) {
    std::string changed = text;
    return refusal(changed.replace(changed.find("\"fp16\""), 6, value), *problem);
  };
  EXPECT_EQ(with("\"fp16\""), "accepted");
  EXPECT_EQ(with("\"fp61\""),
            "p.json: compression: \"fp61\" given (did you mean fp16?); it is none, fp16, bf16 or "
            "powersgd[:rank=R], each but none with ,feedback behind it");
  EXPECT_EQ(with("\"none\""), "p.json: compression: none, leave it out instead");
  EXPECT_EQ(with("\"powersgd:rank=0\""),
            "p.json: compression: rank: \"0\" given; it is an integer from 1 to 1024");
  EXPECT_THAT(with("7"), testing::HasSubstr("p.json: compression: "));
  EXPECT_THAT(with("null"), testing::HasSubstr("p.json: compression: "));
  EXPECT_EQ(with("\"bf16\""), "p.json: compression: made for bf16, asked for fp16");
}

// What contradicts itself is not decided by the order of the entries, nor left out.
TEST(PlanFile, RefusesASyncThatContradictsItself) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 3, 12);
  PlanRecord record;
  record.strategy = uniform_strategy(*problem, even_decision(*problem, SyncMethod::kAllReduce));
  for (UnitDecision& unit : record.strategy.units) unit.replicas.pop_back();
  write_plan(file_name(), record, *problem);
  const std::string text = read_file(file_name());
  std::filesystem::remove(file_name());
  const auto with = [&](const std::string& entries) {
    std::string changed = text;
    const std::string none = R"("sync": [])";
    return refusal(changed.replace(changed.find(none), none.size(), R"("sync": [)" + entries + "]"),
                   *problem);
  };
  const std::string served =
      R"({"parameter": "first.weight", "method": "ps", "server": "m1/gpu0"})";
  EXPECT_EQ(with(served), "accepted");
  EXPECT_EQ(with(served + "," + served),
            "p.json: sync[1]: parameter 'first.weight' stands twice, expected one entry");
  EXPECT_LT(with(R"({"parameter": ")" + std::string(5000, 'x') + R"(", "method": "ps"})").size(),
            200u);
  EXPECT_LT(
      with(R"({"parameter": "first.weight", "method": ")" + std::string(5000, 'x') + "\"}").size(),
      200u);
  EXPECT_EQ(with(R"({"parameter": "first.weight", "method": "all-reduce", "server": "m1/gpu0"})"),
            "p.json: sync[0]: parameter 'first.weight' has a server, m1/gpu0, and method "
            "all-reduce; expected method ps, or no server");
  EXPECT_EQ(with(R"({"parameter": "first.bias", "method": "ps", "server": "m2/gpu0"})"),
            "p.json: sync[0]: server m2/gpu0 has no replica of parameter 'first.bias', which is on "
            "m0/gpu0, m1/gpu0");
}

TEST(PlanFile, RefusesRowsThatNobodyOrSomebodyElseHas) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 3, 12);
  PlanRecord record;
  record.strategy = uniform_strategy(*problem, even_decision(*problem, SyncMethod::kSharded));
  record.strategy.row_weights.assign(3, 2);
  write_plan(file_name(), record, *problem);
  const std::string text = read_file(file_name());
  std::filesystem::remove(file_name());
  const auto with = [&](const std::string& weights) {
    std::string changed = text;
    const std::string all = R"({"m0/gpu0":2.0,"m1/gpu0":2.0,"m2/gpu0":2.0})";
    EXPECT_NE(changed.find(all), changed.npos) << text;
    return refusal(changed.replace(changed.find(all), all.size(), weights), *problem);
  };
  EXPECT_EQ(with(R"({"m0/gpu0": 1, "m1/gpu0": 2.5, "m2/gpu0": 1e-3})"), "accepted");
  EXPECT_THAT(with(R"({"m0/gpu0": 1, "m1/gpu0": 0, "m2/gpu0": 1})"),
              testing::HasSubstr("row_weights.m1/gpu0"));
  EXPECT_THAT(with(R"({"m0/gpu0": 1, "m2/gpu0": 1})"), testing::HasSubstr("m1/gpu0"));
  EXPECT_THAT(with(R"({"m0/gpu0": 1, "m1/gpu0": 1, "m2/gpu0": 1, "m3/gpu0": 1})"),
              testing::HasSubstr("m3/gpu0"));
  EXPECT_THAT(with(R"({"m0/gpu0": 1, "m1/gpu0": 1, "m2/gpu0": 1e10})"),
              testing::HasSubstr("row_weights: weight 10000000000 of m2/gpu0, expected"));
  EXPECT_THAT(with("[1, 2, 3]"), testing::HasSubstr("row_weights"));
}

TEST(PlanFile, RefusesServersThatContradictEachOther) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 3, 12);
  PlanRecord record;
  record.strategy = uniform_strategy(*problem, even_decision(*problem, SyncMethod::kAllReduce));
  record.strategy.sync = {{.parameter = problem->graph->parameters().front(),
                           .method = SyncMethod::kParameterServer,
                           .servers = {{DeviceId(0), 1}, {DeviceId(2), 3}}}};
  write_plan(file_name(), record, *problem);
  EXPECT_EQ(read_plan(file_name(), *problem).strategy, record.strategy);
  const std::string text = read_file(file_name());
  std::filesystem::remove(file_name());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    EXPECT_NE(changed.find(from), changed.npos) << text;
    return refusal(changed.replace(changed.find(from), from.size(), to), *problem);
  };
  const std::string servers = R"("servers":["m0/gpu0","m2/gpu0"],"weights":[1.0,3.0])";
  EXPECT_THAT(with(servers, R"("servers":["m0/gpu0","m0/gpu0"],"weights":[1.0,3.0])"),
              testing::HasSubstr("server m0/gpu0 stands twice"));
  EXPECT_THAT(with(servers, R"("servers":["m0/gpu0","m2/gpu0"],"weights":[1.0,0])"),
              testing::HasSubstr("weights[1]"));
  EXPECT_THAT(with(servers, R"("servers":["m0/gpu0","m2/gpu0"],"weights":[1.0])"),
              testing::HasSubstr("2 servers and 1 weights"));
  EXPECT_THAT(with(servers, R"("servers":["m0/gpu0","m7/gpu0"],"weights":[1.0,3.0])"),
              testing::HasSubstr("m7/gpu0"));
  EXPECT_THAT(with(servers, servers + R"(,"server":"m0/gpu0")"),
              testing::HasSubstr("has servers, and server m0/gpu0"));
  EXPECT_THAT(with(R"("method":"ps")", R"("method":"all-reduce")"),
              testing::HasSubstr("has servers, and method all-reduce"));
}

TEST(PlanFile, RefusesGroupsThatCannotShareACollective) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 3, 12);
  Strategy strategy = uniform_strategy(*problem, even_decision(*problem, SyncMethod::kAllReduce));
  const auto parameters = problem->graph->parameters();
  const auto refused = [&](SyncMethod second) {
    strategy.sync = {{.parameter = parameters[0], .method = SyncMethod::kAllReduce, .group = 2},
                     {.parameter = parameters.back(), .method = second, .group = 2}};
    try {
      check_strategy(*problem, strategy, "p.json");
      return std::string("accepted");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refused(SyncMethod::kAllReduce), "accepted");
  EXPECT_EQ(refused(SyncMethod::kSharded),
            "p.json: sync[1]: group 2: parameter 'second.bias' has method sharded, and "
            "'first.weight' all-reduce; expected one method a group");
  EXPECT_THAT(refused(SyncMethod::kParameterServer), testing::HasSubstr("group 2, and method ps"));
  const OpId reader = problem->folded->parameter_readers[parameters.back()].front();
  strategy.units[unit_of(*problem, strategy, reader)].replicas.pop_back();
  EXPECT_EQ(refused(SyncMethod::kAllReduce),
            "p.json: sync[1]: group 2: parameter 'second.bias' is on other devices than "
            "'first.weight'; expected the same of all in a group");
}

// A plan that was written before micro-batches were said in one word.
TEST(PlanFile, SaysHowToMakeAnOldPlanAnew) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 3, 12);
  PlanRecord record{.strategy = uniform_strategy(*problem, single_decision(DeviceId(0))),
                    .planner = "ev-ar"};
  write_plan(file_name(), record, *problem);
  std::string text = read_file(file_name());
  std::filesystem::remove(file_name());
  const std::string version = "\"version\": 3";
  text.replace(text.find(version), version.size(), "\"version\": 2");
  EXPECT_EQ(refusal(text, *problem),
            "p.json: version: expected 3, found 2; make it anew: heterog plan --graph " +
                problem->graph->name() + " --cluster " + problem->cluster->name() +
                " --batch 12 --planner ev-ar --out FILE");
}

TEST(PlanFile, RefusesMicroBatchesOfAnotherKind) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 3, 12);
  PlanRecord record;
  record.strategy = uniform_strategy(*problem, even_decision(*problem, SyncMethod::kAllReduce));
  record.strategy.micro_batches = 2;
  record.strategy.pattern = Pattern::kOneForwardOneBackward;
  record.strategy.order = OrderPolicy::kPriority;
  record.strategy.pipeline_of.assign(3, 0);
  write_plan(file_name(), record, *problem);
  const std::string text = read_file(file_name());
  std::filesystem::remove(file_name());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    EXPECT_NE(changed.find(from), changed.npos) << from;
    return refusal(changed.replace(changed.find(from), from.size(), to), *problem);
  };
  EXPECT_EQ(with("1f1b", "listed"), "accepted");
  EXPECT_EQ(with("1f1b", "2f2b"),
            "p.json: micro_batches.pattern: '2f2b', expected none, depth-first, forward-first, "
            "1f1b, listed or zero-bubble");
  EXPECT_THAT(with(R"("count":2)", R"("count":13)"), testing::HasSubstr("micro_batches.count"));
  EXPECT_THAT(with(R"("pipelines":[["m0/gpu0",)", R"("pipelines":[["m1/gpu0",)"),
              testing::HasSubstr("device 'm1/gpu0' stands twice"));
  EXPECT_THAT(with(R"("pipelines":[["m0/gpu0",)", R"("pipelines":[[)"),
              testing::HasSubstr("device 'm0/gpu0' is in none of them"));
}

// Later ops cost more: seeds of groups are others than where all cost the same.
class GrowingCosts final : public cost::CostModel {
 public:
  double seconds(const graph::ModelGraph&, OpId op, std::int64_t,
                 const cluster::DeviceType&) const override {
    return 1e-6 * (1 + op.value() * op.value());
  }
  Bytes workspace_bytes(const graph::ModelGraph&, OpId, std::int64_t,
                        const cluster::DeviceType&) const override {
    return 0;
  }
};

TEST(PlanFile, RefusesOtherGroupsUnlessAllDecideAlike) {
  const auto base = model_problem("lenet5-tiny", 3, 12);
  const auto alike = cost::make_problem(base->graph, base->cluster, cost::ConstantModel(1e-6), 12,
                                        {.max_groups = 4});
  const auto other =
      cost::make_problem(base->graph, base->cluster, GrowingCosts(), 12, {.max_groups = 4});
  ASSERT_NE(alike->grouping.group_of.raw(), other->grouping.group_of.raw());
  PlanRecord record;
  record.max_groups = 4;
  record.strategy = uniform_strategy(*alike, even_decision(*alike, SyncMethod::kAllReduce));
  write_plan(file_name(), record, *alike);
  EXPECT_EQ(read_plan(file_name(), *other).strategy,
            uniform_strategy(*other, even_decision(*other, SyncMethod::kAllReduce)));
  record.strategy.units[UnitId(1)] = single_decision(DeviceId(0));
  write_plan(file_name(), record, *alike);
  EXPECT_EQ(read_plan(file_name(), *alike).strategy, record.strategy);
  try {
    read_plan(file_name(), *other);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), testing::HasSubstr("--profile"));
  }
  std::filesystem::remove(file_name());
}

TEST(PlanFile, TenThousandDamagedFiles) {
  const auto problem = toy_problem(support::tiny_mlp_graph(), 3, 12);
  Rng rng(2);
  write_plan(file_name(), random_record(*problem, rng), *problem);
  const std::string text = read_file(file_name());
  std::filesystem::remove(file_name());
  int accepted = 0, refused = 0;
  for (int i = 0; i < 10000; ++i) {
    try {
      const PlanRecord record = parse_plan(support::mutate(text, rng), "fuzz.json", *problem);
      compiler::compile(*problem, record.strategy);
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 3000);
}

}  // namespace
}  // namespace heterog::decide
