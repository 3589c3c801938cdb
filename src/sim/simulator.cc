// Simulations by order.
#include "sim/simulator.h"

#include <algorithm>

#include "sim/event_loop.h"

namespace heterog::sim {

using compiler::Hold;
using compiler::Plan;
using decide::OrderPolicy;

struct Simulator::Scratch {
  EventLoop<RankQueue> by_rank;
  EventLoop<FifoQueue> by_time;
  SimResult result;

  const SimResult& run(const Plan& plan, OrderPolicy order, bool timeline) {
    if (order == OrderPolicy::kFifo) {
      by_time.run(plan, {.timeline = timeline}, result);
    } else {
      by_rank.run(plan, {.timeline = timeline}, result);
    }
    if (result.out_of_memory) {
      const DeviceId device = result.out_of_memory->device;
      result.out_of_memory->missing_bytes = result.peak_bytes[device] - plan.capacity[device];
    }
    result.computation = 0;
    for (Nanoseconds busy : result.device_busy) {
      result.computation = std::max(result.computation, busy);
    }
    result.communication = 0;
    for (Nanoseconds busy : result.link_busy) {
      result.communication = std::max(result.communication, busy);
    }
    return result;
  }
};

Simulator::Simulator() : scratch_(std::make_unique<Scratch>()) {}
Simulator::~Simulator() = default;

const SimResult& Simulator::simulate(const Plan& plan, OrderPolicy order) {
  return scratch_->run(plan, order, false);
}

const SimResult& Simulator::simulate_timeline(const Plan& plan, OrderPolicy order) {
  return scratch_->run(plan, order, true);
}

SimResult simulate(const Plan& plan, OrderPolicy order) {
  Simulator simulator;
  return simulator.simulate_timeline(plan, order);
}

}  // namespace heterog::sim
