// Through C no exception may pass: what both halves of heterog.h end their functions with. Beside
// src/cli/ending.cc this is the one place that catches all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/check.h"

namespace heterog::client {

// Keeps the message for heterog_last_error() of the calling thread, as one line; returns the code.
std::int32_t keep_error(ErrorKind kind, std::string message);
// Calls it; 0, or the code of what it threw.
std::int32_t guarded(const std::function<void()>& body);
// Refuses a null pointer, naming the field.
std::string text_of(const char* text, const char* field);

}  // namespace heterog::client
