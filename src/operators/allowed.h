// Operators that a graph may hold: those that compute tensors from tensors and numbers, and do
// nothing else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heterog::operators {

// True for an overload of the table ("aten.mm.default"). The others of PyTorch's dispatcher could
// read and write files, change their arguments, or touch what is no tensor: a graph is data, and
// whoever wrote its file must not be able to ask for them.
bool is_allowed(std::string_view type);

// All of them, sorted by packet, and those that are not PyTorch's ("heterog.linear4bit.default").
std::vector<std::string> allowed_overloads();

// The table itself: a packet a line, then its overloads ("add Scalar Tensor").
std::string_view allowed_table();

}  // namespace heterog::operators
