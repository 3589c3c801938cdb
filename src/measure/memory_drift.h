// How far the memory that the ranks of a job took is from what was predicted.
#pragma once

#include <string>
#include <vector>

#include "compiler/plan.h"
#include "cost/problem.h"
#include "runtime/exec/worker_types.h"
#include "sim/simulator.h"

namespace heterog::measure {

// Of one rank, at the peak of its step. Without the reserve of its device's type, which is for what
// is no tensor: libraries, code, what allocators leave unused.
struct MemoryDrift {
  std::string device;
  runtime::RankMemory predicted;
  runtime::RankMemory measured;
  double ratio() const {
    return static_cast<double>(measured.most) / static_cast<double>(predicted.most);
  }
};
// `measured`: of each rank. `result`: with its timeline.
std::vector<MemoryDrift> memory_drift(const cost::Problem& problem, const compiler::Plan& plan,
                                      const sim::SimResult& result,
                                      const std::vector<runtime::RankMemory>& measured);

}  // namespace heterog::measure
