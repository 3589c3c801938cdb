// Checkpoint files: a trained policy, or a whole training run that can be gone on with.
#include "policy/checkpoint.h"

#include <torch/torch.h>

#include <sstream>

#include "base/file.h"

namespace heterog::policy {
namespace {

using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

constexpr const char* kFormat = "heterog-policy";
constexpr int kVersion = 1;

Json evaluation_json(const planner::Evaluation& e) {
  return {e.step, e.feasible, e.missing_bytes, e.reward};
}

planner::Evaluation parse_evaluation(const Json& json) {
  return {.step = json.at(0), .feasible = json.at(1), .missing_bytes = json.at(2),
          .reward = json.at(3)};
}

Json state_json(const CaseState& state, const std::string& name) {
  Json best = Json::array();
  for (const Scored& scored : state.best) {
    best.push_back({{"actions", scored.actions}, {"evaluation", evaluation_json(scored.evaluation)}});
  }
  return {{"name", name},
          {"average", {state.average.updates, state.average.mean, state.average.variance}},
          {"baseline", evaluation_json(state.baseline)},
          {"best", best}};
}

CaseState parse_state(const Json& json) {
  CaseState state;
  const Json& average = json.at("average");
  state.average = {
      .updates = average.at(0), .mean = average.at(1), .variance = average.at(2)};
  state.baseline = parse_evaluation(json.at("baseline"));
  for (const Json& item : json.at("best")) {
    state.best.push_back(
        {item.at("actions").get<Actions>(), parse_evaluation(item.at("evaluation"))});
  }
  return state;
}

void write_head(OutputArchive& archive, const TrainConfig& config) {
  archive.write("format", c10::IValue(std::string(kFormat)));
  archive.write("version", c10::IValue(std::int64_t{kVersion}));
  archive.write("feature_version", c10::IValue(std::int64_t{gnn::kFeatureVersion}));
  archive.write("config", c10::IValue(train_config_json(config).dump()));
}

void write_network(OutputArchive& archive, const PolicyNetwork& network) {
  OutputArchive inner;
  network->save(inner);
  archive.write("network", inner);
}

void write_archive(OutputArchive& archive, const std::string& path) {
  std::ostringstream stream;
  archive.save_to(stream);
  write_file(path, stream.str());
}

std::string read_text(InputArchive& archive, const std::string& key) {
  c10::IValue value;
  archive.read(key, value);
  return value.toStringRef();
}

std::int64_t read_integer(InputArchive& archive, const std::string& key) {
  c10::IValue value;
  archive.read(key, value);
  return value.toInt();
}

TrainConfig read_head(InputArchive& archive, const std::string& path) {
  VALIDATE(read_text(archive, "format") == kFormat, "{}: format: not a {} file", path, kFormat);
  const std::int64_t version = read_integer(archive, "version");
  VALIDATE(version == kVersion, "{}: version: is {}, this program reads {}", path, version,
           kVersion);
  const std::int64_t features = read_integer(archive, "feature_version");
  VALIDATE(features == gnn::kFeatureVersion,
           "{}: feature_version: is {}, this program's features are version {}; train the policy "
           "again",
           path, features, gnn::kFeatureVersion);
  return parse_train_config(Json::parse(read_text(archive, "config")), path + ": config");
}

void read_network(InputArchive& archive, PolicyNetwork& network) {
  InputArchive inner;
  archive.read("network", inner);
  network->load(inner);
}

// LibTorch and the JSON library speak of damage in exceptions of their own.
template <class Read>
auto reading(const std::string& path, Read read) {
  std::istringstream stream(read_file(path));
  try {
    InputArchive archive;
    archive.load_from(stream);
    return read(archive);
  } catch (const c10::Error&) {
    fail_input("{}: damaged, or not a policy checkpoint; write it again with train or finetune",
               path);
  } catch (const nlohmann::json::exception& error) {
    fail_input("{}: damaged training state: {}", path, error.what());
  }
}

}  // namespace

void save_policy(const PolicyNetwork& network, const TrainConfig& config,
                 const std::string& path) {
  OutputArchive archive;
  write_head(archive, config);
  write_network(archive, network);
  write_archive(archive, path);
}

LoadedPolicy load_policy(const std::string& path) {
  return reading(path, [&](InputArchive& archive) {
    LoadedPolicy policy;
    policy.config = read_head(archive, path);
    policy.network = make_network(policy.config, /*seed=*/0);
    read_network(archive, policy.network);
    policy.network->eval();
    return policy;
  });
}

void save_learner(const Learner& learner, std::span<const Case> cases, const std::string& path) {
  OutputArchive archive;
  write_head(archive, learner.config);
  write_network(archive, learner.network);
  OutputArchive optimizer;
  learner.optimizer.save(optimizer);
  archive.write("optimizer", optimizer);
  Json states = Json::array();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    states.push_back(state_json(learner.states[i], cases[i].name));
  }
  const Json progress = {
      {"step", learner.step}, {"evaluations", learner.evaluations}, {"cases", states}};
  archive.write("progress", c10::IValue(progress.dump()));
  write_archive(archive, path);
}

Learner load_learner(const TrainConfig& config, std::span<const Case> cases,
                     const std::string& path) {
  return reading(path, [&](InputArchive& archive) {
    VALIDATE(read_head(archive, path) == config,
             "{}: config: the run was started with other settings; resume with the config.json "
             "beside it, or start anew",
             path);
    Learner learner(config);
    read_network(archive, learner.network);
    InputArchive optimizer;
    archive.read("optimizer", optimizer);
    learner.optimizer.load(optimizer);
    const Json progress = Json::parse(read_text(archive, "progress"));
    learner.step = progress.at("step");
    learner.evaluations = progress.at("evaluations");
    const Json& states = progress.at("cases");
    VALIDATE(states.size() == cases.size(), "{}: holds {} cases, the config makes {}", path,
             states.size(), cases.size());
    for (std::size_t i = 0; i < cases.size(); ++i) {
      VALIDATE(states[i].at("name") == cases[i].name,
               "{}: case {} was \"{}\", the config makes it \"{}\"", path, i,
               states[i].at("name").get<std::string>(), cases[i].name);
      learner.states.push_back(parse_state(states[i]));
    }
    return learner;
  });
}

}  // namespace heterog::policy
