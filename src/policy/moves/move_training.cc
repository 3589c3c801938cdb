// Searches one problem after another, each on all threads; then two fits.
#include "policy/moves/move_training.h"

#include <algorithm>

#include "base/file.h"
#include "base/thread_pool.h"
#include "oracle/simulated_oracle.h"
#include "planner/starts.h"
#include "policy/moves/move_files_io.h"
#include "policy/moves/move_learner.h"
#include "policy/network.h"
#include "policy/problems.h"

namespace heterog::policy {

namespace {

MoveLog log_searches(const TrainConfig& config, const MoveTrainOptions& options) {
  VALIDATE(
      !config.graphs.empty() && config.random_cases > 0,
      "training config: graphs, random_cases: moves are learnt on random cases of some graphs");
  ThreadPool threads(options.threads);
  ProblemLoader loader(config);
  MoveLog log;
  for (std::int64_t i = 0; i < config.random_cases; ++i) {
    const std::optional<NamedProblem> named = loader.random(i);
    if (named) {
      oracle::SimulatedOracle oracle(*named->problem, threads);
      log_moves(
          oracle,
          std::min(config.teacher_evaluations, planner::one_shot_evaluations(*named->problem)),
          random_stream(config, RandomStream::kTeacher).split(static_cast<std::uint64_t>(i)),
          named->name, log);
    }
    if (options.progress) {
      options.progress(static_cast<double>(i + 1) / static_cast<double>(config.random_cases));
    }
  }
  return log;
}

// Without the rows of models that are left out: a log that was kept may have them.
MoveLog without_left_out(const MoveLog& log, const TrainConfig& config) {
  return select(log, [&](std::int32_t problem) {
    const std::string& name = log.names[static_cast<std::size_t>(problem)];
    return std::ranges::find(config.leave_out, name.substr(0, name.find(' '))) ==
           config.leave_out.end();
  });
}

}  // namespace

MoveTrainSummary train_moves(const TrainConfig& config, const MoveTrainOptions& options) {
  use_one_network_thread();
  make_folder(options.out_dir);
  MoveLog log = options.log.empty() ? log_searches(config, options) : load_move_log(options.log);
  if (options.log.empty()) save_move_log(log, options.out_dir + "/moves.log");
  log = without_left_out(log, config);
  VALIDATE(log.size() > 0, "training config: leave_out: leaves no case");

  MoveFit fit;
  fit.seed = static_cast<std::uint64_t>(config.seed);
  const auto held_out = [](std::int32_t problem) { return problem % 5 == 0; };
  const auto others = [&](std::int32_t problem) { return !held_out(problem); };
  MoveTrainSummary summary{.moves = static_cast<std::int64_t>(log.size())};
  const MoveLog known = select(log, others);
  if (known.size() > 0) {
    const MoveSkill skill = skill_of(fit_moves(known, fit), select(log, held_out));
    summary.auc = skill.auc;
    summary.kept = skill.kept;
  }
  for (std::size_t i = 0; i < log.size(); ++i) {
    summary.helped += log.gains[i] > 0 ? 1.0 / static_cast<double>(log.size()) : 0;
    summary.problems += i == 0 || log.problems[i] != log.problems[i - 1];
  }
  summary.path = options.out_dir + "/moves.ckpt";
  save_moves(fit_moves(log, fit), summary.path);
  return summary;
}

planner::MoveScorerSource move_scorers() {
  return [](const cost::Problem& problem,
            const std::string& path) -> std::unique_ptr<planner::MoveScorer> {
    return std::make_unique<planner::NetworkMoveScorer>(
        problem, std::make_shared<const planner::MoveNetwork>(load_moves(path)));
  };
}

}  // namespace heterog::policy
