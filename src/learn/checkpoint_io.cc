// Checkpoint files: a trained policy, or a whole training run that can be gone on with.
#include "learn/checkpoint_io.h"

#include <torch/torch.h>

#include <algorithm>

#include "base/file.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "tensors/tensor_file_io.h"

namespace heterog::learn {

using tensors::read_tensors;
using tensors::TensorFile;
using tensors::write_tensors;

namespace {

constexpr const char* kFormat = "heterog-policy";
constexpr int kVersion = 8;
constexpr int kUnchecked = 1;  // without a checksum
constexpr const char* kNetwork = "network.";
constexpr const char* kFirstMoment = "adam.exp_avg.";
constexpr const char* kSecondMoment = "adam.exp_avg_sq.";
constexpr const char* kMean = "mean.";

// Counts and amounts: of two that are in range, the sum is too.
constexpr std::int64_t kMost = std::int64_t{1} << 60;
constexpr double kLargest = 1e100;  // of rewards, and of their squares

// Whether training does more with the best strategy of a case than to report its step.
bool imitates(const TrainConfig& config) {
  return !begins_as_formula(config) || config.elite_weight > 0;
}

Json evaluation_json(const search::Evaluation& e) {
  return {e.step, e.feasible, e.missing_bytes, e.reward};
}

Json actions_json(const Actions& actions) {
  Json json = Json::array();
  for (const space::ActionId action : actions) json.push_back(action.value());
  return json;
}

Json state_json(const CaseState& state, const std::string& name, bool with_actions) {
  Json json = {{"name", name},
               {"average", {state.average.updates, state.average.mean, state.average.variance}},
               {"baseline", evaluation_json(state.baseline)}};
  if (state.best) {
    json["best"] = {{"evaluation", evaluation_json(state.best->evaluation)}};
    if (with_actions) json["best"]["actions"] = actions_json(state.best->actions);
  }
  return json;
}

// A list of so many.
std::vector<JsonValue> row(const JsonValue& value, std::size_t size) {
  const std::vector<JsonValue> items = value.as_list();
  VALIDATE(items.size() == size, "{}: holds {} values, expected {}", value.where(), items.size(),
           size);
  return items;
}

search::Evaluation parse_evaluation(const JsonValue& value) {
  const std::vector<JsonValue> items = row(value, 4);
  return {.step = items[0].as_int(0, kMost),
          .feasible = items[1].as_bool(),
          .missing_bytes = items[2].as_int(0, kMost),
          .reward = items[3].as_number(-kLargest, kLargest)};
}

RewardAverage parse_average(const JsonValue& value) {
  const std::vector<JsonValue> items = row(value, 3);
  return {.updates = items[0].as_int(0, kMost),
          .mean = items[1].as_number(-kLargest, kLargest),
          .variance = items[2].as_number(0, kLargest)};
}

// An action for each group of the case, each one that there is.
Actions parse_actions(const JsonValue& value, const Case& c) {
  Actions actions;
  for (const JsonValue& item : row(value, decision_count(c))) {
    const auto values = static_cast<std::int64_t>(decision_values(c, actions.size()));
    actions.emplace_back(static_cast<std::size_t>(item.as_int(0, values - 1)));
  }
  return actions;
}

CaseState parse_state(const JsonValue& value, Cases& cases, std::size_t i, bool with_actions) {
  JsonObject object(value);
  const std::string name = object.string("name");
  VALIDATE(name == cases.name(i), "{}: was \"{}\", the config makes it \"{}\"", value.where(),
           printable(name), cases.name(i));
  CaseState state{.average = parse_average(object.required("average")),
                  .baseline = parse_evaluation(object.required("baseline"))};
  if (object.has("best")) {
    JsonObject scored(object.required("best"));
    state.best =
        Scored{.actions = {}, .evaluation = parse_evaluation(scored.required("evaluation"))};
    if (with_actions) state.best->actions = parse_actions(scored.required("actions"), cases[i]);
    scored.finish();
  }
  object.finish();
  return state;
}

TensorFile head_and_network(const TrainConfig& config, const PolicyNetwork& network) {
  TensorFile file;
  file.metadata = {{"format", kFormat},
                   {"version", std::to_string(kVersion)},
                   {"feature_version", std::to_string(learn::kFeatureVersion)},
                   {"config", train_config_text(config)}};
  for (const auto& item : network->named_parameters()) {
    file.tensors[kNetwork + item.key()] = item.value();
  }
  return file;
}

const std::string& text(const TensorFile& file, const std::string& key, const std::string& path) {
  const auto at = file.metadata.find(key);
  VALIDATE(at != file.metadata.end(),
           "{}: not a policy checkpoint: {} is missing; write it again with train or finetune",
           path, key);
  return at->second;
}

void expect_version(const TensorFile& file, const std::string& key, int version,
                    const std::string& path, const std::string& advice) {
  const std::string& found = text(file, key, path);
  VALIDATE(found == std::to_string(version), "{}: {}: is {}, this program's is {}{}", path, key,
           printable(found), version, advice);
}

// Before a network is made: a small file must not ask for a large one.
void expect_size(const TensorFile& file, const TrainConfig& config, const std::string& path) {
  std::int64_t parameters = 0;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with(kNetwork)) parameters += tensor.numel();
  }
  VALIDATE(parameters == parameter_count(config),
           "{}: config: its layers, heads and widths make a network of {} parameters, the file has "
           "{}",
           path, parameter_count(config), parameters);
}

