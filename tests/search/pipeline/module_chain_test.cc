// Where a model can be cut between modules, and which modules each part has.
#include "search/pipeline/module_chain.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "graph/graph_io.h"
#include "support/graphs.h"

namespace heterog::search {
namespace {

using graph::tensor_value;
using support::GraphMaker;
using support::kB;
using support::n;
using testing::ElementsAre;

std::vector<std::string> entered(const ModuleChain& chain) {
  std::vector<std::string> names;
  for (const ModuleChain::Link& link : chain.links) names.push_back(link.entered);
  return names;
}

// A forward pass of square products and sums, each in a module.
class Model {
 public:
  Model() : x_(maker_.input("x", {kB, n(4)})) {}
  TensorId x() const { return x_; }
  TensorId mm(TensorId in, const std::string& scope) {
    const TensorId weight = maker_.parameter(scope + ".weight", {n(4), n(4)});
    return maker_.op("aten.mm.default", {tensor_value(in), tensor_value(weight)}, {kB, n(4)},
                     {.scope = scope});
  }
  TensorId add(TensorId a, TensorId b, const std::string& scope) {
    return maker_.op("aten.mul.Tensor", {tensor_value(a), tensor_value(b)}, {kB, n(4)},
                     {.scope = scope});
  }
  TensorId relu(TensorId in, const std::string& scope) {
    return maker_.op("aten.relu.default", {tensor_value(in)}, {kB, n(4)}, {.scope = scope});
  }
  graph::ModelGraph build(TensorId result) {
    const TensorId loss = maker_.op("aten.sum.default", {tensor_value(result)}, {},
                                    {.role = graph::TensorRole::kOutput});
    maker_.loss(loss);
    return std::move(maker_).build();
  }

 private:
  GraphMaker maker_;
  TensorId x_;
};

TEST(ModuleChain, CutsBetweenModulesThatHandOnOneTensor) {
  Model model;
  TensorId h = model.mm(model.x(), "first");
  for (const char* layer : {"h.0", "h.1"}) {
    const std::string name = layer;
    // What a block adds up is inside it: it is not cut.
    h = model.add(h, model.mm(model.mm(h, name + ".up"), name + ".down"), name);
  }
  const graph::ModelGraph graph = model.build(model.mm(h, "head"));
  const ModuleChain chain = module_chain(graph);
  EXPECT_THAT(entered(chain), ElementsAre("", "h.0", "h.1", "head"));
  EXPECT_THAT(modules_of(graph, chain, 0, 2), ElementsAre("first", "h.0"));
  EXPECT_THAT(modules_of(graph, chain, 2, 4), ElementsAre("h.1", "head"));
  EXPECT_THAT(entered(layer_chain(graph, chain).chain), ElementsAre("", "h.0", "h.1"));
}

// first → a → b, and first is added to b's result outside of any module.
TEST(ModuleChain, DoesNotCutUnderWhatPassesAroundAModule) {
  Model model;
  const TensorId first = model.mm(model.x(), "first");
  const TensorId b = model.mm(model.mm(first, "a"), "b");
  const graph::ModelGraph graph = model.build(model.mm(model.add(first, b, ""), "head"));
  EXPECT_THAT(entered(module_chain(graph)), ElementsAre("", "head"));
}

// A mask of the inputs is read in every layer, and every stage has it.
TEST(ModuleChain, CutsUnderWhatIsMadeOfInputsAlone) {
  Model model;
  const TensorId mask = model.relu(model.x(), "mask");
  TensorId h = model.mm(model.x(), "first");
  for (const char* layer : {"h.0", "h.1"}) {
    h = model.add(model.mm(h, std::string(layer) + ".up"), mask, layer);
  }
  const graph::ModelGraph graph = model.build(model.mm(h, "head"));
  const ModuleChain chain = module_chain(graph);
  EXPECT_THAT(entered(chain), ElementsAre("", "h.0", "h.1", "head"));
  EXPECT_THAT(modules_of(graph, chain, 0, 4), ElementsAre("first", "h.0", "h.1", "head"));
}

// A module that is called again later cannot be where a stage begins, nor be of one stage alone.
TEST(ModuleChain, DoesNotBeginWithAModuleThatRanBefore) {
  Model model;
  TensorId h = model.mm(model.x(), "a");
  h = model.relu(h, "act");
  h = model.mm(h, "b");
  h = model.relu(h, "act");
  const graph::ModelGraph graph = model.build(model.mm(h, "c"));
  const ModuleChain chain = module_chain(graph);
  EXPECT_THAT(entered(chain), ElementsAre("", "act", "b", "c"));
  EXPECT_THAT(modules_of(graph, chain, 0, 2), ElementsAre("a"));
  EXPECT_THAT(modules_of(graph, chain, 2, 4), ElementsAre("b", "c"));
}

TEST(ModuleChain, NeedsLayersWhereAnEngineSplitsByThem) {
  Model model;
  const graph::ModelGraph graph = model.build(model.mm(model.mm(model.x(), "a"), "b"));
  EXPECT_THROW(layer_chain(graph, module_chain(graph)), Error);
}

// Its dropouts and tied output layer are in the way of no layer.
TEST(ModuleChain, OfABertHasItsLayers) {
  const graph::ModelGraph graph = graph::read_graph("models/bert_large24.json.gz");
  const LayerChain layers = layer_chain(graph, module_chain(graph));
  EXPECT_EQ(layers.list, "bert.encoder.layer");
  ASSERT_EQ(layers.chain.size(), 24);
  EXPECT_EQ(layers.chain.links[1].entered, "bert.encoder.layer.1");
  EXPECT_EQ(layers.chain.links.back().entered, "bert.encoder.layer.23");
}

}  // namespace
}  // namespace heterog::search
