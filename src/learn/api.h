// The policy for other folders: train, fine-tune, propose, and the learned planner. No LibTorch
// here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "decide/strategy.h"
#include "learn/config.h"
#include "oracle/batch_evaluator.h"
#include "search/registry.h"

namespace heterog::learn {

// One (graph, cluster, batch) that is trained on, as it stands.
struct CaseProgress {
  std::string name;              // "vgg19 192 heterog-8gpu"
  double mean_step_seconds = 0;  // of this step's samples
  double best_step_seconds = 0;  // of everything simulated so far; 0: none was feasible
  // The best feasible of EV/CP × PS/AR, or the formula's plan; 0: none is feasible.
  double baseline_step_seconds = 0;
};

struct TrainProgress {
  std::int64_t step = 0;   // finished steps
  std::int64_t steps = 0;  // of the whole run; 0: unknown (fine-tuning by time)
  std::int64_t evaluations = 0;
  double mean_reward = 0;
  double entropy = 0;  // nats a group
  double loss = 0;
  std::vector<CaseProgress> cases;  // those of this step
};

class Team;  // learn/reinforce/team.h

enum class StartFrom : std::uint8_t { kScratch, kCheckpoint };

struct TrainOptions {
  // Receives train.ckpt (everything that a resumed run needs), policy.ckpt (weights only),
  // train.log (one JSON object a step) and config.json (as resolved). Made if it is not there.
  std::string out_dir;
  // kCheckpoint: go on from out_dir/train.ckpt, or anew where the run was stopped before its first.
  StartFrom start = StartFrom::kScratch;
  int threads = 1;
  std::function<void(const TrainProgress&)> progress;  // after every step; may be empty
  // Asked after each step: whether to stop. Then a checkpoint is written that a later run goes on
  // from. May be empty.
  std::function<bool()> stopped = {};
  // Forward and backward passes run on this GPU of the host, of those that CUDA shows; none: on the
  // CPU. Weights are then the same bits on all ranks, but not in the next run: GPUs add up in any
  // order.
  std::optional<int> gpu = {};
  // The processes that share the work, of which this is one; null: it trains by itself. Its rank 0
  // alone reads and writes `out_dir`.
  Team* team = nullptr;
};

struct TrainSummary {
  bool stopped = false;  // before the last step: there is no policy yet
  std::int64_t steps = 0;
  std::int64_t evaluations = 0;
  std::string policy_path;
  std::vector<CaseProgress> cases;  // those that some step has visited
};

// Pretraining on the graphs, batches and clusters of the config (HeteroG §4.1.3). The same config
// gives the same bits whatever the number of threads and of processes, and however often it was
// stopped and resumed. Throws an Error (kVerification) that names step and case where a loss or a
// gradient is no finite number; the last checkpoint stays as it is. All ranks of a team return the
// same; they throw an input error, before anything is written, if they were given other configs or
// cases, or would compute other bits.
TrainSummary train(const TrainConfig& config, const TrainOptions& options);

// A trained network and its config; copies share the weights, which nobody changes.
class Policy {
 public:
  // Throws an input error on a missing or damaged file, and on another feature version.
  static Policy load(const std::string& path);
  void save(const std::string& path) const;
  const TrainConfig& config() const;

  struct Impl;
  explicit Policy(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

// One shot, one forward pass: the most likely strategies, `samples` + 1 of them. Of a policy that
// begins as the formula these are distinct, and fewer where there are no more. Of the others the
// most likely action of each group, then draws; two plain strategies are evaluated in three orders,
// of which the faster one is taken.
// The strategies are on the policy's own groups (unit_of_op is filled in), so they fit every
// problem of the same graph and cluster.
std::vector<decide::Strategy> propose(const Policy& policy, oracle::BatchEvaluator& evaluator,
                                      int samples, const Rng& rng);

// The same, with the formula's estimate of the fullest device: the logarithm of the bytes that it
// holds over what it may; 0 of a policy that does not begin as the formula.
struct Proposal {
  decide::Strategy strategy;
  double memory_need = 0;
};
std::vector<Proposal> propose_with_needs(const Policy& policy, oracle::BatchEvaluator& evaluator,
                                         int samples, const Rng& rng);

// Entropy, in nats a group, under which fine-tuning draws hardly anything new.
inline constexpr double kCollapsedNats = 0.1;

struct FinetuneOptions {
  std::string name;  // of the case in progress reports
  std::uint64_t seed = 0;
  search::Budget budget;  // evaluations: reproducible; time: asked once a step
  // Settings of learning in place of the policy's own (with_learning).
  std::vector<std::pair<std::string, std::string>> learning;
  std::optional<int> gpu = {};  // as of TrainOptions
  std::function<void(const TrainProgress&)> progress;
};

struct FinetuneResult {
  Policy policy;
  decide::Strategy strategy;      // the best one evaluated
  search::Evaluation evaluation;  // of it
  std::int64_t evaluations = 0;   // strategies that it has learnt from
  double entropy = 0;             // of the last step, nats a group
  // Strategies after which the entropy was first under kCollapsedNats: draws hardly differ then.
  std::optional<std::int64_t> collapsed_after;
  double mean_step_seconds = 0;  // of that step's strategies
  decide::Strategy likely;       // the strategy that is now the most likely, not simulated
};

// Goes on training on the oracle's problem, by what it says. Throws an input error without any
// budget.
FinetuneResult finetune(const Policy& policy, oracle::Oracle& oracle,
                        const FinetuneOptions& options);

// Path of the shipped checkpoint: models/policies/zoo-small.ckpt in the nearest folder above the
// program or the library, else above the working directory. Throws an input error if there is none.
std::string shipped_policy_path();

// The answer of the planner "policy".
enum class PolicyAnswer : std::uint8_t {
  kBest,      // of proposals and baselines; with a budget what fine-tuning and `plan` make of them
  kLikely,    // of its most likely plans; docs/policy.md says what of other networks
  kSearched,  // what `plan` finds with that among its starts
};

struct PolicyPlannerOptions {
  std::string checkpoint;       // empty: the shipped one
  std::int64_t proposals = 15;  // draws beside the most likely strategy, from the one forward pass
  double finetune_share = 0.2;  // of a budget; the rest is that of `plan`
  PolicyAnswer answer = PolicyAnswer::kBest;
};
// Planner "policy": proposes, simulates, and with a budget fine-tunes and searches on from there;
// never worse than the best baseline.
search::PlannerEntry policy_planner_entry();

}  // namespace heterog::learn
