// Graphs of which one op has another phase: refused in one line, or planned like any other.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/json_reader.h"
#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "cost/problem.h"
#include "graph/graph_io.h"
#include "oracle/simulated_oracle.h"
#include "search/registry.h"

namespace heterog::search {
namespace {

struct Outcomes {
  int refused = 0;
  int planned = 0;
};

std::optional<graph::ModelGraph> read(const Json& json, Outcomes& outcomes) {
  try {
    return graph::parse_graph(json.dump(), "edited");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    ++outcomes.refused;
    return std::nullopt;
  }
}

// By parameter servers and by all-reduce: the two ways in which gradients travel.
void plan(graph::ModelGraph graph, const std::shared_ptr<const cluster::Cluster>& cluster) {
  const auto problem =
      cost::make_problem(std::make_shared<const graph::ModelGraph>(std::move(graph)), cluster,
                         cost::CalibratedModel(), 16);
  for (const char* name : {"ev-ps", "cp-ar"}) {
    ThreadPool pool(1);
    oracle::SimulatedOracle simulator(*problem, pool);
    PlannerContext context{.oracle = simulator, .rng = Rng(7)};
    context.budget.evaluations = 2;
    Registry(builtin_planners()).make(name, *cluster)->plan(context);
  }
}

TEST(PhaseEdits, EveryOneIsRefusedOrPlanned) {
  const auto cluster = std::make_shared<const cluster::Cluster>(
      cluster::load_cluster("configs/clusters/office-mixed.json"));
  for (const char* path : {"tests/data/mlp_sgd.json.gz", "tests/data/mlp_adam_squares.json.gz",
                           "tests/data/mlp_clipped.json.gz", "tests/data/batch_norm_sgd.json.gz"}) {
    SCOPED_TRACE(path);
    Json json = read_json_file(path);
    Outcomes outcomes;
    for (std::size_t i = 0; i < json["ops"].size(); ++i) {
      const Json own = json["ops"][i];
      for (const char* phase : {"forward", "backward", "update"}) {
        if (own["phase"] == phase) continue;
        SCOPED_TRACE(own["name"].get<std::string>() + " as " + phase);
        json["ops"][i]["phase"] = phase;
        json["ops"][i].erase("forward");
        if (auto graph = read(json, outcomes)) {
          plan(*std::move(graph), cluster);
          ++outcomes.planned;
        }
        json["ops"][i] = own;
      }
    }
    EXPECT_GT(outcomes.refused, 20);
    EXPECT_GT(outcomes.planned, 0);
  }
}

// Cut off from its gradient, what one parameter's update makes is read by what belongs to none.
TEST(UpdateEdits, WhatAnUpdateKeepsForItselfIsReadByNobodyElse) {
  const auto cluster = std::make_shared<const cluster::Cluster>(
      cluster::load_cluster("configs/clusters/office-mixed.json"));
  Json json = read_json_file("tests/data/convolutions_adamw.json.gz");
  std::string other;
  for (std::size_t i = 0; i < json["tensors"].size(); ++i) {
    if (json["tensors"][i]["name"] == "update/mul_10") other = "%" + std::to_string(i);
  }
  for (Json& op : json["ops"]) {
    if (op["name"] == "3.weight/add_1") op["args"][0] = other;
  }
  try {
    plan(graph::parse_graph(json.dump(), "edited"), cluster);
    ADD_FAILURE() << "planned";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_NE(std::string_view(error.what()).find("the update of one parameter"),
              std::string_view::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace heterog::search
