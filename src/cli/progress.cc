// Draws the progress line.
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace heterog::cli {

std::string duration_text(double seconds) {
  const auto whole = static_cast<long>(std::ceil(std::max(0.0, seconds)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

Progress::Progress(const Caller& caller, std::string title)
    : title_(std::move(title)), terminal_(caller.is_program && isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (last_shown_ < 0) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

void Progress::show(double done, const std::string& detail) {
  const double now = seconds();
  if (!terminal_ || (last_shown_ >= 0 && now < last_shown_ + 0.1)) return;
  last_shown_ = now;
  std::string line = title_;
  if (done > 0) {
    const double share = std::min(done, 1.0);
    line += fmt::format(" {:3.0f} %", 100 * share);
    if (now > 0.5) line += fmt::format(", {} left", duration_text(now / share * (1 - share)));
  }
  if (!detail.empty()) line += ", " + detail;
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
}

}  // namespace heterog::cli
