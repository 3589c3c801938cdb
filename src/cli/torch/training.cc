// Settings, progress lines and tables of training.
#include "cli/torch/training.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/text.h"
#include "launch/gpus.h"

namespace heterog::cli {

std::vector<std::pair<std::string, std::string>> settings(std::span<const std::string> texts,
                                                          std::string_view example) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    VALIDATE(equals != std::string::npos && equals > 0, "--set {}: expected key=value, as in {}",
             printable(text), example);
    pairs.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return pairs;
}

std::optional<int> gpu_for_passes(bool wanted, int local_rank) {
  if (!wanted) return std::nullopt;
  const std::size_t count = launch::visible_gpus().size();
  VALIDATE(count > 0, "--gpu: {}; without it, passes are made on the CPU", launch::no_gpu_reason());
  return static_cast<int>(static_cast<std::size_t>(local_rank) % count);
}

double share_done(const learn::TrainProgress& progress) {
  if (progress.steps == 0) return 0;
  return static_cast<double>(progress.step) / static_cast<double>(progress.steps);
}

std::string progress_text(const learn::TrainProgress& progress) {
  std::string text = fmt::format("step {}, {} plans", progress.step, progress.evaluations);
  if (!progress.cases.empty()) {
    const learn::CaseProgress& last = progress.cases.back();
    text += ", " + last.name;
    if (last.best_step_seconds > 0) text += " best " + milliseconds_text(last.best_step_seconds);
  }
  return text;
}

OrderedJson cases_json(const std::vector<learn::CaseProgress>& cases) {
  OrderedJson json = OrderedJson::array();
  for (const learn::CaseProgress& one : cases) {
    // Zero stands for "none was feasible" in the reports of training.
    OrderedJson item = {
        {"name", one.name}, {"best_step_seconds", nullptr}, {"baseline_step_seconds", nullptr}};
    if (one.best_step_seconds > 0) item["best_step_seconds"] = one.best_step_seconds;
    if (one.baseline_step_seconds > 0) item["baseline_step_seconds"] = one.baseline_step_seconds;
    json.push_back(std::move(item));
  }
  return json;
}

std::string cases_text(const std::vector<learn::CaseProgress>& cases) {
  if (cases.empty()) return "";
  Table table({"case", "best", "best baseline", "speed-up over it"});
  for (const learn::CaseProgress& one : cases) {
    const bool best = one.best_step_seconds > 0, base = one.baseline_step_seconds > 0;
    table.add_row(
        {one.name, best ? milliseconds_text(one.best_step_seconds) : "none fits",
         base ? milliseconds_text(one.baseline_step_seconds) : "none fits",
         best && base ? speedup_text(one.baseline_step_seconds, one.best_step_seconds) : "-"});
  }
  return table.text();
}

}  // namespace heterog::cli
