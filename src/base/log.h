// Logging to stderr through spdlog, so that stdout carries results only.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace heterog {

// Sets the stderr logger, at level "warn". Call once, from main.
void start_logging();

// "error", "warn", "info" or "debug"; anything else is an input error.
void set_log_level(const std::string& level);

}  // namespace heterog
