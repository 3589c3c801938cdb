// How many of its seeds a test with random cases draws.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace heterog::support {

// All of them where HETEROG_THOROUGH is set (scripts/test.sh --thorough); else a quarter, at least
// one.
inline int rounds(int all) {
  return std::getenv("HETEROG_THOROUGH") != nullptr ? all : std::max(all / 4, 1);
}

}  // namespace heterog::support
