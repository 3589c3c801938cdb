// Checkpoint files: a trained policy, or a whole training run that can be gone on with.
#pragma once

#include <string>
#include <vector>

#include "learn/reinforce/learner.h"

namespace heterog::learn {

// Weights, config and feature version. Written whole or not at all.
void save_policy(const PolicyNetwork& network, const TrainConfig& config, const std::string& path);

struct LoadedPolicy {
  TrainConfig config;
  PolicyNetwork network{nullptr};
};
// Reads either kind of file. Throws an input error on a missing or damaged file, and on a feature
// version other than this program's.
LoadedPolicy load_policy(const std::string& path);

// All of a Learner (not const: LibTorch's optimizer has no const view of its state); `cases` gives
// the names that tie states to cases.
void save_learner(Learner& learner, const Cases& cases, const std::string& path);
// Throws as load_policy, and if config or cases are not those of the file.
Learner load_learner(const TrainConfig& config, Cases& cases, const std::string& path);

// The same as the bytes of such a file, for the other ranks of a team; `source` names them in
// messages.
std::string pack_learner(Learner& learner, const Cases& cases);
Learner unpack_learner(const TrainConfig& config, Cases& cases, const std::string& bytes,
                       const std::string& source);

}  // namespace heterog::learn
