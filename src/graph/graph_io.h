// Reading model graphs from their file form (docs/formats.md).
#pragma once

#include <string>

#include "graph/model_graph.h"

namespace heterog::graph {

// Throws an input error that names file and field. Never crashes, whatever the bytes.
ModelGraph read_graph(const std::string& path);
ModelGraph parse_graph(const std::string& text, const std::string& source);

}  // namespace heterog::graph
