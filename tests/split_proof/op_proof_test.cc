// Every split rule, proved by executing operators on slices of random batches.
#include "split_proof/op_proof.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/graph_io.h"
#include "graph/split_rules.h"
#include "split_proof/cases.h"
#include "split_proof/random_cases.h"
#include "split_proof/zoo.h"

namespace heterog::split_proof {
namespace {

using graph::analyze_splits;
using graph::ModelGraph;
using graph::OperandUse;
using graph::SplitAnalysis;
using graph::SplitKind;

const std::vector<SliceSizes> kSlices = {{2, 5}, {1, 1, 5}};

// Operators and forms of use that have been proved, so that none is proved twice.
struct Proved {
  std::set<std::string, std::less<>> types;
  std::set<std::string> forms;
};

// What prove_op says; an operator that refuses its operands is a failure as well.
std::string outcome(const ModelGraph& graph, const SplitAnalysis& splits, OpId op,
                    const SliceSizes& sizes) {
  try {
    return prove_op(graph, splits, op, sizes);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

// Proves every distinct form of the graph's sliceable ops.
void prove_graph(const ModelGraph& graph, const std::string& name, Proved& proved) {
  const SplitAnalysis splits = analyze_splits(graph);
  for (OpId op : graph.op_ids()) {
    if (!splits.sliceable[op] || !proved.forms.insert(form_of(graph, splits, op)).second) continue;
    proved.types.emplace(graph.type_name(op));
    for (const SliceSizes& sizes : kSlices) {
      SCOPED_TRACE(name + ": " + graph.op(op).name + ", " + form_of(graph, splits, op));
      EXPECT_EQ(outcome(graph, splits, op, sizes), "");
    }
  }
}

std::string text_of(const Case& example) {
  std::string text = example.type + " " + example.args;
  for (const std::string& operand : example.operands) text += "; " + operand;
  return text;
}

TEST(OpProof, ZooAndCasesCoverAndProveTheWholeTable) {
  at::set_num_threads(1);
  Proved proved;
  for (const std::string& path : tiny_graphs()) {
    prove_graph(graph::read_graph(path), path, proved);
  }
  EXPECT_GT(proved.types.size(), 60u) << "the tiny zoo is not there";
  for (const Case& example : cases()) {
    SCOPED_TRACE(text_of(example));
    try {
      const ModelGraph graph = graph_of(example);
      const SplitAnalysis splits = analyze_splits(graph);
      const OpId op(graph.op_count() - 1);
      EXPECT_TRUE(splits.sliceable[op]) << splits.reason[op];
      prove_graph(graph, text_of(example), proved);
    } catch (const c10::Error& error) {
      ADD_FAILURE() << error.what_without_backtrace();
    }
  }
  for (std::string_view type : graph::rule_types()) {
    EXPECT_TRUE(proved.types.contains(type)) << "no graph and no case shows " << type;
  }
}

// How many random cases there are for each hand-written one: by hand, as many as one likes.
std::uint64_t random_cases() {
  const char* wanted = std::getenv("HETEROG_RANDOM_CASES");
  return wanted ? std::strtoull(wanted, nullptr, 10) : 8;
}

struct Tally {
  int proved = 0;
  int refused = 0;     // by the rules: the op runs whole
  int impossible = 0;  // nothing that the operator, the exporter or the reader takes
};

void prove_random_case(const Case& example, Proved& proved, Tally& tally) {
  SCOPED_TRACE(text_of(example));
  std::optional<ModelGraph> graph;
  try {
    graph = graph_of(example);
  } catch (const std::exception&) {
    ++tally.impossible;
    return;
  }
  const SplitAnalysis splits = analyze_splits(*graph);
  ++(splits.sliceable[OpId(graph->op_count() - 1)] ? tally.proved : tally.refused);
  prove_graph(*graph, text_of(example), proved);
}

TEST(OpProof, RandomCasesAreProvedOrRefused) {
  at::set_num_threads(1);
  Rng rng(17);
  Proved proved;
  Tally tally;
  for (const Case& example : cases()) {
    for (std::uint64_t i = random_cases(); i > 0; --i) {
      prove_random_case(random_case(example, rng), proved, tally);
    }
  }
  // Rules are reached, and so are their refusals.
  EXPECT_GT(tally.proved, tally.impossible / 10);
  EXPECT_GT(tally.refused, tally.impossible / 20);
  RecordProperty("proved", tally.proved);
  RecordProperty("refused", tally.refused);
  RecordProperty("impossible", tally.impossible);
}

// The proof of one op under an analysis that has been tampered with.
template <class Tamper>
std::string verdict(const Case& example, Tamper tamper) {
  const ModelGraph graph = graph_of(example);
  SplitAnalysis splits = analyze_splits(graph);
  const OpId op(graph.op_count() - 1);
  tamper(splits, graph, op);
  return outcome(graph, splits, op, {2, 5});
}

const Case kWeightGradient = {"aten.mm.default", {"in 3,B", "in B,4"}, R"(["%0", "%1"])"};
const Case kPenalty = {"aten.add.Tensor", {"sum 3", "in 3"}, R"(["%0", "%1"])"};
const Case kFold = {"aten._unsafe_view.default", {"in 4,B,3"}, R"(["%0", ["#4B", 3]])"};

TEST(OpProof, FindsASumTakenForAMean) {
  EXPECT_EQ(verdict(kWeightGradient, [](auto&, auto&, OpId) {}), "");
  EXPECT_NE(verdict(kWeightGradient,
                    [](SplitAnalysis& splits, const ModelGraph& graph, OpId op) {
                      splits.rules[graph.outputs(op)[0]].kind = SplitKind::kMean;
                    }),
            "");
}

TEST(OpProof, FindsASumTakenForTheSame) {
  EXPECT_NE(verdict(kWeightGradient,
                    [](SplitAnalysis& splits, const ModelGraph& graph, OpId op) {
                      splits.rules[graph.outputs(op)[0]].kind = SplitKind::kSame;
                    }),
            "");
}

TEST(OpProof, FindsAnAddendCountedOnEverySlice) {
  EXPECT_EQ(verdict(kPenalty, [](auto&, auto&, OpId) {}), "");
  EXPECT_NE(verdict(kPenalty, [](SplitAnalysis& splits, const ModelGraph&,
                                 OpId op) { splits.uses.mutable_row(op)[1] = OperandUse::kSame; }),
            "");
}

TEST(OpProof, FindsAPartialSumReadWithoutReduction) {
  const Case norm = {"aten.linalg_vector_norm.default", {"sum 3"}};
  EXPECT_EQ(verdict(norm, [](auto&, auto&, OpId) {}), "");
  EXPECT_NE(verdict(norm,
                    [](SplitAnalysis& splits, const ModelGraph& graph, OpId op) {
                      splits.uses.mutable_row(op)[0] = OperandUse::kPartial;
                      splits.rules[graph.outputs(op)[0]].kind = SplitKind::kSum;
                    }),
            "");
}

TEST(OpProof, FindsTheBatchAtTheWrongPlaceInAFold) {
  EXPECT_EQ(verdict(kFold, [](auto&, auto&, OpId) {}), "");
  EXPECT_NE(verdict(kFold, [](SplitAnalysis& splits, const ModelGraph& graph,
                              OpId op) { splits.rules[graph.outputs(op)[0]].outer = 1; }),
            "");
}

}  // namespace
}  // namespace heterog::split_proof
