// Logging to stderr through spdlog, so that stdout carries results only.
#pragma once

#include <spdlog/spdlog.h>

namespace heterog {

// Sets the stderr logger and its level: "debug", "info", "warn", "error". Call once, from main.
void start_logging(const char* level);

}  // namespace heterog
