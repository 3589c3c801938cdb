// Rows of parameters, beside what the simulator has in memory.
#include "search/answers/fsdp2_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"

namespace heterog::search {
namespace {

// Buffers, as masks, are not told from weights that are not trained, but are few bytes: of those of
// the trained parameters at most.
constexpr double kMostKept = 0.05;

}  // namespace

void check_for_fsdp2(const cost::Problem& problem) {
  const graph::ModelGraph& graph = *problem.graph;
  std::set<TensorId> replaced;  // running statistics
  for (TensorId tensor : graph.tensor_ids()) {
    if (graph.tensor(tensor).replaces.valid()) replaced.insert(graph.tensor(tensor).replaces);
  }
  Bytes trained = 0, kept = 0;
  TensorId largest;
  for (TensorId tensor : graph.tensor_ids()) {
    const graph::TensorRole role = graph.tensor(tensor).role;
    const bool is_buffer = role == graph::TensorRole::kBuffer;
    if (!is_buffer && role != graph::TensorRole::kParameter) continue;
    const Bytes bytes = graph.bytes(tensor, 1);
    if (!is_buffer) trained += bytes;
    if (!is_buffer || replaced.contains(tensor)) continue;
    kept += bytes;
    if (!largest.valid() || bytes > graph.bytes(largest, 1)) largest = tensor;
  }
  VALIDATE(
      static_cast<double>(kept) <= kMostKept * static_cast<double>(trained),
      "fsdp2: {} has {:.2f} GB of weights that are not trained ({}), and {:.2f} GB that are; "
      "fully_shard gathers those in each step too, and a plan never moves them, so that its step "
      "would be too short; expected a model that is trained whole; heterog.auto_shares in the "
      "script measures any",
      graph.name(), static_cast<double>(kept) / 1e9, graph.tensor(largest).name,
      static_cast<double>(trained) / 1e9);
}

Bytes parameter_rows(const cost::Problem& problem, std::size_t ranks) {
  if (ranks < 2) return 0;  // the parameters themselves
  const auto parts = static_cast<std::int64_t>(ranks);
  Bytes bytes = 0;
  for (TensorId parameter : problem.graph->parameters()) {
    const Bytes whole = problem.graph->bytes(parameter, 1);
    const auto shape = problem.graph->shape(parameter);
    const std::int64_t rows = shape.empty() ? 1 : shape[0].c;
    if (rows > 0) bytes += whole / rows * ((rows + parts - 1) / parts);
  }
  return bytes;
}

oracle::Measured with_parameter_rows(const cost::Problem& problem, const decide::Strategy& strategy,
                                     oracle::Measured measured) {
  std::set<DeviceId> ranks;
  for (const decide::UnitDecision& unit : strategy.units) {
    for (const decide::Replica& replica : unit.replicas) ranks.insert(replica.device);
  }
  IdVector<DeviceId, Bytes> peaks = std::move(measured.peak_bytes);
  const Bytes rows = parameter_rows(problem, ranks.size());
  for (DeviceId rank : ranks) peaks[rank] += rows;
  oracle::Measured judged = oracle::judge(problem, measured.evaluation.step, std::move(peaks));
  judged.busy = std::move(measured.busy);
  return judged;
}

std::vector<oracle::Measured> WithParameterRows::measure(
    std::span<const decide::Strategy> strategies) {
  std::vector<oracle::Measured> all = asked_.measure(strategies);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = with_parameter_rows(problem(), strategies[i], std::move(all[i]));
  }
  return all;
}

std::vector<oracle::Measured> WithParameterRows::measure_rounds(const decide::Strategy& strategy) {
  std::vector<oracle::Measured> all = asked_.measure_rounds(strategy);
  for (oracle::Measured& one : all) {
    one = with_parameter_rows(problem(), strategy, std::move(one));
  }
  return all;
}

}  // namespace heterog::search
