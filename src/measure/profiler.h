// Measures the operators of a graph on this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cost/profile.h"
#include "graph/model_graph.h"
#include "launch/gpu_parts.h"

namespace heterog::measure {

struct ProfilerOptions {
  std::string device;                // the device type's name, for the profile
  bool gpu = false;                  // run on the first GPU, else on the CPU
  int multiprocessors = 0;           // of that GPU to run on; 0: all
  int threads = 1;                   // of one operator on the CPU
  int repeat = 7;                    // samples of a median
  std::vector<std::int64_t> slices;  // numbers of samples, ascending
  std::uint64_t seed = 0;            // of the values that operators run on
  int slow = 1;                      // in steps: computes everything so many times
};

// Operands of an operator take turns until they are of so many bytes together, or sixteen sets: so
// a large operator finds nothing in the caches that it read before.
Bytes bytes_that_take_turns(const ProfilerOptions& options);

// Streams on those multiprocessors; empty where they are all.
launch::PartStreams streams_of(const ProfilerOptions& options);

// Called as the work goes on; each may be empty.
struct ProfilerHooks {
  // Share of the work of this call that is done, and the form about to be measured.
  std::function<void(double done, const std::string& form)> progress;
  // After each operator, with all that is known so far.
  std::function<void(const cost::Profile& so_far)> save;
  // Asked before each operator but the first, so that every run gets on; true ends the work,
  // unfinished.
  std::function<bool()> expired;
};

// An empty profile of this graph and machine. Throws an input error if there is no GPU though one
// is asked for.
cost::Profile begin_profile(const graph::ModelGraph& graph, const ProfilerOptions& options);

// Goes on with what `begun` has not: links, then every distinct operator at every slice (one slice
// where nothing depends on the batch). Forks if links are missing: call it before any thread is
// started. Throws an error of a failed run, naming the op, if an operator does.
cost::Profile measure_profile(const graph::ModelGraph& graph, const ProfilerOptions& options,
                              cost::Profile begun, const ProfilerHooks& hooks);

}  // namespace heterog::measure
