// Turns by the pattern; what is put off goes in between, by a schedule of whole passes.
#include "cli/engines/schedule_csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "decide/layout.h"
#include "decide/pass_turns.h"
#include "decide/patterns.h"

namespace heterog::cli {
namespace {

using decide::Pattern;

struct Pass {
  bool forward = true;
  std::int64_t micro_batch = 0;
};
// Of one stage, by its turns.
std::vector<Pass> in_turn(const decide::StageTurns& turns) {
  std::vector<Pass> passes(turns.forward.size() + turns.backward.size());
  for (const bool forward : {true, false}) {
    const std::vector<std::int64_t>& of = forward ? turns.forward : turns.backward;
    for (std::size_t m = 0; m < of.size(); ++m) {
      passes[static_cast<std::size_t>(of[m])] = {forward, static_cast<std::int64_t>(m)};
    }
  }
  return passes;
}

// Of a micro-batch on a stage, in the mean.
struct PassSeconds {
  double forward = 0, backward = 0, put_off = 0;
};
std::vector<PassSeconds> pass_seconds(const cost::Problem& problem,
                                      const search::ModulePipeline& pipeline,
                                      const decide::Strategy& strategy,
                                      const sim::Simulated& simulated) {
  const decide::PassTurns turns(problem, strategy, decide::lay_out(problem, strategy));
  IdVector<DeviceId, PassSeconds> of_device(problem.cluster->device_count());
  const compiler::Plan& plan = simulated.plan;
  for (TaskId task : id_range<TaskId>(plan.kind.size())) {
    if (plan.kind[task] != compiler::TaskKind::kCompute) continue;
    const OpId op = plan.op[task];
    PassSeconds& one = of_device[plan.device[task]];
    const bool forward = problem.graph->op(op).phase == graph::Phase::kForward;
    double& sum = turns.is_put_off(op) ? one.put_off : forward ? one.forward : one.backward;
    sum += to_seconds(plan.duration[task]) / static_cast<double>(pipeline.micro_batches);
  }
  std::vector<PassSeconds> seconds;
  for (const search::ModuleStage& stage : pipeline.stages) {
    PassSeconds& slowest = seconds.emplace_back();
    for (DeviceId device : stage.devices) {
      const PassSeconds& one = of_device[device];
      slowest.forward = std::max(slowest.forward, one.forward);
      slowest.backward = std::max(slowest.backward, one.backward);
      slowest.put_off = std::max(slowest.put_off, one.put_off);
    }
  }
  return seconds;
}

// Passes of stages in simulated time, each as soon as it can be; cells as it goes.
class PutOff {
 public:
  PutOff(const std::vector<decide::StageTurns>& turns, std::vector<PassSeconds> seconds)
      : seconds_(std::move(seconds)) {
    for (const decide::StageTurns& of : turns) {
      stages_.push_back({.passes = in_turn(of),
                         .forward_end = Ends(of.forward.size()),
                         .backward_end = Ends(of.backward.size())});
    }
  }

  std::vector<std::vector<std::string>> cells() {
    // A stage that does not know yet when its next pass can begin is asked again once others, who
    // are behind it in time, have gone on.
    for (bool any = true; any;) {
      any = false;
      std::vector<std::size_t> order;
      for (std::size_t s = 0; s < stages_.size(); ++s) order.push_back(s);
      std::ranges::stable_sort(order, {}, [&](std::size_t s) { return stages_[s].free; });
      for (std::size_t s : order) {
        if (any = go_on(s); any) break;
      }
    }
    std::vector<std::vector<std::string>> cells;
    for (OfStage& stage : stages_) {
      EXPECT(stage.next == stage.passes.size());
      cells.push_back(std::move(stage.cells));
    }
    return cells;
  }

 private:
  using Ends = std::vector<std::optional<double>>;
  struct OfStage {
    std::vector<Pass> passes;
    std::size_t next = 0;
    double free = 0;
    Ends forward_end, backward_end;      // by micro-batch
    std::int64_t made = 0, put_off = 0;  // backward passes; those whose gradients are not made yet
    std::vector<std::string> cells;
  };

  // When what the pass reads is there; nothing if that is not known yet.
  std::optional<double> ready(std::size_t s, const Pass& pass) const {
    const auto m = static_cast<std::size_t>(pass.micro_batch);
    if (pass.forward) return s == 0 ? 0 : stages_[s - 1].forward_end[m];
    return s + 1 == stages_.size() ? stages_[s].forward_end[m] : stages_[s + 1].backward_end[m];
  }

  // One action more; false if there is none now.
  bool go_on(std::size_t s) {
    OfStage& stage = stages_[s];
    const PassSeconds& seconds = seconds_[s];
    const bool over = stage.next == stage.passes.size();
    if (over && stage.put_off == 0) return false;
    const std::optional<double> at = over ? std::nullopt : ready(s, stage.passes[stage.next]);
    const bool waits = !at || *at >= stage.free + seconds.put_off / 2;
    if (waits && stage.put_off > 0) {
      stage.cells.push_back(fmt::format("{}W{}", s, stage.made - stage.put_off--));
      stage.free += seconds.put_off;
      return true;
    }
    if (!at) return false;
    const Pass& pass = stage.passes[stage.next++];
    stage.free = std::max(stage.free, *at) + (pass.forward ? seconds.forward : seconds.backward);
    Ends& ends = pass.forward ? stage.forward_end : stage.backward_end;
    ends[static_cast<std::size_t>(pass.micro_batch)] = stage.free;
    stage.cells.push_back(fmt::format("{}{}{}", s, pass.forward ? "F" : "I", pass.micro_batch));
    if (!pass.forward) {
      ++stage.made;
      ++stage.put_off;
    }
    return true;
  }

  std::vector<PassSeconds> seconds_;
  std::vector<OfStage> stages_;
};

}  // namespace

std::string schedule_csv(const cost::Problem& problem, const search::ModulePipeline& pipeline,
                         const decide::Strategy& strategy, const sim::Simulated& simulated) {
  const std::vector<decide::StageTurns> turns =
      decide::stage_turns(pipeline.pattern, pipeline.stages.size(), pipeline.micro_batches);
  std::vector<std::vector<std::string>> rows;
  if (pipeline.pattern == Pattern::kZeroBubble) {
    rows = PutOff(turns, pass_seconds(problem, pipeline, strategy, simulated)).cells();
  } else {
    for (std::size_t s = 0; s < turns.size(); ++s) {
      rows.emplace_back();
      for (const Pass& pass : in_turn(turns[s])) {
        rows.back().push_back(fmt::format("{}{}{}", s, pass.forward ? "F" : "B", pass.micro_batch));
      }
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    text += fmt::format("{}\n", fmt::join(row, ","));
  }
  return text;
}

}  // namespace heterog::cli
