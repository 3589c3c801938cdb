// Reading model graphs from their file form (docs/formats.md).
#pragma once

#include <cstdint>
#include <string>

#include "graph/model_graph.h"

namespace heterog::graph {

struct GraphFile {
  ModelGraph graph;
  // The graph is known to hold for whole batches of so many samples or more: the least that it was
  // traced at; 1 where the file does not say. A slice may have fewer.
  std::int64_t smallest_batch = 1;
};

// Throw an input error that names file and field. Never crash, whatever the bytes. A file that is
// not there may be a model of the zoo, by its name (base/own_file.h).
GraphFile read_graph_file(const std::string& given);
GraphFile parse_graph_file(const std::string& text, const std::string& source);
// Where no whole batch is meant.
ModelGraph read_graph(const std::string& path);
ModelGraph parse_graph(const std::string& text, const std::string& source);

}  // namespace heterog::graph
