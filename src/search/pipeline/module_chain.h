// A model as a chain of modules: where an engine that splits a model by its modules can cut it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/problem.h"
#include "search/pipeline/chain.h"

namespace heterog::search {

// Links of the forward pass, one behind the other. A link begins with the first op of a module that
// is called once, and of what the links before made only one tensor is read from there on, inside
// that module alone. So a stage needs nothing of the stage before but the module's argument.
//
// What is made of inputs and constants alone (masks, positions, rotary embeddings) may be read
// anywhere: every stage makes it itself. So may copies of one weight (in half precision, say).
struct ModuleChain {
  struct Link {
    OpId begin;           // its first op; of the first link, the graph's first
    std::string entered;  // the module that it begins with; empty of the first link
  };
  std::vector<Link> links;
  std::size_t size() const { return links.size(); }
};

ModuleChain module_chain(const graph::ModelGraph& graph);

// Only the links that begin with a layer: with a member of the longest numbered list of modules,
// which is given too ("model.layers"). Throws an input error if there are not
// two such layers, or if there is another list (encoder and decoder).
struct LayerChain {
  ModuleChain chain;
  std::string list;
};
LayerChain layer_chain(const graph::ModelGraph& graph, const ModuleChain& modules);

// The names of the modules that links [begin, end) run and no others do, the outermost, in the
// order of their first ops. Modules that compute from inputs and constants alone are none.
std::vector<std::string> modules_of(const graph::ModelGraph& graph, const ModuleChain& chain,
                                    std::size_t begin, std::size_t end);

// Links as the layers of a chain.
Chain chain_of(const cost::Problem& problem, const ModuleChain& modules);

}  // namespace heterog::search
