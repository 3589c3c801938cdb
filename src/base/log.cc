// Sets up the one logger.
#include "base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>
#include <mutex>
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

// Hands lines on, to stderr or to a listener. It stays when they change: another thread may be
// writing one.
class Outlet final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void to_stderr() {
    const std::lock_guard lock(mutex_);
    stderr_ = std::make_unique<spdlog::sinks::stderr_color_sink_mt>();
    stderr_->set_pattern("heterog: %^%l%$: %v");
  }
  void to(LogListener hear) {
    const std::lock_guard lock(mutex_);
    hear_ = std::move(hear);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (stderr_) stderr_->log(message);
    if (hear_) hear_(message.level, {message.payload.data(), message.payload.size()});
  }
  void flush_() override {
    if (stderr_) stderr_->flush();
  }

 private:
  std::unique_ptr<spdlog::sinks::sink> stderr_;
  LogListener hear_;
};

// Never destroyed: threads of the caller may outlive what is static.
std::shared_ptr<Outlet>& outlet() {
  static auto* const kOutlet = new std::shared_ptr<Outlet>(std::make_shared<Outlet>());
  return *kOutlet;
}

}  // namespace

spdlog::logger& logger() {
  static auto* const kLogger = [] {
    auto* made = new spdlog::logger("heterog", outlet());
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *kLogger;
}

void log_to_stderr() { outlet()->to_stderr(); }

void log_to(LogListener hear) { outlet()->to(std::move(hear)); }

void set_log_level(const std::string& level) { logger().set_level(level_of(level)); }

}  // namespace heterog
