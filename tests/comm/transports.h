// The transports of processes that this build has.
#pragma once

#include <string>
#include <vector>

#include "comm/c10d_transport.h"
#include "comm/ranks.h"

namespace heterog::comm {

struct ProcessKind {
  std::string name;
  MakeTransport make;
};

// TCP, and every backend that this build has.
inline std::vector<ProcessKind> process_kinds() {
  std::vector<ProcessKind> kinds{{"tcp", make_tcp}, {"tcp_in_flows", make_tcp_in_flows}};
  for (const BackendKind& backend : c10d_backends()) {
    kinds.push_back({backend.name, [&backend](const Store& store, DeviceId own,
                                              ConnectOptions connect, DeviceSets sets) {
                       return std::make_unique<C10dTransport>(
                           backend, store, own,
                           C10dOptions{.connect = std::move(connect), .sets = std::move(sets)});
                     }});
  }
  return kinds;
}

}  // namespace heterog::comm
