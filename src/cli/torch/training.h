// Settings and reports that the verbs train and finetune share.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/output.h"
#include "learn/api.h"

namespace heterog::cli {

// "key=value" of each --set; the example is for who has left out the value.
std::vector<std::pair<std::string, std::string>> settings(std::span<const std::string> texts,
                                                          std::string_view example);
// The GPU for passes of a rank, the local_rank-th of this host and round again; none unless it is
// wanted. An input error where it is wanted and there is none.
std::optional<int> gpu_for_passes(bool wanted, int local_rank);
inline constexpr const char* kGpuHelp =
    "Make forward and backward passes on a GPU, each rank of a host on its next one";
double share_done(const learn::TrainProgress& progress);  // 0 if the end is unknown
std::string progress_text(const learn::TrainProgress& progress);
OrderedJson cases_json(const std::vector<learn::CaseProgress>& cases);
std::string cases_text(const std::vector<learn::CaseProgress>& cases);

}  // namespace heterog::cli
