// Listening sockets of this host, and the address by which others reach it.
#pragma once

#include <cstdint>
#include <string>

namespace heterog::comm {

// A socket that listens on the address of `host` alone; port 0: any free one. An input error that
// says what to change if it cannot. The caller closes it.
struct ListeningSocket {
  int descriptor = -1;
  std::uint16_t port = 0;
};
ListeningSocket listen_on(const std::string& host, std::uint16_t port);

// This host's address on the way to `host` (host's own, if it is this one). Sends nothing.
std::string address_towards(const std::string& host);
// The first address of a network interface, "eth0".
std::string address_of_interface(const std::string& name);

}  // namespace heterog::comm
