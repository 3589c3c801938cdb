// Reads cluster files and the device data base, refusing what they should not hold.
#include "cluster/cluster_io.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/json_reader.h"
#include "base/names.h"
#include "base/nearest.h"
#include "base/own_file.h"
#include "base/text.h"
#include "cluster/calibration_io.h"
#include "cluster/gpu_part.h"
#include "cluster/links_io.h"

namespace heterog::cluster {
namespace {

// Upper ends that no real figure reaches; they keep sums and conversions far from overflow.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;  // a pebibyte
constexpr double kMaxPerSecond = 1e18;
constexpr double kMaxSeconds = 10;

// Names stand in messages, traces and tables, a device's between slashes, and its type's becomes
// the name of a file: none leads to another folder, or hides.
std::string read_name(JsonObject& object) {
  const std::string name = object.string("name");
  VALIDATE(
      is_file_name(name),
      "{}.name is '{}'; it must be one printable line of 1 to 100 characters, without slashes, "
      "and not begin with a dot",
      object.where(), printable(name));
  return name;
}

std::array<double, kOpClassCount> read_efficiency(const JsonValue& value) {
  JsonObject object(value);
  object.skip("source");
  std::array<double, kOpClassCount> shares{};
  for (int i = 0; i < kOpClassCount; ++i) {
    const OpClass op_class = static_cast<OpClass>(i);
    // Shares lie in (0, 1], and Winograd's F(2×2, 3×3) and F(4×4, 3×3) save up to three quarters of
    // the multiplications; a share below a thousandth is a slip of the pen.
    shares[i] = object.number(op_class_name(op_class), 1e-3,
                              op_class == OpClass::kConvolution3x3 ? 4.0 : 1.0);
  }
  object.finish();
  return shares;
}

// Shares of the peak by class of operator.
using Efficiencies = std::map<std::string, std::array<double, kOpClassCount>>;

// What a data base holds: devices name the rest.
struct DeviceTables {
  Efficiencies efficiencies;
  CalibrationSet calibrations;
  DeviceDatabase devices;
};

DeviceType read_device(const JsonValue& value, const Efficiencies& efficiencies,
                       const CalibrationSet& calibrations) {
  JsonObject object(value);
  object.skip("source");
  DeviceType type;
  type.name = read_name(object);
  VALIDATE(!part_of(type.name),
           "{}.name is '{}', as a part of a GPU is called; it must not end in a colon and a number",
           value.where(), type.name);
  type.memory_bytes = object.integer("memory_bytes", 1, kMaxBytes);
  type.reserve_bytes = object.integer("reserve_bytes", 0, type.memory_bytes - 1);
  type.fp32_flops_per_second = object.number("fp32_flops_per_second", 1, kMaxPerSecond);
  type.tf32_flops_per_second = object.number_or("tf32_flops_per_second", 0, kMaxPerSecond, 0);
  type.half_flops_per_second = object.number("half_flops_per_second", 1, kMaxPerSecond);
  if (object.has("bf16_flops_per_second")) {
    type.bf16_flops_per_second = object.number("bf16_flops_per_second", 0, kMaxPerSecond);
  }
  type.fp64_flops_per_second = object.number("fp64_flops_per_second", 1, kMaxPerSecond);
  type.memory_bytes_per_second = object.number("memory_bytes_per_second", 1, kMaxPerSecond);
  type.launch_seconds = object.number("launch_seconds", 0, kMaxSeconds);
  type.cache_bytes = object.integer_or("cache_bytes", 0, kMaxBytes, 0);
  type.half_efficiency_flop = object.number("half_efficiency_flop", 0, kMaxPerSecond);
  const std::string key = object.string("efficiency");
  const auto found = efficiencies.find(key);
  VALIDATE(found != efficiencies.end(),
           "{}.efficiency names '{}'; it must be one of the names in efficiencies", value.where(),
           printable(key));
  std::copy(found->second.begin(), found->second.end(), type.efficiency);
  type.collective_slowdown = object.number_or("collective_slowdown", 1, 100, 1);
  type.step_deviation = object.number_or("step_deviation", 0, 1, 0);
  type.multiprocessors = static_cast<int>(object.integer_or("multiprocessors", 1, 1 << 20, 1));
  if (object.has("calibration")) {
    const std::string name = object.string("calibration");
    const auto calibration = calibrations.find(name);
    VALIDATE(calibration != calibrations.end(),
             "{}.calibration names '{}'; it must be one of the names in calibrations",
             value.where(), printable(name));
    type.calibration = calibration->second;
  }
  if (object.has("sustained")) type.sustained = read_sustained(object.required("sustained"));
  object.finish();
  return type;
}

// The four known names nearest to a wrong one, nearest first.
std::string near_names(std::string_view wrong, const DeviceDatabase& devices) {
  wrong = wrong.substr(0, 64);
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const auto& [name, type] : devices) ranked.emplace_back(edit_distance(wrong, name), name);
  std::sort(ranked.begin(), ranked.end());
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(4, ranked.size()); ++i) {
    text += (i ? ", " : "") + ranked[i].second;
  }
  return text;
}

