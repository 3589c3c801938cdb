// The machines that a plan runs on: devices, links, and the routes between them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/csr.h"
#include "base/ids.h"
#include "base/units.h"
#include "cluster/calibration.h"

namespace heterog {

using DeviceId = Id<struct DeviceTag>;
using DeviceTypeId = Id<struct DeviceTypeTag>;
using MachineId = Id<struct MachineTag>;
using LinkId = Id<struct LinkTag>;

namespace cluster {

// Classes of operator that reach different shares of a device's peak.
enum class OpClass : std::uint8_t {
  kMatMul,
  kConvolution,
  kConvolution3x3,  // fp32 3×3 kernels at stride 1: libraries save multiplications (Winograd)
  kDepthwiseConvolution,
  kElementwise,
  kReduction,
  kNormalization,
  kSoftmax,
  kPooling,
  kEmbedding,
  kCopy,
  kOptimizer
};
inline constexpr int kOpClassCount = 12;
std::string_view op_class_name(OpClass op_class);  // "matmul"

// A kind of device, from configs/devices.json.
struct DeviceType {
  std::string name;  // "V100-PCIE-16GB"
  Bytes memory_bytes = 0;
  Bytes reserve_bytes = 0;  // context, allocator: never available to tensors
  double fp32_flops_per_second = 0;
  // fp32 products and convolutions that the graph lets be TF32 run at this where it is not 0.
  double tf32_flops_per_second = 0;
  double half_flops_per_second = 0;  // fp16 and, where the next is absent, bf16 products
  // bf16 products of cards whose tensor cores do not know it: by the units of single precision (0:
  // libraries refuse them).
  std::optional<double> bf16_flops_per_second;
  double fp64_flops_per_second = 0;
  double memory_bytes_per_second = 0;
  double launch_seconds = 0;  // the least time that any operator takes
  Bytes cache_bytes = 0;      // the last level on the chip (L2), 0: too small to keep activations
  // The time that the host of the device's machine needs to start an operator: a step takes at
  // least that for each (0: nothing).
  double host_seconds = 0;
  // Share of the peak (of arithmetic for kMatMul and the convolutions, of bandwidth for the rest)
  // that large operators of the class reach.
  double efficiency[kOpClassCount] = {};
  // Work, in FLOP, at which a matrix product or convolution reaches half of that share (0: none).
  double half_efficiency_flop = 0;
  int multiprocessors = 1;  // that work on tiles of a product at the same time
  // How many times as long it computes while it takes part in a collective, which runs on some of
  // its multiprocessors and takes some of its bandwidth.
  double collective_slowdown = 1;
  // Relative standard deviation of what devices of the type take for the same computation: they are
  // not all equally fast, nor is one always.
  double step_deviation = 0;
  std::optional<Calibration> calibration;  // none: costed by the shares above
  Sustained sustained;                     // with a calibration

