// Lessons for the cases that are to come, searched for by all ranks that train together.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/thread_pool.h"
#include "learn/reinforce/learner.h"

namespace heterog::learn {

struct TeachingContext {
  std::span<const Case> cases;
  ThreadPool& threads;
  Team& team = alone();
  // From any thread, before each plan that a search simulates: whether to give up. May be empty.
  std::function<bool()> stopped = {};
  // How many of its searches this rank has done; one call at a time, from any thread. May be empty.
  std::function<void(std::int64_t done, std::int64_t asked)> progress = {};
};

// Sees to it that the cases of the next step are taught. Where one is not, all are asked for that
// steps up to the next checkpoint are about: so a checkpoint holds what it would hold if each step
// asked for its own, and no core waits at every step for the longest of a few searches. Each rank
// searches for some, one on each of its threads. False if one of them gave up; what has been found
// by then is kept. The lessons do not depend on the number of ranks or threads.
bool teach_next(Learner& learner, const TeachingContext& context);

}  // namespace heterog::learn
