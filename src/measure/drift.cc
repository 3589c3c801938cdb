// Adds up what tasks of a kind took, beside the predictions.
#include "measure/drift.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/median.h"
#include "operators/facts.h"

namespace heterog::measure {

using compiler::TaskKind;

namespace {

std::string family_text(operators::Family family) {
  using operators::Family;
  switch (family) {
    case Family::kMatMul:
    case Family::kMatMulAdd:
    case Family::kAttention:
    case Family::kAttentionBackward:
      return "matrix products";
    case Family::kConvolution:
    case Family::kConvolutionBackward:
      return "convolutions";
    case Family::kBatchNorm:
    case Family::kBatchNormBackward:
    case Family::kLayerNorm:
    case Family::kLayerNormBackward:
      return "normalisations";
    case Family::kPooling:
    case Family::kPoolingBackward:
      return "poolings";
    case Family::kSoftmax:
    case Family::kSoftmaxBackward:
      return "softmax";
    case Family::kGather:
    case Family::kScatterAdd:
    case Family::kIndexedLoss:
    case Family::kIndexedLossBackward:
      return "lookups";
    default:
      return "elementwise and copies";
  }
}

std::string class_of(const runtime::Job& job, const compiler::Plan& plan, TaskId task) {
  const cluster::Cluster& cluster = *job.problem->cluster;
  const auto name = [&](DeviceId device) { return cluster.device(device).name; };
  switch (plan.kind[task]) {
    case TaskKind::kCompute:
      return fmt::format("{} on {}", family_text(job.problem->graph->facts(plan.op[task]).family),
                         name(plan.device[task]));
    case TaskKind::kUpdate:
      return fmt::format("updates on {}", name(plan.device[task]));
    case TaskKind::kMerge:
    case TaskKind::kSum:
    case TaskKind::kAccumulate:
      return fmt::format("sums and merges on {}", name(plan.device[task]));
    case TaskKind::kAllReduce:
    case TaskKind::kReduceScatter:
    case TaskKind::kAllGather: {
      std::string members;
      for (DeviceId device : plan.participants[task]) {
        members += (members.empty() ? "" : ", ") + name(device);
      }
      return fmt::format("{} over {}", compiler::task_kind_name(plan.kind[task]), members);
    }
    default:
      return fmt::format("{} -> {}", name(plan.peer[task]), name(plan.device[task]));
  }
}

}  // namespace

IdVector<TaskId, Nanoseconds> typical_durations(const std::vector<runtime::MeasuredStep>& steps) {
  ENSURE(!steps.empty());
  std::vector<double> totals;
  totals.reserve(steps.size());
  for (const runtime::MeasuredStep& step : steps)
    totals.push_back(static_cast<double>(step.duration));
  const std::vector<std::size_t> kept = middle_half(totals);
  IdVector<TaskId, Nanoseconds> durations(steps.front().begin.size());
  for (TaskId task : id_range<TaskId>(durations.size())) {
    Nanoseconds total = 0;
    for (std::size_t i : kept) total += steps[i].end[task] - steps[i].begin[task];
    durations[task] = total / static_cast<Nanoseconds>(kept.size());
  }
  return durations;
}

std::vector<Drift> drift(const runtime::Job& job, const compiler::Plan& plan,
                         const std::vector<runtime::MeasuredStep>& steps) {
  const IdVector<TaskId, Nanoseconds> measured = typical_durations(steps);
  std::map<std::string, Drift> by_class;
  for (TaskId task : plan.task_ids()) {
    const bool runs = plan.kind[task] != TaskKind::kOverhead && plan.duration[task] > 0;
    if (!runs) continue;  // an alias
    Drift& drift = by_class[class_of(job, plan, task)];
    ++drift.tasks;
    drift.predicted_seconds += to_seconds(plan.duration[task]);
    drift.measured_seconds += to_seconds(measured[task]);
  }
  std::vector<Drift> rows;
  for (auto& [what, drift] : by_class) {
    drift.what = what;
    rows.push_back(drift);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Drift& a, const Drift& b) {
    return a.measured_seconds > b.measured_seconds;
  });
  return rows;
}

}  // namespace heterog::measure
