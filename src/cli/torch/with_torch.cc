// With LibTorch.
#include "cli/torch/with_torch.h"

#include <c10/util/Exception.h>

#include <utility>

#include "base/text.h"
#include "learn/api.h"
#include "learn/placers/placers.h"

namespace heterog::cli {

std::vector<search::PlannerEntry> learned_planners() {
  std::vector<search::PlannerEntry> entries = {learn::policy_planner_entry()};
  for (search::PlannerEntry& entry : learn::placer_entries()) entries.push_back(std::move(entry));
  return entries;
}

std::optional<std::string> torch_error(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  if (of_torch == nullptr) return std::nullopt;
  return printable(of_torch->what_without_backtrace(), 500);
}

}  // namespace heterog::cli
