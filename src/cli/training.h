// How train and finetune report what they did.
#pragma once

#include <string>
#include <vector>

#include "cli/output.h"
#include "policy/api.h"

namespace heterog::cli {

double share_done(const policy::TrainProgress& progress);  // 0 if the end is unknown
std::string progress_text(const policy::TrainProgress& progress);
OrderedJson cases_json(const std::vector<policy::CaseProgress>& cases);
std::string cases_text(const std::vector<policy::CaseProgress>& cases);

}  // namespace heterog::cli
