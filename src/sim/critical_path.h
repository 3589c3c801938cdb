// Why a simulated step takes as long as it does: the chain of tasks that ends last, walked back.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/plan.h"
#include "sim/simulator.h"

namespace heterog::sim {

// The last cause for which a task waited before it started.
enum class Cause : std::uint8_t {
  kNothing,   // it starts with the step
  kInput,     // a task whose result it needs, or which had to go before it
  kResource,  // its inputs were there, but a task of higher priority took its resource
  kOvertake,  // the same, by a task of lower priority that was there first
};
std::string_view cause_name(Cause cause);  // "start", "input", "resource", "overtaken"

// One task of the chain. The segments of a path follow one another without a gap, from 0 to the end
// of the step; a task that releases a resource early counts until then.
struct Segment {
  TaskId task;
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  Nanoseconds ready = 0;  // when its inputs were there
  Cause cause = Cause::kNothing;
  TaskId waited_for;    // the task before it in the chain
  ResourceId resource;  // kResource, kOvertake: what that one held
};

// In order of time. Needs a result with its timeline, and the order it was simulated in. Of several
// causes at one moment an input goes before a resource, what took longest before what was short.
std::vector<Segment> critical_path(const compiler::Plan& plan, const SimResult& result,
                                   decide::OrderPolicy order);

// The time of a device's compute stream during the step; the fields add up to the step.
struct DeviceTime {
  Nanoseconds computing = 0;
  Nanoseconds moving = 0;   // idle: what it needs next is on its way
  Nanoseconds queued = 0;   // idle: what it needs next waits for a link or a channel
  Nanoseconds waiting = 0;  // idle: what it needs next is not made yet, elsewhere
  Nanoseconds done = 0;     // idle: nothing is left to do
  // `waiting` by the device that it waits for (straggler); of several, the last.
  IdVector<DeviceId, Nanoseconds> waiting_for;
};
IdVector<DeviceId, DeviceTime> device_times(const compiler::Plan& plan, const SimResult& result);

// Tasks of a path that do the same at the same place, one after another: the lines of a summary.
struct Stretch {
  std::size_t first = 0;  // segments [first, last) of the path
  std::size_t last = 0;
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  bool mixed = false;  // several kinds or places, each too short for a line of its own
  Nanoseconds length() const { return end - begin; }
};
// At most `most` stretches (≥ 1), the longest on lines of their own.
std::vector<Stretch> fold_path(const compiler::Plan& plan, std::span<const Segment> path,
                               std::size_t most);

}  // namespace heterog::sim
