// Actions by number, for tests.
#pragma once

#include <initializer_list>

#include "learn/drawing/rollout.h"

namespace heterog::learn {

inline Actions actions(std::initializer_list<std::size_t> numbers) {
  Actions made;
  for (const std::size_t number : numbers) made.emplace_back(number);
  return made;
}

}  // namespace heterog::learn
