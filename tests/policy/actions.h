// Actions by number, for tests.
#pragma once

#include <initializer_list>

#include "policy/rollout.h"

namespace heterog::policy {

inline Actions actions(std::initializer_list<std::size_t> numbers) {
  Actions made;
  for (const std::size_t number : numbers) made.emplace_back(number);
  return made;
}

}  // namespace heterog::policy
