// Drift of memory: measured against predicted memory of the ranks of a job.
#pragma once

#include <string>
#include <vector>

#include "compiler/plan.h"
#include "cost/problem.h"
#include "runtime/exec/worker_types.h"
#include "sim/simulator.h"

namespace heterog::measure {

// The memory of one rank at the peak of its step. The reserve of its device's type is left out,
// which is for what is no tensor: libraries, code, what allocators leave unused.
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