// What holds of any checkpoint, whatever its network is made for.
TrainConfig read_config(const TensorFile& file, const std::string& path) {
  VALIDATE(text(file, "format", path) == kFormat, "{}: format: is {}, expected {}", path,
           printable(text(file, "format", path)), kFormat);
  if (text(file, "version", path) != std::to_string(kUnchecked)) {
    expect_version(file, "version", kVersion, path, "; train the policy again");
    VALIDATE(file.checked, "{}: checksum: is missing: the file is damaged", path);
  }
  return parse_train_config(text(file, "config", path), path + ": config");
}

TrainConfig read_head(const TensorFile& file, const std::string& path) {
  const TrainConfig config = read_config(file, path);
  expect_version(file, "feature_version", learn::kFeatureVersion, path, "; train the policy again");
  expect_size(file, config, path);
  return config;
}

// The tensor of that name, which must be of the shape and type of `like`, and of finite numbers.
const torch::Tensor& tensor(const TensorFile& file, const std::string& name,
                            const torch::Tensor& like, const std::string& path) {
  const auto at = file.tensors.find(name);
  VALIDATE(at != file.tensors.end(), "{}: tensor {} is missing", path, name);
  const torch::Tensor& found = at->second;
  VALIDATE(found.sizes() == like.sizes() && found.scalar_type() == like.scalar_type(),
           "{}: tensor {} has another shape or type than its config says", path, name);
  VALIDATE(found.isfinite().all().item<bool>(), "{}: tensor {} holds what is no finite number",
           path, name);
  return found;
}

void read_network(const TensorFile& file, PolicyNetwork& network, const std::string& path) {
  torch::NoGradGuard no_grad;
  for (auto& item : network->named_parameters()) {
    item.value().copy_(tensor(file, kNetwork + item.key(), item.value(), path));
  }
}

// A parameter that no step has touched yet has no state.
torch::optim::AdamParamState* adam_state(torch::optim::Adam& adam, const torch::Tensor& parameter) {
  const auto at = adam.state().find(parameter.unsafeGetTensorImpl());
  return at == adam.state().end() ? nullptr
                                  : static_cast<torch::optim::AdamParamState*>(at->second.get());
}

// Adds the moments to `file`; returns the steps of each parameter.
Json write_optimizer(Learner& learner, TensorFile& file) {
  Json steps = Json::object();
  for (const auto& item : learner.network->named_parameters()) {
    const auto* state = adam_state(learner.optimizer, item.value());
    if (!state) continue;
    file.tensors[kFirstMoment + item.key()] = state->exp_avg();
    file.tensors[kSecondMoment + item.key()] = state->exp_avg_sq();
    steps[item.key()] = state->step();
  }
  return steps;
}

