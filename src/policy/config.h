// The one configuration of training: network sizes, learning, and the cases that are trained on.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "space/action_space.h"

namespace heterog::policy {

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
  // Models that are left out, by what their graphs are called: to see what a policy makes of models
  // that it has never seen, with the other cases as they were.
  std::vector<std::string> leave_out;

  std::int64_t seed = 1;
  std::int64_t steps = 300;
  std::int64_t cases_per_step = 1;  // |G| of HeteroG §4.1.3
  std::int64_t samples = 16;        // strategies of a case in one step, from one forward pass
  std::int64_t checkpoint_every = 20;

  std::string actions = "heterog";  // or "sets": those of space::ActionTable
  std::int64_t max_groups = 96;     // N
  std::int64_t gat_layers = 2;
  std::int64_t gat_heads = 4;
  std::int64_t gat_head_width = 16;
  std::int64_t txl_layers = 2;
  std::int64_t txl_heads = 4;
  std::int64_t txl_width = 64;
  std::int64_t txl_inner_width = 128;
  std::int64_t txl_segment = 64;  // groups in a segment
  std::int64_t txl_memory = 64;   // groups of earlier segments that a segment can look back on
  std::string head = "device-features";  // or "fixed": HeteroG's M+4 outputs by position
  std::int64_t head_width = 64;
  std::int64_t fixed_devices = 0;  // M of the fixed head
  // Added to the logits of the four data-parallel actions before anything is learnt.
  double data_parallel_prior = 2.0;
  // The network reads what the simulator says of the best strategy so far
  // (policy/feedback/incumbent.h).
  bool incumbent_features = false;

  double learning_rate = 1e-3;
  double gradient_clip = 1.0;         // of the global norm
  double entropy_weight = 0.02;       // λ at the first step
  double entropy_weight_end = 0.001;  // λ at the last step, linear between
  // H in nats a group below which the objective loses entropy_floor_weight · (floor − H); 0: none.
  double entropy_floor = 0;
  double entropy_floor_weight = 1.0;
  // Gradient steps from the strategies of one step. All but the first weigh each strategy by how
  // much more likely it has become, up to 1 ± proximal_clip.
  std::int64_t proximal_passes = 1;
  double proximal_clip = 0.2;
  // How strategies are drawn (policy/draws.h): "groups", each by itself; "runs" of neighbours;
  // "edits" of the best so far; "mixed": half runs, half edits; "coarse": 32 super-units, twice as
  // many every 30 steps; "latent": all groups by one random number.
  std::string draws = "groups";
  // What a reward is held against: "moving", the average R̄ of all steps; "others", the mean of the
  // other strategies of this step. Edits are held against what was edited.
  std::string baseline = "moving";
  double baseline_decay = 0.9;      // of the moving average R̄
  bool normalize_advantage = true;  // divide r − R̄ by a moving standard deviation
  double advantage_clip = 3.0;      // in standard deviations, after dividing
  // Schedule of the simulated strategies: rank, rank-queued, rank-reserve, fifo, or the fastest of
  // rank, rank-queued and fifo.
  std::string order = "faster";
  // Order, buckets, micro-batches and recomputation: "case", that order and nothing else;
  // "learned", by a head of their own, which begins there.
  std::string schedule = "case";
  std::int64_t elite_count = 1;  // best distinct strategies of a case that are imitated
  double elite_weight = 1.0;     // of the imitation against the policy gradient; 0: none
  std::int64_t elite_from = 0;   // the first step that imitates
  // Evaluations of the search whose plan of a case is imitated; 0: nobody teaches.
  std::int64_t teacher_evaluations = 0;
  double teacher_weight = 1.0;  // of that imitation
  // The first strategies to imitate are the plain ones: EV/CP × PS/AR, blocks on single devices.
  bool imitate_plain = true;
  // Fine-tuning goes on from trained weights on one graph, with these in place of the ones above.
  double finetune_learning_rate = 1e-3;
  double finetune_entropy_weight = 0.005;
  std::string finetune_draws = "mixed";
  std::string finetune_schedule = "learned";  // a policy without a head for it gets one
  double finetune_elite_weight = 1.0;
  double finetune_entropy_floor = 0.2;
  std::int64_t finetune_groups = 0;  // at most so many; 0: max_groups
  bool finetune_proposals = true;    // what the policy proposes is simulated, and imitated, first
  friend bool operator==(const TrainConfig&, const TrainConfig&) = default;
};

// What the config's seed is split into: a stream of random numbers a purpose.
enum class RandomStream : std::uint64_t {
  kSampling = 1,     // by step
  kCaseOrder = 2,    // by epoch
  kRandomCases = 3,  // by number
  kTeacher = 4,      // by case
};
inline Rng random_stream(const TrainConfig& config, RandomStream purpose) {
  return Rng(static_cast<std::uint64_t>(config.seed)).split(static_cast<std::uint64_t>(purpose));
}

// What the policy chooses among for each group.
inline space::ActionTable action_table(const TrainConfig& config) {
  return config.actions == "sets" ? space::ActionTable::kSets : space::ActionTable::kHeterog;
}

// Columns of what a network reads of the incumbent: of a device busy and memory
// (oracle::DeviceProfile); of a group 1, busy, slack and exposed (oracle::GroupProfile), and the
// means of its devices' two.
inline constexpr std::int64_t kDeviceFeedback = 2;
inline constexpr std::int64_t kGroupFeedback = 4 + kDeviceFeedback;

// Of the network that a config describes, counted without making it. A config that makes more than
// the most is refused: training keeps four numbers for each, a gigabyte a number at the most.
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

}  // namespace heterog::policy
