// Formats of numbers with units.
#include "explain/amounts.h"

#include <fmt/format.h>

namespace heterog::explain {

std::string bytes_text(Bytes bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000) return fmt::format("{:.2f} GB", value * 1e-9);
  if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", value * 1e-6);
  if (bytes >= 1'000) return fmt::format("{:.1f} kB", value * 1e-3);
  return fmt::format("{} B", bytes);
}

std::string milliseconds_text(double seconds) { return fmt::format("{:.1f} ms", seconds * 1e3); }
std::string gigabytes_text(Bytes bytes) {
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9);
}
std::string speedup_text(double base, double time) {
  return fmt::format("{:+.1f} %", 100 * (base - time) / time);
}

}  // namespace heterog::explain
