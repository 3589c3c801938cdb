// One of two ranks that move bytes by a transport and nothing else, for
// scripts/measure/transports.py.
//
//     transport_rank RANK PORT TRANSPORT
//
// Rank 0 listens on 127.0.0.1:PORT and prints a JSON object: all-reduces a second of 4 KiB, and
// bytes a second of all-reduces of 64 MiB and of messages of 64 MiB; medians.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/median.h"
#include "base/stopwatch.h"
#include "comm/c10d_transport.h"
#include "comm/network.h"
#include "comm/tcp_transport.h"

namespace heterog::comm {
namespace {

constexpr std::int64_t kSmall = std::int64_t{4} << 10;   // bytes
constexpr std::int64_t kLarge = std::int64_t{64} << 20;  // bytes

std::unique_ptr<ProcessTransport> connect(const std::string& name, const Store& store,
                                          DeviceId own) {
  const ConnectOptions options{.device_names = {"bench/cpu0", "bench/cpu1"}};
  const DeviceSets sets{{DeviceId(0), DeviceId(1)}};
  for (const BackendKind& kind : c10d_backends()) {
    if (name != kind.name) continue;
    return std::make_unique<C10dTransport>(kind, store, own,
                                           C10dOptions{.connect = options, .sets = sets});
  }
  return std::make_unique<TcpTransport>(store, own, TcpOptions{.connect = options, .sets = sets});
}

// Of one of `count` calls, after as many that are not counted; the median of five rounds.
double seconds_of_one(int count, const std::function<void()>& call) {
  for (int i = 0; i < count; ++i) call();
  std::vector<double> rounds;
  for (int round = 0; round < 5; ++round) {
    const Stopwatch watch;
    for (int i = 0; i < count; ++i) call();
    rounds.push_back(watch.seconds() / count);
  }
  return median(rounds);
}

void measure(ProcessTransport& transport, DeviceId own) {
  at::Tensor small = at::zeros({kSmall / 4});
  at::Tensor large = at::zeros({kLarge / 4});
  const DeviceId peer(1 - own.value());
  const double reduce_small = seconds_of_one(500, [&] { transport.all_reduce(small, 0); });
  const double reduce_large = seconds_of_one(5, [&] { transport.all_reduce(large, 0); });
  // There and back, so that both ends know when it has come.
  const double message = seconds_of_one(5, [&] {
    if (own == DeviceId(0)) transport.send(large, peer, 1);
    transport.receive(large, peer, 1);
    if (own != DeviceId(0)) transport.send(large, peer, 1);
  });
  if (own != DeviceId(0)) return;
  fmt::print(
      "{{\"small_all_reduces_per_second\": {:.1f}, \"all_reduce_bytes_per_second\": {:.0f}, "
      "\"message_bytes_per_second\": {:.0f}}}\n",
      1 / reduce_small, static_cast<double>(kLarge) / reduce_large,
      2 * static_cast<double>(kLarge) / message);
}

void run(int rank, std::uint16_t port, const std::string& name) {
  StoreAddress address{.host = "127.0.0.1", .port = port, .server = "rank 0 (bench/cpu0)"};
  const Store store = rank == 0 ? serve_store(address, listen_on("127.0.0.1", port).descriptor)
                                : connect_store(address);
  const DeviceId own(static_cast<std::size_t>(rank));
  const auto transport = connect(name, store, own);
  transport->run_until_finished([&] { measure(*transport, own); });
}

}  // namespace
}  // namespace heterog::comm

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: transport_rank RANK PORT TRANSPORT\n");
    return 2;
  }
  at::set_num_threads(1);
  heterog::comm::run(std::atoi(argv[1]), static_cast<std::uint16_t>(std::atoi(argv[2])), argv[3]);
  return 0;
}
