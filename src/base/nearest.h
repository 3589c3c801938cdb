// The nearest known word to a mistyped one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace heterog {

// Least number of letters to insert, remove, replace, or exchange with their neighbour; upper and
// lower case are the same.
std::size_t edit_distance(std::string_view a, std::string_view b);

// Which of the known words is nearest to `wrong`, the first of equally near ones; none if more than
// a third of its letters differ.
std::optional<std::size_t> nearest_word(std::string_view wrong, std::span<const std::string> known);

// " (did you mean plan?)" of that word; nothing if there is none.
std::string did_you_mean(std::string_view wrong, std::span<const std::string> known);

}  // namespace heterog
