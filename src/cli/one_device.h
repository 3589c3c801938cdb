// A graph's step on one device, whatever that could do: for measuring.
#pragma once

#include <cstdint>
#include <memory>

#include "graph/model_graph.h"
#include "runtime/program.h"

namespace heterog::cli {

// Tasks in the order of the graph.
runtime::Job one_device_job(std::shared_ptr<const graph::ModelGraph> graph, std::int64_t samples);

}  // namespace heterog::cli
