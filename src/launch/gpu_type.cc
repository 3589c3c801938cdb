// From the names of drivers to those of configs/devices.json.
#include <array>
#include <utility>

#include "launch/gpus.h"

namespace heterog::launch {
namespace {

// Names that no rule gives.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kNames = {
    {{"GTX-TITAN-X", "TITAN-X-Maxwell"},
     {"TITAN-X-(Pascal)", "TITAN-X-Pascal"},
     {"H100-80GB-HBM3", "H100-SXM5-80GB"},
     {"H200", "H200-SXM5-141GB"}}};

}  // namespace

std::string gpu_type(std::string_view driver_name) {
  for (const std::string_view family : {"NVIDIA ", "Tesla ", "GeForce "}) {
    if (driver_name.starts_with(family)) driver_name.remove_prefix(family.size());
  }
  std::string type(driver_name);
  for (char& c : type) {
    if (c == ' ') c = '-';
  }
  for (const auto& [name, known] : kNames) {
    if (type == name) return std::string(known);
  }
  return type;
}

bool is_cpu_type(std::string_view type) { return type.starts_with("CPU"); }

}  // namespace heterog::launch