// The figures of a fabric or a card: those of the kind of link that it names, if it does, but for
// the ones that it gives itself.
LinkKind read_link_figures(JsonObject& object, const LinkDatabase& links) {
  const bool named = object.has("link");
  const LinkKind kind =
      named ? find_link(links, object.string("link"), object.where() + ".link") : LinkKind();
  LinkKind figures;
  const auto figure = [&](std::string_view key, double least, double most, double of_kind) {
    return named ? object.number_or(key, least, most, of_kind) : object.number(key, least, most);
  };
  figures.bytes_per_second =
      figure("bandwidth_bytes_per_second", 1, kMaxPerSecond, kind.bytes_per_second);
  figures.latency_seconds = figure("latency_seconds", 0, kMaxSeconds, kind.latency_seconds);
  figures.launch_seconds = object.number_or("launch_seconds", 0, kMaxSeconds, kind.launch_seconds);
  figures.feeds_nic = kind.feeds_nic;
  figures.transfer_multiprocessors = kind.transfer_multiprocessors;
  return figures;
}

FabricSpec read_fabric(const JsonValue& value, const LinkDatabase& links) {
  JsonObject object(value);
  FabricSpec fabric;
  const std::string kind = object.string("kind");
  if (kind == "switch") {
    fabric.kind = FabricSpec::Kind::kSwitch;
  } else if (kind == "bus") {
    fabric.kind = FabricSpec::Kind::kBus;
  } else if (kind == "sockets") {
    fabric.kind = FabricSpec::Kind::kSockets;
    fabric.socket_bytes_per_second =
        object.has("socket_link")
            ? find_link(links, object.string("socket_link"), object.where() + ".socket_link")
                  .bytes_per_second
            : object.number("socket_bandwidth_bytes_per_second", 1, kMaxPerSecond);
  } else {
    fail_input("{}.kind is '{}'; it must be switch, bus or sockets", value.where(),
               printable(kind));
  }
  const LinkKind figures = read_link_figures(object, links);
  fabric.port_bytes_per_second = figures.bytes_per_second;
  fabric.latency_seconds = figures.latency_seconds;
  fabric.launch_seconds = figures.launch_seconds;
  fabric.feeds_nic = object.boolean_or("feeds_nic", figures.feeds_nic);
  object.finish();
  return fabric;
}

NicSpec read_nic(const JsonValue& value, const LinkDatabase& links) {
  JsonObject object(value);
  const LinkKind figures = read_link_figures(object, links);
  const double of_device =
      object.number_or("device_bandwidth_bytes_per_second", 0, kMaxPerSecond, 0);
  const auto multiprocessors =
      object.integer_or("transfer_multiprocessors", 0, 1 << 10, figures.transfer_multiprocessors);
  object.finish();
  return {figures.bytes_per_second, figures.latency_seconds, figures.launch_seconds, of_device,
          static_cast<int>(multiprocessors)};
}

