// Errors of LibTorch, in one line.
#pragma once

#include <exception>
#include <string>

namespace heterog::tensors {

// The first line of an exception of LibTorch, without its place in the source and its backtrace.
std::string one_line(const std::exception& error);

}  // namespace heterog::tensors
