// Reading model graphs from their file form (docs/formats.md).
#pragma once

#include <cstdint>
#include <string>

#include "graph/known_batches.h"
#include "graph/model_graph.h"

namespace heterog::graph {

struct GraphFile {
  ModelGraph graph;
  // For whole batches: of so many samples the graph is known to hold; all where the file does not
  // say. A slice may have fewer.
  KnownBatches known = {};
};

// Throw an input error that names file and field. Never crash, whatever the bytes. A file that is
// not there may be a model of the zoo, by its name (base/own_file.h).
GraphFile read_graph_file(const std::string& given);
GraphFile parse_graph_file(const std::string& text, const std::string& source);
// Where no whole batch is meant.
ModelGraph read_graph(const std::string& path);
ModelGraph parse_graph(const std::string& text, const std::string& source);

}  // namespace heterog::graph