const DeviceType& find_device(const DeviceDatabase& devices, const std::string& name,
                              const std::string& where) {
  const auto found = devices.find(name);
  VALIDATE(found != devices.end(), "{}: unknown device '{}'; the nearest known are {}", where,
           printable(name), near_names(name, devices));
  return found->second;
}

// What a device of the file is, if it is a part of a GPU.
struct PartSpec {
  DeviceType type;
  Bytes memory_bytes = 0;
};

PartSpec read_part(const JsonValue& value, const DeviceType& gpu) {
  JsonObject object(value);
  PartSpec part;
  VALIDATE(gpu.multiprocessors > 1,
           "{}: '{}' has one multiprocessor in devices.json; parts are of GPUs with several",
           value.where(), gpu.name);
  part.type =
      part_type(gpu, static_cast<int>(object.integer("multiprocessors", 1, gpu.multiprocessors)));
  part.memory_bytes =
      object.integer_or("memory_bytes", 1, gpu.memory_bytes, part.type.memory_bytes);
  object.finish();
  return part;
}

// Parts of one GPU have no more memory together than it has.
void check_parts(const MachineSpec& spec, const DeviceDatabase& devices, const std::string& where) {
  OpenGpu open;
  Bytes taken = 0;
  for (std::size_t i = 0; i < spec.devices.size(); ++i) {
    const auto part = part_of(spec.devices[i].name);
    if (!part) {
      open.close();
      continue;
    }
    const DeviceType& gpu = devices.at(part->gpu);
    taken = (open.takes(*part, gpu.multiprocessors) ? taken : 0) + spec.device_memory_bytes[i];
    VALIDATE(taken <= gpu.memory_bytes,
             "{}.devices: parts of one {} have {} bytes of memory up to device {}; it has {}",
             where, gpu.name, taken, i, gpu.memory_bytes);
  }
}

void read_machine_devices(const JsonValue& value, const DeviceDatabase& devices,
                          MachineSpec& spec) {
  JsonObject object(value);
  const DeviceType& model = find_device(devices, object.string("model"), value.where() + ".model");
  const auto count = object.integer_or("count", 1, kMaxDevices, 1);
  const bool is_part = object.has("part_of_gpu");
  const PartSpec part =
      is_part ? read_part(object.required("part_of_gpu"), model) : PartSpec{model, {}};
  const DeviceType& type = part.type;
  VALIDATE(!is_part || !object.has("memory_bytes"),
           "{}.memory_bytes stands beside part_of_gpu; a part's memory is its own memory_bytes",
           value.where());
  const Bytes memory = is_part ? part.memory_bytes
                               : object.integer_or("memory_bytes", 1, kMaxBytes, type.memory_bytes);
  const double overhead = object.number_or("overhead_seconds_per_byte", 0, kMaxSeconds, 0);
  object.finish();
  VALIDATE(spec.devices.size() + static_cast<std::size_t>(count) <= kMaxDevices,
           "{}: the machine has over {} devices; at most that many are supported", value.where(),
           kMaxDevices);
  spec.devices.insert(spec.devices.end(), static_cast<std::size_t>(count), type);
  spec.device_memory_bytes.insert(spec.device_memory_bytes.end(), static_cast<std::size_t>(count),
                                  memory);
  spec.device_overhead_seconds_per_byte.insert(spec.device_overhead_seconds_per_byte.end(),
                                               static_cast<std::size_t>(count), overhead);
}

// The host: what it has, and whether it serves parameters.
void read_host(JsonObject& object, const DeviceDatabase& devices, MachineSpec& spec) {
  const std::string& where = object.where();
  spec.host_memory_bytes = object.integer_or("host_memory_bytes", 0, kMaxBytes, 0);
  spec.host_seconds = object.number_or("host_seconds", 0, 1, 0);
  std::optional<DeviceType> type;
  if (object.has("host_model")) {
    type = find_device(devices, object.string("host_model"), where + ".host_model");
  }
  if (!object.boolean_or("serves_parameters", false)) return;
  VALIDATE(spec.host_memory_bytes > 0,
           "{}.serves_parameters is true but host_memory_bytes is 0; say how much the host has",
           where);
  VALIDATE(type,
           "{}.serves_parameters is true but host_model is missing; name the processor, a device "
           "of devices.json, at whose rates the host adds up and updates",
           where);
  spec.server = type;
}

