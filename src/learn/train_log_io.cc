// The log of a training run: one JSON object a line and step.
#include "learn/train_log_io.h"

#include <filesystem>
#include <sstream>

#include "base/file.h"
#include "base/json_reader.h"

namespace heterog::learn {

std::string log_line(const TrainProgress& progress) {
  Json cases = Json::array();
  for (const CaseProgress& c : progress.cases) {
    cases.push_back({{"case", c.name},
                     {"mean_step_seconds", c.mean_step_seconds},
                     {"best_step_seconds", c.best_step_seconds},
                     {"baseline_step_seconds", c.baseline_step_seconds}});
  }
  const Json line = {{"step", progress.step},
                     {"evaluations", progress.evaluations},
                     {"mean_reward", progress.mean_reward},
                     {"entropy_nats", progress.entropy},
                     {"loss", progress.loss},
                     {"cases", cases}};
  return line.dump() + "\n";
}

std::string log_up_to(const std::string& path, std::int64_t step) {
  if (!std::filesystem::exists(path)) return "";
  std::istringstream lines(read_file(path));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded() || !json.contains("step") || json["step"] > step) break;
    kept += line + "\n";
  }
  return kept;
}

}  // namespace heterog::learn