  friend bool operator==(const DeviceType&, const DeviceType&) = default;
};

// A device, or a host that serves parameters: what a plan runs something on.
struct Device {
  std::string name;  // "v100-0/gpu1", "v100-0/host"
  MachineId machine;
  DeviceTypeId type;
  Bytes memory_bytes = 0;  // of the type unless the cluster file says otherwise; all of a host's
  // The time of its compute stream for each byte that it sends or receives: the G of an overhead in
  // LogGP (Alexandrov et al. 1995). A CPU moves bytes itself; a GPU has others for that (0).
  double overhead_seconds_per_byte = 0;
};

struct Machine {
  std::string name;
  Bytes host_memory_bytes = 0;
  std::vector<DeviceId> devices;
  DeviceId host;                     // where it serves parameters; else invalid
  int transfer_multiprocessors = 0;  // as of its NicSpec
};

// One direction of a physical link; carries one tensor at a time (decision 7).
struct Link {
  std::string name;  // "v100-0/nic.out", "v100-0/gpu1.in"
  double bytes_per_second = 0;
};

// A message or collective of more than so many bytes between machines goes over all flows of the
// network side by side, each with an equal part.
inline constexpr Bytes kFlowBytes = Bytes{1} << 20;
inline constexpr std::int64_t kMostFlows = 16;

// The links that a transfer holds, in order; latency of the whole path.
struct Route {
  std::span<const LinkId> links;
  Nanoseconds latency = 0;  // of a transfer: `launch` and the hops
  Nanoseconds launch = 0;   // of it, what a collective of many steps pays only once
  // The cap of one flow (0: none); it lengthens the flow and holds no wire longer. The last of the
  // links is then the connection of the two devices. The second is what one device's traffic gets:
  // a collective over several of each machine gets that of all of them.
  double cap_bytes_per_second = 0;
  double device_bytes_per_second = 0;
  std::int64_t flows = 1;
  // The rate of pushes and pulls of parameter servers, where their software is slower than the
  // links (0: it is not). It keeps the links busy for as long.
  double server_bytes_per_second = 0;
  Nanoseconds server_latency = 0;  // of a push or pull, in place of `latency`
};

// Immutable. Devices are numbered in file order, hosts that serve parameters behind them; links are
// derived.
//
//   device_ids()   devices: they compute on samples, and are what strategies choose among
//   host_ids()     hosts that serve parameters: they add up gradients and update, and nothing else
//   place_ids()    both: what a plan may name, has memory of, and runs a rank on
class Cluster {
 public:
  const std::string& name() const { return name_; }
  std::size_t device_count() const { return device_count_; }
  std::size_t place_count() const { return devices_.size(); }
  std::size_t machine_count() const { return machines_.size(); }
  std::size_t link_count() const { return links_.size(); }
  // Not a wire: what a cloud lets through between two devices, over all their flows (decision 7).
  bool is_connection(LinkId link) const { return link.value() >= wire_count_; }
  IdRange<DeviceId> device_ids() const { return id_range<DeviceId>(device_count()); }
  std::span<const DeviceId> host_ids() const { return hosts_; }
  IdRange<DeviceId> place_ids() const { return id_range<DeviceId>(place_count()); }
  bool is_host(DeviceId id) const { return id.value() >= device_count(); }
  const Device& device(DeviceId id) const { return devices_[id]; }
  const DeviceType& type(DeviceTypeId id) const { return types_[id]; }
  const DeviceType& type_of(DeviceId id) const { return types_[devices_[id].type]; }
  // Only the types in use: those of devices, and behind them those that hosts alone have.
  std::size_t type_count() const { return device_type_count_; }
  std::size_t place_type_count() const { return types_.size(); }
  const Machine& machine(MachineId id) const { return machines_[id]; }
  const Link& link(LinkId id) const { return links_[id]; }
  // Connections side by side between machines.
  std::int64_t flows() const { return flows_; }
  // source ≠ destination.
  const Route& route(DeviceId source, DeviceId destination) const {
    return routes_[source.value() * place_count() + destination.value()];
  }
  bool same_machine(DeviceId a, DeviceId b) const {
    return devices_[a].machine == devices_[b].machine;
  }
  std::uint64_t hash() const { return hash_; }

 private:
  friend class ClusterBuilder;
  friend Cluster with_scaled_links(const Cluster&, const IdVector<LinkId, double>&);
  Cluster(const Cluster&) = default;  // its routes_ point into the original

  std::string name_;
  IdVector<DeviceTypeId, DeviceType> types_;
  IdVector<DeviceId, Device> devices_;  // and hosts
  std::vector<DeviceId> hosts_;
  IdVector<MachineId, Machine> machines_;
  IdVector<LinkId, Link> links_;  // wires, then connections
  std::size_t wire_count_ = 0;
  std::size_t device_count_ = 0;
  std::size_t device_type_count_ = 0;
  std::int64_t flows_ = 1;
  std::vector<Route> routes_;        // place_count², row = source
  std::vector<LinkId> route_links_;  // storage behind routes_
  std::uint64_t hash_ = 0;