// A machine description, and how often it stands in the cluster (nothing: once, name as it is).
struct ReadMachine {
  MachineSpec spec;
  std::optional<std::int64_t> count;
};

ReadMachine read_machine(const JsonValue& value, const DeviceDatabase& devices,
                         const LinkDatabase& links) {
  JsonObject object(value);
  ReadMachine machine;
  MachineSpec& spec = machine.spec;
  spec.name = read_name(object);
  if (object.has("count")) machine.count = object.integer("count", 1, kMaxDevices);
  for (const JsonValue& item : object.list("devices")) read_machine_devices(item, devices, spec);
  VALIDATE(!spec.devices.empty(), "{}.devices is empty; a machine needs at least one device",
           value.where());
  check_parts(spec, devices, value.where());
  read_host(object, devices, spec);
  if (object.has("fabric")) {
    spec.fabric = read_fabric(object.required("fabric"), links);
  } else {
    VALIDATE(spec.devices.size() == 1 && !spec.server,
             "{}.fabric is missing, so its {} cannot reach each other; describe it", value.where(),
             spec.server ? "devices and its host" : fmt::format("{} devices", spec.devices.size()));
  }
  if (object.has("nic")) spec.nic = read_nic(object.required("nic"), links);
  object.finish();
  return machine;
}

Cluster cluster_from_json(const Json& json, const std::string& source,
                          const DeviceDatabase& devices, const LinkDatabase& links) {
  JsonObject object(JsonValue(json, source));
  check_format(object, "heterog-cluster", 1);
  ClusterBuilder builder(read_name(object));
  object.skip("source");
  std::size_t total = 0;
  for (const JsonValue& value : object.list("machines")) {
    ReadMachine machine = read_machine(value, devices, links);
    total += (machine.spec.devices.size() + (machine.spec.server ? 1 : 0)) *
             static_cast<std::size_t>(machine.count.value_or(1));
    VALIDATE(total <= kMaxDevices,
             "{}: the cluster has over {} devices; at most that many are "
             "supported",
             value.where(), kMaxDevices);
    if (!machine.count) {
      builder.add_machine(std::move(machine.spec));
      continue;
    }
    for (std::int64_t i = 0; i < *machine.count; ++i) {
      MachineSpec copy = machine.spec;
      copy.name = fmt::format("{}-{}", machine.spec.name, i);
      builder.add_machine(std::move(copy));
    }
  }
  if (object.has("network")) {
    JsonObject network(object.required("network"));
    NetworkSpec spec;
    spec.latency_seconds = network.number("latency_seconds", 0, kMaxSeconds);
    spec.flow_cap_bytes_per_second =
        network.number_or("flow_cap_bytes_per_second", 0, kMaxPerSecond, 0);
    spec.flows = network.integer_or("flows", 1, kMostFlows, 1);
    if (network.has("parameter_servers")) {
      JsonObject servers(network.required("parameter_servers"));
      const LinkKind kind = read_link_figures(servers, links);
      servers.finish();
      spec.servers = {kind.bytes_per_second, kind.latency_seconds, kind.launch_seconds};
    }
    network.finish();
    builder.set_network(spec);
  }
  object.finish();
  return std::move(builder).build(source);
}