void read_optimizer(const TensorFile& file, const JsonValue& steps, Learner& learner,
                    const std::string& path) {
  JsonObject object(steps);
  for (const auto& item : learner.network->named_parameters()) {
    if (!object.has(item.key())) continue;
    auto state = std::make_unique<torch::optim::AdamParamState>();
    state->step(object.integer(item.key(), 1, learner.config.steps));
    state->exp_avg(tensor(file, kFirstMoment + item.key(), item.value(), path).clone());
    state->exp_avg_sq(tensor(file, kSecondMoment + item.key(), item.value(), path).clone());
    VALIDATE((state->exp_avg_sq() >= 0).all().item<bool>(), "{}: tensor {}{} holds what is below 0",
             path, kSecondMoment, item.key());
    learner.optimizer.state()[item.value().unsafeGetTensorImpl()] = std::move(state);
  }
  object.finish();
}

void write_mean(const Learner& learner, TensorFile& file) {
  for (std::size_t i = 0; i < learner.mean.size(); ++i) {
    file.tensors[kMean + learner.network->named_parameters()[i].key()] = learner.mean[i];
  }
}

// Of the steps so far.
void read_mean(const TensorFile& file, Learner& learner, const std::string& path) {
  if (learner.step <= averaged_behind(learner.config)) return;
  for (const auto& item : learner.network->named_parameters()) {
    learner.mean.push_back(tensor(file, kMean + item.key(), item.value(), path).clone());
  }
}

void read_progress(const TensorFile& file, Cases& cases, Learner& learner,
                   const std::string& path) {
  const std::string source = path + ": progress";
  const Json json = parse_json(text(file, "progress", path), source);
  JsonObject progress{JsonValue(json, source)};
  learner.step = progress.integer("step", 0, std::min(learner.config.steps, kMost));
  learner.evaluations = progress.integer("evaluations", 0, kMost);
  read_mean(file, learner, path);
  read_optimizer(file, progress.required("adam_steps"), learner, path);
  const std::vector<JsonValue> states = progress.list("cases");
  VALIDATE(states.size() == cases.size(), "{}: holds {} cases, the config makes {}", path,
           states.size(), cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    learner.states.push_back(parse_state(states[i], cases, i, imitates(learner.config)));
  }
  progress.finish();
}

}  // namespace

void save_policy(const PolicyNetwork& network, const TrainConfig& config, const std::string& path) {
  write_tensors(path, head_and_network(config, network));
}

LoadedPolicy load_policy(const std::string& path) {
  const TensorFile file = read_tensors(path);
  LoadedPolicy policy;
  policy.config = read_head(file, path);
  policy.network = make_network(policy.config, /*seed=*/0);
  read_network(file, policy.network, path);
  policy.network->eval();
  return policy;
}

namespace {

TensorFile learner_file(Learner& learner, const Cases& cases) {
  TensorFile file = head_and_network(learner.config, learner.network);
  Json states = Json::array();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    states.push_back(state_json(learner.states[i], cases.name(i), imitates(learner.config)));
  }
  file.metadata["progress"] = Json{{"step", learner.step},
                                   {"evaluations", learner.evaluations},
                                   {"cases", states},
                                   {"adam_steps", write_optimizer(learner, file)}}
                                  .dump();
  write_mean(learner, file);
  return file;
}

Learner read_learner(const TensorFile& file, const TrainConfig& config, Cases& cases,
                     const std::string& path) {
  VALIDATE(read_head(file, path) == config,
           "{}: config: the run was started with other settings; resume with the config.json "
           "beside it, or start anew",
           path);
  Learner learner(config);
  read_network(file, learner.network, path);
  read_progress(file, cases, learner, path);
  return learner;
}

}  // namespace

void save_learner(Learner& learner, const Cases& cases, const std::string& path) {
  write_tensors(path, learner_file(learner, cases));
}

std::string pack_learner(Learner& learner, const Cases& cases) {
  return tensors::pack_tensors(learner_file(learner, cases));
}

Learner load_learner(const TrainConfig& config, Cases& cases, const std::string& path) {
  return read_learner(read_tensors(path), config, cases, path);
}

Learner unpack_learner(const TrainConfig& config, Cases& cases, const std::string& bytes,
                       const std::string& source) {
  return read_learner(tensors::unpack_tensors(bytes, source), config, cases, source);
}

}  // namespace heterog::learn
