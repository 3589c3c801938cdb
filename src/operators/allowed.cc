// Looks operators up in the table of those that a graph may hold.
#include "operators/allowed.h"

#include <algorithm>
#include <unordered_set>

#include "base/check.h"

namespace heterog::operators {

std::vector<std::string> allowed_overloads() {
  std::vector<std::string> types;
  for (std::string_view table = allowed_table(); !table.empty();) {
    const std::string_view line = table.substr(0, table.find('\n'));
    table.remove_prefix(line.size() + 1);
    const std::size_t name = line.find(' ');
    for (std::size_t at = name; at < line.size();) {
      const std::size_t end = std::min(line.find(' ', at + 1), line.size());
      types.push_back(
          fmt::format("aten.{}.{}", line.substr(0, name), line.substr(at + 1, end - at - 1)));
      at = end;
    }
  }
  // The project's own, which runtime/kernels/own_operators.cc computes.
  for (std::string_view own : {"linear4bit", "linear4bit_backward"}) {
    types.push_back(fmt::format("heterog.{}.default", own));
  }
  return types;
}

bool is_allowed(std::string_view type) {
  static const std::vector<std::string> types = allowed_overloads();
  static const std::unordered_set<std::string_view> known(types.begin(), types.end());
  return known.contains(type);
}

}  // namespace heterog::operators