// Adds what the file holds to `tables`, in the place of what has the same name there.
void add_devices(const std::string& text, const std::string& source, DeviceTables& tables) {
  const Json json = parse_json(text, source);
  JsonObject object(JsonValue(json, source));
  check_format(object, "heterog-devices", 1);
  object.skip("source");
  std::set<std::string> own;
  const auto is_new = [&](const JsonValue& value, const std::string& name) {
    VALIDATE(own.insert(name).second, "{}.name: '{}' appears twice; names must differ",
             value.where(), name);
  };
  const bool shares = object.has("efficiencies");  // else it has none of its own
  for (const JsonValue& value : shares ? object.list("efficiencies") : std::vector<JsonValue>()) {
    JsonObject entry(value);
    const std::string name = read_name(entry);
    is_new(value, name);
    tables.efficiencies.insert_or_assign(name, read_efficiency(entry.required("shares")));
    entry.skip("source");
    entry.finish();
  }
  if (object.has("calibrations")) {
    tables.calibrations =
        read_calibrations(object.list("calibrations"), std::move(tables.calibrations));
  }
  own.clear();
  for (const JsonValue& value : object.list("devices")) {
    DeviceType type = read_device(value, tables.efficiencies, tables.calibrations);
    const std::string name = type.name;
    is_new(value, name);
    tables.devices.insert_or_assign(name, std::move(type));
  }
  object.finish();
  VALIDATE(!own.empty(), "{}: devices is empty; list at least one", source);
}

}  // namespace

DeviceDatabase parse_devices(const std::string& text, const std::string& source) {
  DeviceTables tables;
  add_devices(text, source, tables);
  return std::move(tables.devices);
}

DeviceDatabase read_devices_over(const std::string& shipped, const std::string& path) {
  DeviceTables tables;
  add_devices(read_file(shipped), shipped, tables);
  add_devices(read_file(path), path, tables);
  return std::move(tables.devices);
}

DeviceDatabase read_devices(const std::string& path) {
  return parse_devices(read_file(path), path);
}

Cluster parse_cluster(const std::string& text, const std::string& source,
                      const DeviceDatabase& devices, const LinkDatabase& links) {
  return cluster_from_json(parse_json(text, source), source, devices, links);
}

Cluster read_cluster(const std::string& path, const DeviceDatabase& devices,
                     const LinkDatabase& links) {
  return parse_cluster(read_file(path), path, devices, links);
}

namespace {

// The nearest file of that name in the folder of `path` or the ones above; empty where there is
// none.
std::string nearest_data_base(const std::string& path, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  for (fs::path folder = absolute.parent_path(); !error;) {
    if (fs::is_regular_file(folder / name, error)) return (folder / name).string();
    error.clear();
    if (folder == folder.parent_path()) break;
    folder = folder.parent_path();
  }
  return "";
}

// The data base that is installed and the one beside the cluster file. One of them alone counts
// where the other does not exist, or is the same file.
struct DataBases {
  std::string shipped, near;

  DataBases(const std::string& cluster, const std::string& name)
      : shipped(installed_config(name)), near(nearest_data_base(cluster, name)) {
    std::error_code error;
    if (near.empty() || std::filesystem::equivalent(shipped, near, error)) {
      near = shipped;
    } else if (std::filesystem::is_regular_file(shipped, error)) {
      both = true;
    }
  }
  bool both = false;  // else `near` alone
};

}  // namespace

std::string installed_config(const std::string& name) {
  const std::string found = nearest_above(own_file(), "configs/" + name);
  return found.empty() ? (std::filesystem::path(HETEROG_CONFIG_DIR) / name).string() : found;
}

DeviceDatabase devices_for(const std::string& path) {
  const DataBases found(path, "devices.json");
  return found.both ? read_devices_over(found.shipped, found.near) : read_devices(found.near);
}

Cluster load_cluster(const std::string& given) {
  const std::string path = here_or_shipped(given, "configs/clusters", ".json");
  const std::string text = read_file(path);  // first, so that a missing file is what is reported
  const DataBases found(path, "links.json");
  LinkDatabase links = read_links(found.near);
  if (found.both) links.merge(read_links(found.shipped));  // keeps what is there already
  return parse_cluster(text, path, devices_for(path), links);
}

}  // namespace heterog::cluster
