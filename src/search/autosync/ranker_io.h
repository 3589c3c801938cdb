// Files of rankers: {"format": "heterog-sync-ranker", "version": 1, "features", "mean", "scale",
// "weights"}.
#pragma once

#include <string>

#include "search/autosync/ranker.h"

namespace heterog::search {

// Throws an input error where it is damaged, or of other features.
LinearRanker read_ranker(const std::string& path);
void write_ranker(const std::string& path, const LinearRanker& ranker);

}  // namespace heterog::search
