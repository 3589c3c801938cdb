// The one configuration of training: network sizes, learning, and the cases that are trained on.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "space/action_space.h"

namespace heterog::learn {

// A graph and the batch sizes that it is trained at.
struct TrainGraph {
  std::string graph;  // path of a model graph
  std::vector<std::int64_t> batches;
  friend bool operator==(const TrainGraph&, const TrainGraph&) = default;
};

// Every graph at every one of its batches on every cluster is one case. Beside them, `random_cases`
// that are drawn: a graph, a cluster, and a batch of the graph's scaled to the cluster.
struct TrainConfig {
  std::vector<TrainGraph> graphs;
  std::vector<std::string> clusters;
  std::int64_t random_cases = 0;
  std::int64_t random_devices = 64;  // of the largest random cluster
  // Standard deviation of the logarithms of the factors by which costs of operators and bandwidths
  // of random cases differ from what the tables say.
  double random_costs = 0;
  // Models that are left out, by what their graphs are called: to see what a policy makes of models
  // that it has never seen, with the other cases as they were.
  std::vector<std::string> leave_out;

  std::int64_t seed = 1;
  std::int64_t steps = 300;
  std::int64_t cases_per_step = 1;  // |G| of HeteroG §4.1.3
  std::int64_t samples = 16;        // strategies of a case in one step, from one forward pass
  // Rounds in which the shares of a draw that is no pipeline are settled, of two plans each, before
  // it is judged.
  std::int64_t settling_rounds = 0;
  std::int64_t checkpoint_every = 20;
  // The policy has the mean of the weights after each of the last so many steps, or of all if there
  // are fewer; 0: the weights after the last.
  std::int64_t averaged_steps = 0;

  // "heterog": HeteroG's M + 4, for every group by itself; "formula": whole plans, by the formula
  // of estimated layouts and what the network adds to it.
  std::string actions = "heterog";
  std::int64_t max_groups = 96;  // N
  std::int64_t gat_layers = 2;
  std::int64_t gat_heads = 4;
  std::int64_t gat_head_width = 16;
  std::int64_t txl_layers = 2;
  std::int64_t txl_heads = 4;
  std::int64_t txl_width = 64;
  std::int64_t txl_inner_width = 128;
  std::int64_t txl_segment = 64;  // groups in a segment, which looks back on as many before it
  std::int64_t head_width = 64;
  // 0: the head reads the features of devices; else HeteroG's, of M + 4 outputs by position, for M
  // devices.
  std::int64_t fixed_devices = 0;
  // Added to the logits of the four data-parallel actions before anything is learnt.
  double data_parallel_prior = 2.0;

  double learning_rate = 1e-3;
  double entropy_weight = 0.02;       // λ at the first step
  double entropy_weight_end = 0.001;  // λ at the last step, linear between
  bool normalize_advantage = true;    // divide r − R̄ by a moving standard deviation
  // The weight of imitating a case's best strategy, against the policy gradient; 0: none. The first
  // strategies that can be it are the plain ones: EV/CP × PS/AR, blocks on single devices.
  double elite_weight = 1.0;
  // In fine-tuning, H in nats a group below which the objective loses floor − H; 0: none.
  double finetune_entropy_floor = 0.2;
  friend bool operator==(const TrainConfig&, const TrainConfig&) = default;
};

// The streams that the config's seed is split into: a stream of random numbers a purpose.
enum class RandomStream : std::uint64_t {
  kSampling = 1,     // by step
  kCaseOrder = 2,    // by epoch
  kRandomCases = 3,  // by number
};
inline Rng random_stream(const TrainConfig& config, RandomStream purpose) {
  return Rng(static_cast<std::uint64_t>(config.seed)).split(static_cast<std::uint64_t>(purpose));
}

// The actions that the policy chooses among for each group.
inline bool begins_as_formula(const TrainConfig& config) { return config.actions == "formula"; }
inline space::ActionTable action_table(const TrainConfig& config) {
  return config.actions != "heterog" ? space::ActionTable::kSets : space::ActionTable::kHeterog;
}

// The number of parameters of the network that a config describes, counted without making it. A
// config that makes more than the most is refused: training keeps four numbers for each, a gigabyte
// a number at the most.
std::int64_t parameter_count(const TrainConfig& config);
inline constexpr std::int64_t kMaxParameters = std::int64_t{1} << 28;

// Reads a config file (one that came with heterog by its name alone, too: "small"), then lays
// `overrides` ("key", "value": JSON, or else a string) over it. Unknown keys and values out of
// range are input errors.
TrainConfig read_train_config(const std::string& given,
                              const std::vector<std::pair<std::string, std::string>>& overrides);
TrainConfig parse_train_config(const std::string& text, const std::string& source);
// `config` with other settings of learning, as `read_train_config` lays them over a file. A setting
// that the weights of a policy were made with is an input error.
TrainConfig with_learning(const TrainConfig& config,
                          const std::vector<std::pair<std::string, std::string>>& overrides);
// The same field list the other way, as JSON; parse(text(c)) == c.
std::string train_config_text(const TrainConfig& config);

}  // namespace heterog::learn
