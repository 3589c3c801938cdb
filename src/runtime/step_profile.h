// Measures what operators cost in whole steps of the runtime, in place of one by one.
#pragma once

#include <cstdint>
#include <functional>

#include "cost/profile.h"
#include "graph/model_graph.h"
#include "runtime/profiler.h"
#include "runtime/program.h"

namespace heterog::runtime {

// For every slice size, `repeat` steps on one device after one to warm up. An operator costs the
// median time from its beginning to that of the next: with all that the runtime does around it, and
// with the caches as a step leaves them. What makes one task (an update) is shared out evenly among
// its operators. `one_device` makes the job of a step of so many samples. Links are not measured.
// CPU alone.
cost::Profile measure_in_steps(const graph::ModelGraph& graph,
                               const std::function<Job(std::int64_t samples)>& one_device,
                               const ProfilerOptions& options, cost::Profile begun,
                               const ProfilerHooks& hooks);

}  // namespace heterog::runtime
