// Tensors and texts of both kinds of file.
#include "policy/moves/move_files_io.h"

#include <torch/torch.h>

#include "base/json_reader.h"
#include "base/text.h"
#include "planner/scorer/move_features.h"
#include "tensors/tensor_file_io.h"

namespace heterog::policy {

namespace {

using tensors::TensorFile;

constexpr const char* kWeights = "heterog-moves";
constexpr const char* kLog = "heterog-move-log";
constexpr const char* kVersion = "1";
constexpr std::size_t kMostLayers = 16;
constexpr std::int64_t kMostWidth = 4096;

TensorFile begin_file(const char* format) {
  TensorFile file;
  file.metadata = {{"format", format},
                   {"version", kVersion},
                   {"feature_version", std::to_string(planner::kMoveFeatureVersion)}};
  return file;
}

const std::string& text(const TensorFile& file, const std::string& key, const std::string& path) {
  const auto at = file.metadata.find(key);
  VALIDATE(at != file.metadata.end(), "{}: no file of heterog train --moves: {} is missing", path,
           key);
  return at->second;
}

TensorFile read_file_of(const char* format, const std::string& path) {
  TensorFile file = tensors::read_tensors(path);
  VALIDATE(text(file, "format", path) == format, "{}: format: is {}, expected {}", path,
           printable(text(file, "format", path)), format);
  VALIDATE(text(file, "version", path) == kVersion, "{}: version: is {}, this program's is {}",
           path, printable(text(file, "version", path)), kVersion);
  const std::string& features = text(file, "feature_version", path);
  VALIDATE(features == std::to_string(planner::kMoveFeatureVersion),
           "{}: feature_version: is {}, this program's is {}; train the scorer of moves again",
           path, printable(features), planner::kMoveFeatureVersion);
  VALIDATE(file.checked, "{}: checksum: is missing: the file is damaged", path);
  return file;
}

const at::Tensor& tensor(const TensorFile& file, const std::string& name, at::ScalarType type,
                         std::int64_t dimensions, const std::string& path) {
  const auto at = file.tensors.find(name);
  VALIDATE(at != file.tensors.end(), "{}: tensor {} is missing", path, name);
  VALIDATE(at->second.scalar_type() == type && at->second.dim() == dimensions,
           "{}: tensor {} has another shape or type than expected", path, name);
  VALIDATE(at->second.isfinite().all().item<bool>(), "{}: tensor {} holds what is no finite number",
           path, name);
  return at->second;
}

template <class T>
std::vector<T> values(const at::Tensor& tensor) {
  return {tensor.data_ptr<T>(), tensor.data_ptr<T>() + tensor.numel()};
}

}  // namespace

void save_moves(const planner::MoveNetwork& network, const std::string& path) {
  TensorFile file = begin_file(kWeights);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const planner::DenseLayer& layer = network.layers[l];
    file.tensors[fmt::format("layer{}.weights", l)] =
        torch::tensor(layer.weights)
            .reshape({static_cast<std::int64_t>(layer.inputs),
                      static_cast<std::int64_t>(layer.outputs)});
    file.tensors[fmt::format("layer{}.biases", l)] = torch::tensor(layer.biases);
  }
  tensors::write_tensors(path, file);
}

planner::MoveNetwork load_moves(const std::string& path) {
  const TensorFile file = read_file_of(kWeights, path);
  planner::MoveNetwork network;
  auto width = static_cast<std::int64_t>(planner::move_feature_count());
  for (std::size_t l = 0; l < kMostLayers; ++l) {
    const std::string name = fmt::format("layer{}.weights", l);
    if (l > 0 && !file.tensors.contains(name)) break;
    const at::Tensor& weights = tensor(file, name, at::kFloat, 2, path);
    const at::Tensor& biases = tensor(file, fmt::format("layer{}.biases", l), at::kFloat, 1, path);
    VALIDATE(weights.size(0) == width && weights.size(1) == biases.size(0) &&
                 weights.size(1) >= 1 && weights.size(1) <= kMostWidth,
             "{}: tensor {} does not fit what is before or behind it", path, name);
    width = weights.size(1);
    network.layers.push_back({.inputs = static_cast<std::size_t>(weights.size(0)),
                              .outputs = static_cast<std::size_t>(width),
                              .weights = values<float>(weights),
                              .biases = values<float>(biases)});
  }
  VALIDATE(width == 1, "{}: the last layer has {} outputs, expected 1", path, width);
  return network;
}

void save_move_log(const MoveLog& log, const std::string& path) {
  TensorFile file = begin_file(kLog);
  const auto rows = static_cast<std::int64_t>(log.size());
  file.metadata["names"] = Json(log.names).dump();
  file.tensors["features"] = torch::tensor(log.features).reshape({rows, -1});
  file.tensors["gains"] = torch::tensor(log.gains);
  file.tensors["rounds"] = torch::tensor(log.rounds, torch::kInt);
  file.tensors["problems"] = torch::tensor(log.problems, torch::kInt);
  tensors::write_tensors(path, file);
}

MoveLog load_move_log(const std::string& path) {
  const TensorFile file = read_file_of(kLog, path);
  const std::string source = path + ": names";
  const Json json = parse_json(text(file, "names", path), source);
  MoveLog log;
  for (const JsonValue& name : JsonValue(json, source).as_list()) {
    log.names.push_back(name.as_string());
  }
  const at::Tensor& features = tensor(file, "features", at::kFloat, 2, path);
  log.features = values<float>(features);
  log.gains = values<float>(tensor(file, "gains", at::kFloat, 1, path));
  log.rounds = values<std::int32_t>(tensor(file, "rounds", at::kInt, 1, path));
  log.problems = values<std::int32_t>(tensor(file, "problems", at::kInt, 1, path));
  VALIDATE(features.size(1) == static_cast<std::int64_t>(planner::move_feature_count()) &&
               features.size(0) == static_cast<std::int64_t>(log.size()) &&
               log.rounds.size() == log.size() && log.problems.size() == log.size(),
           "{}: its tensors are not of one length, or rows not of this program's features", path);
  for (const std::int32_t problem : log.problems) {
    VALIDATE(problem >= 0 && problem < static_cast<std::int64_t>(log.names.size()),
             "{}: tensor problems: holds {}, there are {} names", path, problem, log.names.size());
  }
  return log;
}

}  // namespace heterog::policy
