// Work of each device in a step, samples a second, and the way of gradients: the first questions of
// a person.
#pragma once

#include <string>
#include <vector>

#include "cost/problem.h"
#include "sim/simulator.h"

namespace heterog::explain {

double samples_per_second(std::int64_t batch, Nanoseconds step);
std::string rate_text(std::int64_t batch, Nanoseconds step);  // "839 samples/s"
std::string step_text(std::int64_t batch, Nanoseconds step);  // "114.4 ms, 839 samples/s"

// The part of the computed work that each device does: samples of ops, weighted with the op's mean
// time over the devices. Adds up to 1.
IdVector<DeviceId, double> work_shares(const cost::Problem& problem, const compiler::Plan& plan);

// The busiest resource: a compute stream, or a link.
struct Busiest {
  DeviceId device;  // one of both is valid
  LinkId link;
  Nanoseconds busy = 0;
};
Busiest busiest_of(const cost::Problem& problem, const sim::SimResult& result);

// "t4/nic.out (1.15 GB/s)" or "t4/gpu0 (T4)".
std::string busiest_name(const cost::Problem& problem, const Busiest& busiest);

}  // namespace heterog::explain
