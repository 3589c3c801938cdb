// What a mistyped word most likely meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace heterog {

// Least number of letters to insert, remove, replace, or exchange with their neighbour; upper and
// lower case are the same.
std::size_t edit_distance(std::string_view a, std::string_view b);

// " (did you mean plan?)": the known word nearest to `wrong`, the first of equally near ones;
// nothing if more than a third of its letters differ.
std::string did_you_mean(std::string_view wrong, std::span<const std::string> known);

}  // namespace heterog
