// Sets up the one logger, on stderr.
#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace heterog {
namespace {

spdlog::level::level_enum level_of(std::string_view name) {
  constexpr std::pair<std::string_view, spdlog::level::level_enum> kLevels[] = {
      {"error", spdlog::level::err},
      {"warn", spdlog::level::warn},
      {"info", spdlog::level::info},
      {"debug", spdlog::level::debug},
  };
  for (const auto& [known, level] : kLevels) {
    if (known == name) return level;
  }
  fail_input("--log-level: \"{}\" given; it is error, warn, info or debug", printable(name));
}

}  // namespace

void start_logging() {
  auto logger = std::make_shared<spdlog::logger>(
      "heterog", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_level(spdlog::level::warn);
  logger->set_pattern("heterog: %^%l%$: %v");
  spdlog::set_default_logger(std::move(logger));
}

void set_log_level(const std::string& level) { spdlog::set_level(level_of(level)); }

}  // namespace heterog
