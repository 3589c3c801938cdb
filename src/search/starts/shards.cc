// Water-filling: state goes where most memory is left.
#include "search/starts/shards.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "decide/frozen.h"

namespace heterog::search {
namespace {

// Of a device whose memory is full: next to none, as a weight is above 0.
constexpr double kLeastPart = 1e-3;

// What is dealt: optimizer state, and what is frozen where that lies in rows.
double dealt_bytes(const cost::Problem& problem, const decide::Strategy& strategy) {
  double bytes = 0;
  const auto gathers = [](const decide::UnitDecision& unit) {
    return unit.sync == decide::SyncMethod::kGathered;
  };
  if (std::ranges::any_of(strategy.units, gathers)) {
    for (TensorId tensor : decide::frozen_tensors(problem)) {
      bytes += static_cast<double>(problem.graph->bytes(tensor, 1));
    }
  }
  for (const graph::UpdateChain& chain : problem.folded->chains) {
    for (TensorId state : chain.row_state) {
      bytes += static_cast<double>(problem.graph->bytes(state, 1));
    }
  }
  return bytes;
}

// How much is left everywhere once `filled` is poured into rooms of this size, the fullest of which
// may have none.
double level(std::vector<double> rooms, double filled) {
  std::ranges::sort(rooms, std::greater<>());
  double sum = 0, left = rooms.front();
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    if (rooms[i] <= left && i > 0) break;
    sum += rooms[i];
    left = (sum - filled) / static_cast<double>(i + 1);
  }
  return left;
}

decide::Strategy with_method(decide::Strategy strategy, decide::SyncMethod sync) {
  for (decide::UnitDecision& unit : strategy.units) {
    if (unit.replicas.size() > 1) unit.sync = sync;
  }
  return strategy;
}

}  // namespace

decide::Strategy sharded(decide::Strategy strategy) {
  return with_method(std::move(strategy), decide::SyncMethod::kSharded);
}

decide::Strategy gathered(decide::Strategy strategy) {
  return with_method(std::move(strategy), decide::SyncMethod::kGathered);
}

decide::Strategy with_rows_by_memory(const cost::Problem& problem, decide::Strategy strategy,
                                     const IdVector<DeviceId, Bytes>& peak_bytes) {
  const double state = dealt_bytes(problem, strategy);
  const auto devices = static_cast<double>(problem.cluster->device_count());
  std::vector<double> rooms;
  for (DeviceId device : problem.cluster->device_ids()) {
    const Bytes left = problem.cluster->device(device).memory_bytes - peak_bytes[device];
    rooms.push_back(static_cast<double>(left) + state / devices);
  }
  const double left = level(rooms, state);
  strategy.row_weights.clear();
  for (double room : rooms) {
    strategy.row_weights.push_back(std::max((room - left) / std::max(state, 1.0), kLeastPart));
  }
  return strategy;
}

}  // namespace heterog::search
