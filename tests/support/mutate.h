// Damages texts at random, for tests that feed readers whatever bytes.
#pragma once

#include <string>

#include "base/rng.h"

namespace heterog::support {

// One to four of: a bit or byte changed, a piece cut out, doubled or moved, the end cut off, a
// number, string or bracket put in place of another token. Never returns the text unchanged.
std::string mutate(const std::string& text, Rng& rng);

}  // namespace heterog::support
