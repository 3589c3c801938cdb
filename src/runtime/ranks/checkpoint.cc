// Brings the tensors of all ranks together, and gives them back.
#include "runtime/ranks/checkpoint.h"

#include <charconv>
#include <map>

#include "base/check.h"
#include "base/text.h"
#include "tensors/tensor_file_io.h"

namespace heterog::runtime {
namespace {

constexpr const char* kFormat = "heterog-training";
constexpr const char* kVersion = "2";  // 1, which had no number, had no checksum

std::string graph_hash(const Job& job) {
  return fmt::format("{:016x}", job.problem->graph->hash());
}

// Of the tensors that ranks keep, by the names of the file; the same on all of them.
std::map<std::string, TensorId> kept_tensors(const Ranks& ranks) {
  const graph::ModelGraph& graph = *ranks.job().problem->graph;
  std::map<std::string, TensorId> ids;
  for (TensorId id : graph.tensor_ids()) {
    if (ranks.keeps(id)) ids.emplace(graph.tensor(id).name, id);
  }
  return ids;
}

tensors::TensorForm form_of(const graph::ModelGraph& graph, TensorId id) {
  return {.type = scalar_type(graph.tensor(id).dtype, Floats::kOwn),
          .shape = sizes_at(graph.shape(id), 1)};
}

// Each tensor is written as it comes from the rank that keeps it.
void write(const std::string& path, Ranks& ranks, const CheckpointInfo& info) {
  const Job& job = ranks.job();
  const std::map<std::string, TensorId> ids = kept_tensors(ranks);
  tensors::TensorForms forms;
  for (const auto& [name, id] : ids) forms[name] = form_of(*job.problem->graph, id);
  const tensors::Metadata metadata{{"format", kFormat},
                                   {"version", kVersion},
                                   {"graph", graph_hash(job)},
                                   {"seed", std::to_string(info.seed)},
                                   {"step", std::to_string(info.step)}};
  bool asked = false;  // a rank, which has not answered
  try {
    tensors::write_tensors(path, metadata, forms, [&](const std::string& name) {
      asked = true;
      at::Tensor value = ranks.get_where_it_speaks(ids.at(name));
      asked = false;
      return value;
    });
  } catch (const Error& error) {
    if (asked) throw;  // that rank failed, not the file
    throw Error(
        ErrorKind::kVerification,
        fmt::format("rank 0 ({}): step {} was not saved, the file of an earlier one is "
                    "whole: {}",
                    job.problem->cluster->device(DeviceId(0)).name, info.step, error.what()));
  }
}

const std::string& text(const tensors::TensorReader& file, const std::string& key,
                        const std::string& path) {
  const auto at = file.metadata().find(key);
  VALIDATE(at != file.metadata().end(), "{}: metadata lacks '{}'; it is no checkpoint of a run",
           path, key);
  return at->second;
}

std::int64_t step_of(const tensors::TensorReader& file, const std::string& path) {
  const std::string& said = text(file, "step", path);
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(said.data(), said.data() + said.size(), step);
  VALIDATE(
      error == std::errc() && end == said.data() + said.size() && step >= 0 && step <= kMostSteps,
      "{}: metadata.step: \"{}\", expected a number from 0 to {}", path, printable(said),
      kMostSteps);
  return step;
}

}  // namespace

void save_checkpoint(const std::string& path, Ranks& ranks, const CheckpointInfo& info) {
  if (ranks.speaks()) {
    write(path, ranks, info);
  } else {
    for (const auto& [name, id] : kept_tensors(ranks)) ranks.get_where_it_speaks(id);
  }
  ranks.meet(0);
}

CheckpointInfo load_checkpoint(const std::string& path, Ranks& ranks, std::uint64_t seed) {
  const Job& job = ranks.job();
  const graph::ModelGraph& graph = *job.problem->graph;
  const tensors::TensorReader file(path);
  VALIDATE(text(file, "format", path) == kFormat, "{}: metadata.format: \"{}\", expected {}", path,
           printable(text(file, "format", path)), kFormat);
  const bool numbered = file.metadata().contains("version");
  VALIDATE(!numbered || text(file, "version", path) == kVersion,
           "{}: metadata.version: \"{}\", this program's is {}", path,
           printable(text(file, "version", path)), kVersion);
  VALIDATE(!numbered || file.checked(), "{}: metadata lacks 'checksum': the file is damaged", path);
  VALIDATE(text(file, "graph", path) == graph_hash(job),
           "{}: metadata.graph: made for graph {}, this one is {}", path,
           printable(text(file, "graph", path)), graph_hash(job));
  VALIDATE(text(file, "seed", path) == std::to_string(seed),
           "{}: metadata.seed: {}, and --seed is {}; the data would be other", path,
           printable(text(file, "seed", path)), seed);
  const CheckpointInfo info{.step = step_of(file, path), .seed = seed};
  for (const DeviceId rank : ranks.here()) {
    Worker& worker = ranks.worker(rank);
    for (const TensorId id : worker.residents()) {
      const std::string& name = graph.tensor(id).name;
      const auto at = file.forms().find(name);
      VALIDATE(at != file.forms().end(), "{}: lacks '{}'", path, name);
      const tensors::TensorForm due = form_of(graph, id);
      VALIDATE(at->second.shape == due.shape && at->second.type == due.type,
               "{}: '{}' has another shape or type than in the graph", path, name);
      worker.set_resident(id, file.read(name));
    }
  }
  return info;
}

}  // namespace heterog::runtime