 public:  // routes_ point into route_links_: movable, not copyable
  Cluster() = default;
  Cluster(Cluster&&) = default;
  Cluster& operator=(Cluster&&) = default;
  Cluster& operator=(const Cluster&) = delete;
};

// Where a parameter of these replicas may have its server (decision 5): on the hosts that serve
// parameters, if there are any; else on one of the replicas.
std::vector<DeviceId> possible_servers(const Cluster& cluster, std::span<const DeviceId> replicas);

// The same machines, some links of `factor` times the bandwidth. Keeps the hash: it is for asking
// what would be, not for plans.
Cluster with_faster_links(const Cluster& cluster, std::span<const LinkId> links, double factor);
// The same, each link of its own factor.
Cluster with_scaled_links(const Cluster& cluster, const IdVector<LinkId, double>& factors);

// How the devices of one machine reach each other.
struct FabricSpec {
  enum class Kind : std::uint8_t {
    kSwitch,   // every device has a full-duplex port to a switch (PCIe switch, NVSwitch, NVLink)
    kBus,      // one link that every transfer inside the machine holds, whatever its direction
    kSockets,  // ports, and one full-duplex link between the two halves of the devices
  };
  Kind kind = Kind::kSwitch;
  double port_bytes_per_second = 0;    // of the bus for kBus; may be 0 where nobody else is inside
  double socket_bytes_per_second = 0;  // kSockets only
  double latency_seconds = 0;
  double launch_seconds = 0;  // to start a transfer or a collective, whatever its steps
  bool feeds_nic = false;     // what goes to other machines holds the ports (the bus) as well
};

struct NicSpec {
  double bytes_per_second = 0;  // each direction
  double latency_seconds = 0;   // half of a hop: a transfer pays the sender's and the receiver's
  double launch_seconds = 0;    // as of a fabric; the longer of the two cards' counts
  double device_bytes_per_second = 0;  // of what one device sends or receives over it (0: any)
  // Multiprocessors that a transfer over it takes of the GPU at its end while it lasts, as kernels
  // move it (NCCL); 0: a copy engine or the host does.
  int transfer_multiprocessors = 0;
};

struct MachineSpec {
  std::string name;
  Bytes host_memory_bytes = 0;
  // Its host serves parameters, at the rates of this type and with the memory above. It has a port
  // of the fabric as a device has, and the network card beside it.
  std::optional<DeviceType> server;
  double host_seconds = 0;  // to start an operator; goes into the types of its devices
  std::vector<DeviceType> devices;
  std::vector<Bytes> device_memory_bytes;  // parallel to devices; empty: as the types say
  std::vector<double> device_overhead_seconds_per_byte;  // parallel to devices; empty: 0
  FabricSpec fabric;
  NicSpec nic;  // bytes_per_second 0: no NIC (only where there is one machine)
};

// The transport of the pushes and pulls of parameter servers between machines.
struct ServerTransportSpec {
  double bytes_per_second = 0;
  double latency_seconds = 0;  // half of a hop, as of a NIC
  double launch_seconds = 0;
};

struct NetworkSpec {
  double latency_seconds = 0;  // of the switch
  double flow_cap_bytes_per_second = 0;
  std::optional<ServerTransportSpec> servers;  // none: as all other transfers
  std::int64_t flows = 1;                      // connections side by side, to kMostFlows
};

// The rate to which a cloud holds a message of so many bytes over all its flows (0: to none).
inline double flow_cap(const Route& route, Bytes bytes) {
  const std::int64_t flows = bytes > kFlowBytes ? route.flows : 1;
  return route.cap_bytes_per_second * static_cast<double>(flows);
}

// More devices and hosts that serve than this are refused: routes are stored for every pair.
inline constexpr std::size_t kMaxDevices = 1024;

// Builds links and routes. Throws an input error (prefixed by `source`) on an empty cluster,
// duplicate names, non-positive figures, machines that cannot reach each other.
class ClusterBuilder {
 public:
  explicit ClusterBuilder(std::string name) { cluster_.name_ = std::move(name); }
  void add_machine(MachineSpec spec) { specs_.push_back(std::move(spec)); }
  void set_network(NetworkSpec network) { network_ = network; }
  Cluster build(const std::string& source) &&;

 private:
  struct MachineLinks;
  std::vector<MachineLinks> add_links(const std::string& source);
  DeviceTypeId add_type(const DeviceType& type, const std::string& source);
  void add_hosts(std::vector<MachineLinks>& links, const std::string& source);
  LinkId add_link(const MachineSpec& spec, std::string_view part, double bandwidth);
  void add_routes(const std::vector<MachineLinks>& links);
  std::uint64_t hash() const;

  Cluster cluster_;
  std::vector<MachineSpec> specs_;
  NetworkSpec network_;
};

}  // namespace cluster
}  // namespace heterog
