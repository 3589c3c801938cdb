// Names and hashes of all cases, and those that are there.
#include "learn/reinforce/cases.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "oracle/batch_evaluator.h"
#include "oracle/evaluator.h"

namespace heterog::learn {
namespace {

// With the order of its strategies, and all that the network reads.
Case case_of(std::string name, const cost::Problem& problem, const TrainConfig& config) {
  auto grouped = regrouped(problem, static_cast<int>(config.max_groups));
  if (begins_as_formula(config)) {  // its schedules are knobs
    return make_case(std::move(name), std::move(grouped), decide::OrderPolicy::kRankQueued, config);
  }
  oracle::Evaluator simulator(problem);
  oracle::BatchEvaluator evaluator(simulator);
  return make_case(std::move(name), std::move(grouped), find_order(evaluator), config);
}

}  // namespace

Cases::Cases(const TrainConfig& config, const std::function<bool()>& stopped)
    : config_(std::make_unique<const TrainConfig>(config)),
      loader_(std::make_unique<ProblemLoader>(*config_)) {
  VALIDATE(!config.graphs.empty(), "training config: graphs: is empty; name at least one graph");
  VALIDATE(!config.clusters.empty() || config.random_cases > 0,
           "training config: clusters: is empty; name at least one cluster, or say how many "
           "random_cases there are");
  std::vector<std::shared_ptr<const cluster::Cluster>> clusters;
  for (const std::string& path : config.clusters) {
    clusters.push_back(std::make_shared<const cluster::Cluster>(cluster::load_cluster(path)));
  }
  for (const TrainGraph& entry : config_->graphs) {
    for (std::int64_t batch : entry.batches) {
      const graph::KnownBatches& known = loader_->known(entry.graph);
      VALIDATE(known.contain(batch),
               "training config: graphs: batch {}: {} is known to hold for batches of {}", batch,
               printable(entry.graph, 400), known.text());
      for (const auto& cluster : clusters) {
        expect_not_stopped(stopped);
        add({.entry = &entry, .batch = batch, .cluster = cluster}, -1);
      }
    }
  }
  for (std::int64_t i = 0; i < config.random_cases; ++i) {
    expect_not_stopped(stopped);
    add(loader_->draw(i), i);
  }
  VALIDATE(!entries_.empty(), "training config: leave_out: leaves no case");
}

Cases::Cases(const TrainConfig& config, Case only)
    : config_(std::make_unique<const TrainConfig>(config)) {
  entries_.push_back({.name = only.name, .given = {}});
  there_.emplace(0, std::move(only));
}

void Cases::add(const DrawnProblem& drawn, std::int64_t number) {
  const graph::ModelGraph& model = loader_->model(drawn.entry->graph);
  if (std::ranges::find(config_->leave_out, model.name()) != config_->leave_out.end()) return;
  Hasher hasher;
  hasher.add(model.hash());
  hasher.add(drawn.cluster->hash());
  hasher.add(static_cast<std::uint64_t>(drawn.batch));
  entries_.push_back(
      {.name = fmt::format("{} {} {}", model.name(), drawn.batch, drawn.cluster->name()),
       .hash = hasher.value(),
       .given = number < 0 ? drawn : DrawnProblem{},
       .number = number});
}

const Case& Cases::operator[](std::size_t i) {
  const auto at = there_.find(i);
  if (at != there_.end()) return at->second;
  const Entry& entry = entries_[i];
  const auto problem =
      entry.number < 0 ? loader_->given(*entry.given.entry, entry.given.batch, entry.given.cluster)
                       : loader_->random(loader_->draw(entry.number), entry.number);
  return there_.emplace(i, case_of(entry.name, *problem, *config_)).first->second;
}

void Cases::keep(std::span<const std::size_t> these) {
  std::erase_if(there_, [&](const auto& one) {
    return entries_[one.first].number >= 0 && std::ranges::find(these, one.first) == these.end();
  });
}

}  // namespace heterog::learn
