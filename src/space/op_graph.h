// The ops that do work, without aliases, and the data that flows between them.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/problem.h"

namespace heterog::space {

// A flow of data between two ops that are not aliases (aliases folded into their consumers).
struct OpEdge {
  std::uint32_t source = 0;  // node index
  std::uint32_t target = 0;
  Bytes bytes = 0;  // that the target reads, at the whole batch
};

struct OpGraph {
  std::vector<OpId> nodes;             // ops that are not aliases, ascending
  std::vector<std::uint32_t> node_of;  // by op; aliases: of the op that makes their base
  std::vector<OpEdge> edges;           // ascending (target, source), each pair once

  // By node.
  std::vector<Bytes> bytes_in, bytes_out, parameter_bytes_in;
  std::vector<std::uint32_t> readers, sources;
};

OpGraph make_op_graph(const cost::Problem& problem);

}  // namespace heterog::space
