// Whole training steps of the tiny zoo: slices of the batch give the update of the whole batch.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>

#include <string>

#include "graph/graph_io.h"
#include "split_proof/step.h"
#include "split_proof/zoo.h"

namespace heterog::split_proof {
namespace {

using graph::ModelGraph;
using graph::OperandUse;
using graph::SplitAnalysis;
using graph::SplitKind;
using graph::TensorRole;

constexpr double kStepTolerance = 1e-10;  // relative, in double precision (decision 12)

bool normalises_batches(const ModelGraph& graph) {
  for (OpId op : graph.op_ids()) {
    if (graph.type_name(op).find("batch_norm") != std::string_view::npos) return true;
  }
  return false;
}

// Running variances are unbiased, by the number of elements of the slice: share-weighted means of
// them differ from the whole's by design, also where all slices are alike.
bool running_variance(const ModelGraph& graph, TensorId id) {
  const TensorId old = graph.tensor(id).replaces;
  return old.valid() && graph.tensor(old).name.ends_with("running_var");
}

double gradient_norm(const ModelGraph& graph, const Values& values) {
  double squares = 0;
  for (TensorId id : graph.tensor_ids()) {
    if (graph.tensor(id).role != TensorRole::kGradient) continue;
    squares += values[id].square().sum().item<double>();
  }
  return std::sqrt(squares);
}

// Names of the tensors that the slices get wrong.
std::vector<std::string> wrong_tensors(const ModelGraph& graph, const SplitAnalysis& splits,
                                       const StepOptions& options) {
  const Values sources = random_sources(graph, options);
  StepOptions plain = options;
  plain.sizes = {whole_batch(options.sizes)};
  const Values expected = run_step(graph, splits, sources, plain);
  const Values found = run_step(graph, splits, sources, options);
  const double global = gradient_norm(graph, expected);
  EXPECT_GT(global, 0);
  std::vector<std::string> wrong;
  for (TensorId id : graph.tensor_ids()) {
    if (!expected[id].defined()) continue;
    if (options.batch_norm == BatchNorm::kTraining && normalises_batches(graph) &&
        running_variance(graph, id)) {
      continue;
    }
    // Gradients that are zero in theory are held to the size of all gradients.
    const bool gradient = graph.tensor(id).role == TensorRole::kGradient;
    const bool vanishes = gradient && expected[id].norm().item<double>() < 1e-6 * global;
    EXPECT_FALSE(expected[id].isnan().any().item<bool>()) << graph.tensor(id).name;
    if (!agree(found[id], expected[id], kStepTolerance, vanishes ? global : 0)) {
      wrong.push_back(graph.tensor(id).name);
    }
  }
  return wrong;
}

class StepProof : public testing::TestWithParam<std::string> {};

TEST_P(StepProof, SlicesMakeTheStepOfTheWholeBatch) {
  at::set_num_threads(1);
  const ModelGraph graph = graph::read_graph(GetParam());
  const SplitAnalysis splits = graph::analyze_splits(graph);
  // Statistics of a slice differ from the batch's by design. So once with those of inference, and
  // once on slices that are alike.
  EXPECT_EQ(wrong_tensors(graph, splits, {.sizes = {2, 5}, .batch_norm = BatchNorm::kInference}),
            std::vector<std::string>());
  if (normalises_batches(graph)) {
    EXPECT_EQ(wrong_tensors(graph, splits, {.sizes = {2, 2, 2}, .repeats = 3}),
              std::vector<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(TinyZoo, StepProof, testing::ValuesIn(tiny_graphs()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name;
                           for (char c : info.param.substr(7)) {
                             if (c == '-') break;
                             if (std::isalnum(static_cast<unsigned char>(c))) name += c;
                           }
                           return name;
                         });

// Exported with batch normalisation written out as sums over the batch: statistics are the whole
// batch's, in training, whatever the slices.
TEST(ExactBatchNorm, SlicesMakeTheStepOfTheWholeBatch) {
  at::set_num_threads(1);
  const ModelGraph graph = graph::read_graph("tests/data/exact_batch_norm.json.gz");
  const SplitAnalysis splits = graph::analyze_splits(graph);
  for (OpId op : graph.op_ids()) {
    EXPECT_TRUE(splits.sliceable[op]) << graph.op(op).name << ": " << splits.reason[op];
  }
  int statistics = 0;
  for (TensorId id : graph.tensor_ids()) {
    const TensorId old = graph.tensor(id).replaces;
    if (!old.valid() || graph.tensor(old).role != TensorRole::kBuffer) continue;
    EXPECT_EQ(splits.rules[id].kind, SplitKind::kSame) << graph.tensor(id).name;
    ++statistics;
  }
  EXPECT_EQ(statistics, 4 * 3);  // means, variances and counts of four layers
  for (const SliceSizes& sizes : {SliceSizes{2, 5}, SliceSizes{1, 6}, SliceSizes{3, 1, 2}}) {
    EXPECT_EQ(wrong_tensors(graph, splits, {.sizes = sizes}), std::vector<std::string>());
  }
}

TEST(ExactBatchNorm, FindsSumsThatAreNotAddedUp) {
  at::set_num_threads(1);
  const ModelGraph graph = graph::read_graph("tests/data/exact_batch_norm.json.gz");
  SplitAnalysis splits = graph::analyze_splits(graph);
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).phase == graph::Phase::kUpdate) continue;
    for (OperandUse& use : splits.uses.mutable_row(op)) {
      if (use == OperandUse::kReduced) use = OperandUse::kPartial;
    }
  }
  EXPECT_NE(wrong_tensors(graph, splits, {.sizes = {2, 5}}), std::vector<std::string>());
}

TEST(StepProofItself, FindsAGradientThatIsNotSummed) {
  const ModelGraph graph = graph::read_graph("models/lenet5-tiny.json.gz");
  SplitAnalysis splits = graph::analyze_splits(graph);
  for (TensorId id : graph.tensor_ids()) {
    if (graph.tensor(id).role == TensorRole::kGradient &&
        splits.rules[id].kind == SplitKind::kSum) {
      splits.rules[id].kind = SplitKind::kMean;
      EXPECT_NE(wrong_tensors(graph, splits, {.sizes = {2, 5}}), std::vector<std::string>());
      return;
    }
  }
  FAIL() << "no gradient is a sum";
}

}  // namespace
}  // namespace heterog::split_proof
