// heterog autosync-data: random ways of synchronising a model, each with its step, to teach
// rankers.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "oracle/simulated_oracle.h"
#include "search/autosync/ranker_io.h"
#include "search/autosync/sync_space.h"

namespace heterog::cli {

namespace {

struct AutosyncDataOptions {
  CommonOptions common;
  ProblemOptions problem;
  std::int64_t count = 200;
  std::string out;
  std::string ranker_out;
};

// Of a point: what rankers see, and what it took.
std::string line_of(const search::SyncSpace& space, const search::SyncTimes& times,
                    const search::SyncPoint& point, const search::MeasuredPoint& measured,
                    bool fits) {
  OrderedJson json = {{"step_seconds", measured.seconds},
                      {"feasible", fits},
                      {"formula_seconds", search::formula_seconds(measured.features)},
                      {"features", measured.features},
                      {"variables", search::variable_features(space, times, point)}};
  return json.dump() + "\n";
}

// One line names what the lines behind it are of.
std::string head_of(const cost::Problem& problem, const search::SyncSpace& space,
                    std::uint64_t seed) {
  OrderedJson names = OrderedJson::array();
  for (const search::SyncVariable& variable : space.variables) {
    names.push_back(problem.graph->tensor(variable.parameter).name);
  }
  return OrderedJson{{"format", "heterog-autosync-data"},
                     {"version", 1},
                     {"model", problem.graph->name()},
                     {"cluster", problem.cluster->name()},
                     {"batch", problem.batch},
                     {"seed", seed},
                     {"features", search::kSyncFeatures},
                     {"variable_features", search::kVariableFeatures},
                     {"variables", names}}
             .dump() +
         "\n";
}

int run_autosync_data(const AutosyncDataOptions& options, const Caller& caller) {
  const auto problem = load_problem(options.problem);
  const search::SyncSpace space = search::sync_space(*problem);
  VALIDATE(!space.variables.empty(),
           "{}: one device holds each parameter; expected several devices",
           problem->cluster->name());
  const search::SyncTimes times(space);
  ThreadPool threads(options.common.threads);
  oracle::SimulatedOracle oracle(*problem, threads);
  Rng rng(options.common.seed);
  std::string text = head_of(*problem, space, options.common.seed);
  std::vector<search::MeasuredPoint> points;
  std::vector<double> formula;
  constexpr std::int64_t kAtATime = 64;
  for (std::int64_t done = 0; done < options.count; done += kAtATime) {
    std::vector<search::SyncPoint> drawn;
    std::vector<decide::Strategy> strategies;
    for (std::int64_t i = done; i < std::min(options.count, done + kAtATime); ++i) {
      drawn.push_back(search::draw_point(space, rng));
      strategies.push_back(search::to_strategy(space, drawn.back()));
    }
    const std::vector<oracle::Measured> measured = oracle.measure(strategies);
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      points.push_back(
          {search::sync_features(space, times, drawn[i]), to_seconds(measured[i].evaluation.step)});
      formula.push_back(search::formula_seconds(points.back().features));
      text += line_of(space, times, drawn[i], points.back(), measured[i].evaluation.feasible);
    }
  }
  write_file(options.out, text);
  if (!options.ranker_out.empty()) {
    search::write_ranker(options.ranker_out, search::train_ranker(points, rng));
  }
  // Of the last three tenths, by a ranker that was taught by the others.
  const std::size_t taught = points.size() * 7 / 10;
  const auto rest = std::span(points).subspan(taught);
  const search::LinearRanker ranker = search::train_ranker(std::span(points).first(taught), rng);
  std::vector<double> scores;
  for (const search::MeasuredPoint& point : rest) scores.push_back(ranker.score(point.features));
  const double by_formula = search::ranking_accuracy(rest, std::span(formula).subspan(taught));
  const double by_ranker = search::ranking_accuracy(rest, scores);
  if (options.common.json) {
    print_json(caller, {{"strategies", points.size()},
                        {"formula_accuracy", by_formula},
                        {"linear_accuracy", by_ranker}});
    return 0;
  }
  print(caller,
        "{} strategies of {} on {}, batch {}: written to {}\n"
        "pairs of the last {} ranked right: {:.1f} % by the paper's formulas, {:.1f} % by a linear "
        "ranker of the others\n",
        points.size(), problem->graph->name(), problem->cluster->name(), problem->batch,
        options.out, rest.size(), 100 * by_formula, 100 * by_ranker);
  return 0;
}

}  // namespace

void add_autosync_data(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<AutosyncDataOptions>();
  CLI::App* verb = app.add_subcommand(
      "autosync-data", "Random ways of synchronising a model, each with its simulated step");
  add_graph_and_cluster(*verb, options->problem);
  add_batch(*verb, options->problem);
  add_integer(*verb, "--count", options->count, {10, 1'000'000}, "Strategies to draw");
  verb->add_option("--out", options->out, "File of JSON lines to write")->required();
  verb->add_option("--ranker-out", options->ranker_out,
                   "Also write a ranker that they teach, for autosync:predictor=FILE");
  add_common(*verb, options->common);
  verb->footer(
      "Example:\n  heterog autosync-data --graph models/vgg19.json.gz --cluster "
      "configs/clusters/autosync-b7.json --batch 512 --out vgg19.jsonl");
  verb->callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_autosync_data(*options, caller); };
  });
}

}  // namespace heterog::cli
