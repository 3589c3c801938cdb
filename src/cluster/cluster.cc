// Derives links and routes from machine descriptions, and checks that they make sense.
#include "cluster/cluster.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>

#include "base/hash.h"
#include "base/text.h"

namespace heterog::cluster {

std::string_view op_class_name(OpClass op_class) {
  static constexpr std::array<std::string_view, kOpClassCount> kNames = {"matmul",
                                                                         "convolution",
                                                                         "convolution_3x3",
                                                                         "depthwise_convolution",
                                                                         "elementwise",
                                                                         "reduction",
                                                                         "normalization",
                                                                         "softmax",
                                                                         "pooling",
                                                                         "embedding",
                                                                         "copy",
                                                                         "optimizer"};
  return kNames[static_cast<std::size_t>(op_class)];
}

namespace {

bool finite_at_least(double value, double least) { return std::isfinite(value) && value >= least; }
bool finite_positive(double value) { return std::isfinite(value) && value > 0; }

// Who has a port of the fabric.
std::size_t members(const MachineSpec& spec) { return spec.devices.size() + (spec.server ? 1 : 0); }

void check_type(const DeviceType& type, const std::string& where) {
  VALIDATE(type.memory_bytes > 0, "{}: memory_bytes of {} is {}; it must be positive", where,
           type.name, type.memory_bytes);
  VALIDATE(type.reserve_bytes >= 0, "{}: reserve_bytes of {} is {}; it must be 0 or more", where,
           type.name, type.reserve_bytes);
  VALIDATE(
      finite_positive(type.fp32_flops_per_second) && finite_positive(type.memory_bytes_per_second),
      "{}: {} needs a positive fp32_flops_per_second and memory_bytes_per_second", where,
      type.name);
  VALIDATE(
      finite_at_least(type.launch_seconds, 0) && finite_at_least(type.half_efficiency_flop, 0) &&
          finite_at_least(type.tf32_flops_per_second, 0) &&
          finite_at_least(type.half_flops_per_second, 0) &&
          finite_at_least(type.bf16_flops_per_second.value_or(0), 0) &&
          finite_at_least(type.fp64_flops_per_second, 0),
      "{}: a figure of {} is negative or not finite; they must be 0 or more", where, type.name);
  VALIDATE(finite_at_least(type.collective_slowdown, 1),
           "{}: collective_slowdown of {} is {}; it must be 1 or more", where, type.name,
           type.collective_slowdown);
  VALIDATE(finite_at_least(type.step_deviation, 0) && type.step_deviation <= 1,
           "{}: step_deviation of {} is {}; it must lie in 0 to 1", where, type.name,
           type.step_deviation);
}

void check_machine(const MachineSpec& spec, const std::string& source, std::size_t machines) {
  const std::string where = fmt::format("{}: machine '{}'", source, printable(spec.name));
  VALIDATE(!spec.name.empty(), "{}: a machine has an empty name; give it one", source);
  VALIDATE(!spec.devices.empty(), "{}: devices is empty; a machine needs at least one device",
           where);
  VALIDATE(spec.host_memory_bytes >= 0, "{}: host_memory_bytes is {}; it must be 0 or more", where,
           spec.host_memory_bytes);
  VALIDATE(
      spec.device_memory_bytes.empty() || spec.device_memory_bytes.size() == spec.devices.size(),
      "{}: {} memory sizes for {} devices; give one a device or none", where,
      spec.device_memory_bytes.size(), spec.devices.size());
  for (const DeviceType& type : spec.devices) check_type(type, where);
  if (spec.server) {
    check_type(*spec.server, where);
    VALIDATE(spec.host_memory_bytes > spec.server->reserve_bytes,
             "{}: its host serves parameters and has host_memory_bytes {}; it must have more than "
             "the {} that {} keeps for itself",
             where, spec.host_memory_bytes, spec.server->reserve_bytes, spec.server->name);
  }
  const std::vector<double>& overheads = spec.device_overhead_seconds_per_byte;
  VALIDATE(overheads.empty() || overheads.size() == spec.devices.size(),
           "{}: {} overheads are given for {} devices; give one each, or none", where,
           overheads.size(), spec.devices.size());
  for (double overhead : overheads) {
    VALIDATE(finite_at_least(overhead, 0), "{}: overhead_seconds_per_byte is {}; it is 0 or more",
             where, overhead);
  }
  for (Bytes bytes : spec.device_memory_bytes) {
    VALIDATE(bytes > 0, "{}: memory_bytes is {}; it must be positive", where, bytes);
  }
  const FabricSpec& fabric = spec.fabric;
  VALIDATE(finite_at_least(fabric.latency_seconds, 0),
           "{}: fabric.latency_seconds is {}; it must be 0 or more", where, fabric.latency_seconds);
  VALIDATE(finite_at_least(fabric.launch_seconds, 0),
           "{}: fabric.launch_seconds is {}; it must be 0 or more", where, fabric.launch_seconds);
  if (members(spec) > 1) {
    VALIDATE(finite_positive(fabric.port_bytes_per_second),
             "{}: fabric.bandwidth_bytes_per_second is {}, so its {} cannot reach each other; it "
             "must be positive",
             where, fabric.port_bytes_per_second,
             spec.server ? "devices and its host" : fmt::format("{} devices", spec.devices.size()));
    if (fabric.kind == FabricSpec::Kind::kSockets) {
      VALIDATE(finite_positive(fabric.socket_bytes_per_second),
               "{}: fabric.socket_bandwidth_bytes_per_second is {}; it must be positive for a "
               "fabric of kind sockets",
               where, fabric.socket_bytes_per_second);
    }
  }
  VALIDATE(finite_at_least(spec.nic.bytes_per_second, 0) &&
               finite_at_least(spec.nic.latency_seconds, 0) &&
               finite_at_least(spec.nic.launch_seconds, 0) &&
               finite_at_least(spec.nic.device_bytes_per_second, 0),
           "{}: a figure of nic is negative or not finite; they must be 0 or more", where);
  VALIDATE(machines == 1 || spec.nic.bytes_per_second > 0,
           "{}: it has no nic, so the other {} machines cannot reach it; give it "
           "nic.bandwidth_bytes_per_second",
           where, machines - 1);
}

std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

void hash_calibration(Hasher& hasher, const Calibration& calibration) {
  for (const auto& products : calibration.products) {
    for (const ProductConstants& c : products) {
      for (double figure : {c.share, c.tile_loss, c.fill, c.bandwidth_share, c.fixed_seconds,
                            c.winograd_share, c.stride_waste, c.join_seconds, c.k_step}) {
        hasher.add(bits(figure));
      }
    }
  }
  for (const TrafficConstants& c : calibration.traffic) {
    hasher.add(bits(c.bandwidth_share));
    hasher.add(bits(c.fixed_seconds));
    hasher.add(bits(c.window_share));
  }
  hasher.add(bits(calibration.depthwise_share));
}

void hash_type(Hasher& hasher, const DeviceType& type) {
  hasher.add(type.name);
  hasher.add(static_cast<std::uint64_t>(type.memory_bytes));
  hasher.add(static_cast<std::uint64_t>(type.reserve_bytes));
  for (double figure :
       {type.fp32_flops_per_second, type.tf32_flops_per_second, type.half_flops_per_second,
        type.fp64_flops_per_second, type.memory_bytes_per_second, type.launch_seconds,
        type.half_efficiency_flop}) {
    hasher.add(bits(figure));
  }
  if (type.host_seconds > 0) hasher.add(bits(type.host_seconds));
  if (type.bf16_flops_per_second) hasher.add(bits(*type.bf16_flops_per_second));
  for (double share : type.efficiency) hasher.add(bits(share));
  if (type.collective_slowdown > 1) hasher.add(bits(type.collective_slowdown));
  if (type.step_deviation > 0) hasher.add(bits(type.step_deviation));
  if (type.calibration) {
    hasher.add(static_cast<std::uint64_t>(type.multiprocessors));
    hasher.add(static_cast<std::uint64_t>(type.cache_bytes));
    hash_calibration(hasher, *type.calibration);
    for (double share : type.sustained.matmul) hasher.add(bits(share));
    for (double share : type.sustained.convolution) hasher.add(bits(share));
    hasher.add(bits(type.sustained.traffic));
  }
}

}  // namespace

// Links of one machine, by what they serve.
struct ClusterBuilder::MachineLinks {
  std::vector<LinkId> port_out, port_in;  // one a device, invalid where the fabric has no ports
  LinkId host_out, host_in;               // of a host that serves
  LinkId bus, socket_up, socket_down;     // up: from the first half of the devices to the second
  LinkId nic_out, nic_in;
};

LinkId ClusterBuilder::add_link(const MachineSpec& spec, std::string_view part, double bandwidth) {
  return cluster_.links_.push_back({fmt::format("{}/{}", spec.name, part), bandwidth});
}

// The same card behind a slower host is another type.
DeviceTypeId ClusterBuilder::add_type(const DeviceType& type, const std::string& source) {
  auto& types = cluster_.types_;
  auto known = std::find_if(types.begin(), types.end(), [&](const DeviceType& other) {
    return other.name == type.name && other.host_seconds == type.host_seconds;
  });
  if (known == types.end()) {
    types.push_back(type);
    known = types.end() - 1;
  }
  VALIDATE(*known == type, "{}: two different device types are named '{}'", source, type.name);
  return DeviceTypeId(static_cast<std::size_t>(known - types.begin()));
}

// Devices, types and links, machine by machine.
std::vector<ClusterBuilder::MachineLinks> ClusterBuilder::add_links(const std::string& source) {
  Cluster& c = cluster_;
  std::vector<MachineLinks> links(specs_.size());
  for (std::size_t m = 0; m < specs_.size(); ++m) {
    const MachineSpec& spec = specs_[m];
    MachineLinks& own = links[m];
    const MachineId machine = c.machines_.push_back(
        {spec.name, spec.host_memory_bytes, {}, {}, spec.nic.transfer_multiprocessors});
    const bool fabric = members(spec) > 1;
    const bool ports = fabric && spec.fabric.kind != FabricSpec::Kind::kBus;
    for (std::size_t d = 0; d < spec.devices.size(); ++d) {
      DeviceType type = spec.devices[d];
      type.host_seconds = spec.host_seconds;
      const std::string name = fmt::format("gpu{}", d);
      const DeviceId id = c.devices_.push_back(
          {fmt::format("{}/{}", spec.name, name), machine, add_type(type, source),
           spec.device_memory_bytes.empty() ? type.memory_bytes : spec.device_memory_bytes[d],
           spec.device_overhead_seconds_per_byte.empty()
               ? 0
               : spec.device_overhead_seconds_per_byte[d]});
      c.machines_[machine].devices.push_back(id);
      const double bandwidth = spec.fabric.port_bytes_per_second;
      own.port_out.push_back(ports ? add_link(spec, name + ".out", bandwidth) : LinkId());
      own.port_in.push_back(ports ? add_link(spec, name + ".in", bandwidth) : LinkId());
    }
    if (fabric && spec.fabric.kind == FabricSpec::Kind::kBus) {
      own.bus = add_link(spec, "bus", spec.fabric.port_bytes_per_second);
    }
    if (fabric && spec.fabric.kind == FabricSpec::Kind::kSockets) {
      own.socket_up = add_link(spec, "socket.up", spec.fabric.socket_bytes_per_second);
      own.socket_down = add_link(spec, "socket.down", spec.fabric.socket_bytes_per_second);
    }
    if (specs_.size() > 1) {
      own.nic_out = add_link(spec, "nic.out", spec.nic.bytes_per_second);
      own.nic_in = add_link(spec, "nic.in", spec.nic.bytes_per_second);
    }
  }
  c.device_count_ = c.devices_.size();
  c.device_type_count_ = c.types_.size();
  add_hosts(links, source);
  return links;
}

// Behind all devices, types and links, whose numbers so stay as they are without hosts.
void ClusterBuilder::add_hosts(std::vector<MachineLinks>& links, const std::string& source) {
  Cluster& c = cluster_;
  for (std::size_t m = 0; m < specs_.size(); ++m) {
    const MachineSpec& spec = specs_[m];
    if (!spec.server) continue;
    const MachineId machine(m);
    const DeviceId host =
        c.devices_.push_back({fmt::format("{}/host", spec.name), machine,
                              add_type(*spec.server, source), spec.host_memory_bytes});
    c.hosts_.push_back(host);
    c.machines_[machine].host = host;
    if (links[m].bus.valid()) continue;
    links[m].host_out = add_link(spec, "host.out", spec.fabric.port_bytes_per_second);
    links[m].host_in = add_link(spec, "host.in", spec.fabric.port_bytes_per_second);
  }
}

double least_of_given(double a, double b) { return a == 0 || (b > 0 && b < a) ? b : a; }

// Two devices have one set of connections, whose messages take turns. Clusters of more devices than
// this, of which every pair would be a link, have none: there each message has connections of its
// own.
constexpr std::size_t kMostConnectedPlaces = 256;

// Decision 7: inside a machine a transfer holds the fabric's links, between machines the two NICs,
// what of the fabrics lies before them, and where connections are capped, those of the two devices.
void ClusterBuilder::add_routes(const std::vector<MachineLinks>& links) {
  Cluster& c = cluster_;
  const std::size_t places = c.place_count();
  // Of a device inside its machine; devices are numbered machine by machine.
  const auto place = [&](DeviceId device) {
    return device.value() - c.machines_[c.devices_[device].machine].devices.front().value();
  };
  const auto port_out = [&](const MachineLinks& own, DeviceId from) {
    return c.is_host(from) ? own.host_out : own.port_out[place(from)];
  };
  const auto port_in = [&](const MachineLinks& own, DeviceId to) {
    return c.is_host(to) ? own.host_in : own.port_in[place(to)];
  };
  // At most five links a route; reserved, so that the spans taken below stay valid.
  c.routes_.resize(places * places);
  c.route_links_.reserve(places * places * 5);
  const double capped =
      network_.flow_cap_bytes_per_second * static_cast<double>(network_.flows);  // 0: they are not
  // What lies between a device and its NIC. A host has it in its own memory's reach.
  const auto add_feed = [&](std::size_t machine, DeviceId end, LinkId port) {
    if (!specs_[machine].fabric.feeds_nic || c.is_host(end)) return;
    const LinkId feed = links[machine].bus.valid() ? links[machine].bus : port;
    if (feed.valid()) c.route_links_.push_back(feed);
  };
  for (DeviceId from : c.place_ids()) {
    const std::size_t a = c.devices_[from].machine.value();
    for (DeviceId to : c.place_ids()) {
      if (from == to) continue;
      const std::size_t b = c.devices_[to].machine.value();
      Route& route = c.routes_[from.value() * places + to.value()];
      const std::size_t begin = c.route_links_.size();
      if (a != b) {
        const NicSpec &from_nic = specs_[a].nic, &to_nic = specs_[b].nic;
        add_feed(a, from, port_out(links[a], from));
        c.route_links_.push_back(links[a].nic_out);
        c.route_links_.push_back(links[b].nic_in);
        add_feed(b, to, port_in(links[b], to));
        if (capped > 0 && places <= kMostConnectedPlaces) {
          const std::string name =
              fmt::format("{} -> {}", c.devices_[from].name, c.devices_[to].name);
          c.route_links_.push_back(c.links_.push_back({name, capped}));
        }
        route.launch = to_nanoseconds(std::max(from_nic.launch_seconds, to_nic.launch_seconds));
        route.latency =
            route.launch + to_nanoseconds(from_nic.latency_seconds + network_.latency_seconds +
                                          to_nic.latency_seconds);
        route.cap_bytes_per_second = network_.flow_cap_bytes_per_second;
        route.flows = network_.flows;
        route.device_bytes_per_second =
            least_of_given(from_nic.device_bytes_per_second, to_nic.device_bytes_per_second);
        route.server_latency = route.latency;
        if (network_.servers) {
          route.server_bytes_per_second = network_.servers->bytes_per_second;
          route.server_latency =
              to_nanoseconds(network_.servers->launch_seconds) +
              to_nanoseconds(2 * network_.servers->latency_seconds + network_.latency_seconds);
        }
      } else {
        const MachineLinks& own = links[a];
        // The first half holds the odd device.
        const std::size_t half = (specs_[a].devices.size() + 1) / 2;
        // Each socket has memory of the host's.
        const bool of_host = c.is_host(from) || c.is_host(to);
        if (own.bus.valid()) {
          c.route_links_.push_back(own.bus);
        } else {
          c.route_links_.push_back(port_out(own, from));
          if (own.socket_up.valid() && !of_host && (place(from) < half) != (place(to) < half)) {
            c.route_links_.push_back(place(from) < half ? own.socket_up : own.socket_down);
          }
          c.route_links_.push_back(port_in(own, to));
        }
        route.launch = to_nanoseconds(specs_[a].fabric.launch_seconds);
        route.latency = route.launch + to_nanoseconds(specs_[a].fabric.latency_seconds);
        route.server_latency = route.latency;
      }
      route.links = {c.route_links_.data() + begin, c.route_links_.size() - begin};
    }
  }
}

std::uint64_t ClusterBuilder::hash() const {
  const Cluster& c = cluster_;
  Hasher hasher;
  for (const DeviceType& type : c.types_) hash_type(hasher, type);
  for (const Device& device : c.devices_) {
    hasher.add(device.name);
    hasher.add(device.machine.value());
    hasher.add(device.type.value());
    hasher.add(static_cast<std::uint64_t>(device.memory_bytes));
    if (device.overhead_seconds_per_byte > 0) hasher.add(bits(device.overhead_seconds_per_byte));
  }
  for (const Machine& machine : c.machines_) {
    hasher.add(machine.name);
    hasher.add(static_cast<std::uint64_t>(machine.host_memory_bytes));
    hasher.add(machine.host.valid() ? 1 : 0);
    if (machine.transfer_multiprocessors > 0) {
      hasher.add(static_cast<std::uint64_t>(machine.transfer_multiprocessors));
    }
  }
  for (const Link& link : c.links_) {
    hasher.add(link.name);
    hasher.add(bits(link.bytes_per_second));
  }
  for (const Route& route : c.routes_) {
    hasher.add(static_cast<std::uint64_t>(route.latency));
    hasher.add(static_cast<std::uint64_t>(route.launch));
    hasher.add(bits(route.cap_bytes_per_second));
    if (route.flows > 1) hasher.add(static_cast<std::uint64_t>(route.flows));
    if (route.device_bytes_per_second > 0) hasher.add(bits(route.device_bytes_per_second));
    if (route.server_bytes_per_second > 0) {
      hasher.add(bits(route.server_bytes_per_second));
      hasher.add(static_cast<std::uint64_t>(route.server_latency));
    }
    for (LinkId link : route.links) hasher.add(link.value());
  }
  return hasher.value();
}

std::vector<DeviceId> possible_servers(const Cluster& cluster, std::span<const DeviceId> replicas) {
  const std::span<const DeviceId> servers =
      cluster.host_ids().empty() ? replicas : cluster.host_ids();
  return {servers.begin(), servers.end()};
}

Cluster ClusterBuilder::build(const std::string& source) && {
  VALIDATE(!specs_.empty(), "{}: machines is empty; a cluster needs at least one machine", source);
  VALIDATE(finite_at_least(network_.latency_seconds, 0) &&
               finite_at_least(network_.flow_cap_bytes_per_second, 0),
           "{}: a figure of network is negative or not finite; they must be 0 or more", source);
  VALIDATE(network_.flows >= 1 && network_.flows <= kMostFlows,
           "{}: network.flows: {} given; it is a number of connections, from 1 to {}", source,
           network_.flows, kMostFlows);
  VALIDATE(
      !network_.servers || (finite_positive(network_.servers->bytes_per_second) &&
                            finite_at_least(network_.servers->latency_seconds, 0) &&
                            finite_at_least(network_.servers->launch_seconds, 0)),
      "{}: network.parameter_servers needs a positive bandwidth_bytes_per_second, and a latency "
      "and launch of 0 or more",
      source);
  cluster_.flows_ = network_.flows;
  std::set<std::string> names;
  std::size_t devices = 0;
  for (const MachineSpec& spec : specs_) {
    check_machine(spec, source, specs_.size());
    VALIDATE(names.insert(spec.name).second, "{}: two machines are named '{}'; names must differ",
             source, printable(spec.name));
    devices += members(spec);
  }
  VALIDATE(devices <= kMaxDevices,
           "{}: the cluster has {} devices (and hosts that serve parameters); at most {} are "
           "supported",
           source, devices, kMaxDevices);

  const std::vector<MachineLinks> links = add_links(source);
  add_routes(links);
  cluster_.hash_ = hash();
  return std::move(cluster_);
}

}  // namespace heterog::cluster
