// Planners that ask for a few plans by rule and answer with the best: what learning must beat.
#pragma once

#include <vector>

#include "search/registry.h"

namespace heterog::search {

// "estimates": the layouts of search/starts/estimated_layouts.h. "rows": every row of the table of
// sets (space/action_space.h) for the whole model, in every order that is searched; of alike
// devices of a machine one alone. Neither settles shares.
std::vector<PlannerEntry> whole_model_entries();

}  // namespace heterog::search
