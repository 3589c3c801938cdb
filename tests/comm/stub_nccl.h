// NCCL among threads of one process, on the fake device: what it answers, and what is counted.
#pragma once

#include <cstdint>
#include <optional>

namespace heterog::comm::stub_nccl {

// What does not go well. Ranks are those of a communicator.
struct Faults {
  int questions = 0;  // answered "in progress", of each call of a communicator that does not block
  std::optional<int> lost_for;    // the rank that hears of a lost peer when it asks
  std::optional<int> refused_to;  // the rank whose next calls are refused
  std::optional<int> hangs_for;   // the rank whose next calls do not return before an abort
};
// Of all communicators; none is left of those made before.
void reset(const Faults& faults = {});
void set_faults(const Faults& faults);

struct Counts {
  std::uint64_t calls = 0;     // enqueued
  std::uint64_t blocking = 0;  // communicators that block
  std::uint64_t aborts = 0;
  std::uint64_t groups = 0;
};
Counts counts();
// By the calling thread: how often it asked what became of a call.
std::uint64_t questions_of_this_thread();

}  // namespace heterog::comm::stub_nccl
