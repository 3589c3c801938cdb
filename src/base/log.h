// Logging through spdlog, apart from stdout, which carries results only. The logger is our own and
// not spdlog's default one, which belongs to the process.
#pragma once

#include <spdlog/logger.h>

#include <functional>
#include <string>
#include <string_view>

namespace heterog {

// The one logger, at level "warn". Nobody hears it before one of the two below.
spdlog::logger& logger();

// Lines go to stderr: for a program of ours. Called once, from main.
void log_to_stderr();
// Or to whoever has loaded the library: `hear` is called with one line, from any thread, by one at
// a time; an empty one hears nothing.
using LogListener = std::function<void(spdlog::level::level_enum level, std::string_view line)>;
void log_to(LogListener hear);

// "error", "warn", "info" or "debug"; anything else is an input error.
void set_log_level(const std::string& level);

}  // namespace heterog
