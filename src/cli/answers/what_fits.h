// What would fit where a batch does not (search/answers/what_fits.h), simulated and said.
#pragma once

#include <functional>
#include <string>

#include "explain/json.h"
#include "loading/problem_files.h"
#include "search/answers/what_fits.h"

namespace heterog::cli {

// `options`: those that `problem` was loaded with. Throws once `stopped` says so.
search::WhatFits what_fits(const cost::Problem& problem, const loading::ProblemOptions& options,
                           const graph::KnownBatches& known, const std::function<bool()>& stopped);

std::string what_fits_text(const search::WhatFits& fits);  // three lines
explain::OrderedJson what_fits_json(const search::WhatFits& fits);

}  // namespace heterog::cli
