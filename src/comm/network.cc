// Looks addresses up and opens sockets.
#include "comm/network.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/text.h"

namespace heterog::comm {

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses look_up(const std::string& host, int type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  VALIDATE(error == 0, "{}: no such host ({})", printable(host), gai_strerror(error));
  return {found, &freeaddrinfo};
}

std::string text_of(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = {};
  const int error = getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  VALIDATE(error == 0, "an address of this host cannot be written ({})", gai_strerror(error));
  return text;
}

void set_port(sockaddr* address, std::uint16_t port) {
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  }
}

std::uint16_t port_of(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace

ListeningSocket listen_on(const std::string& host, std::uint16_t port) {
  constexpr int kBacklog = 1024;
  const Addresses addresses = look_up(host, SOCK_STREAM);
  int error = 0;
  for (addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    const int descriptor = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) {
      error = errno;
      continue;
    }
    const int yes = 1;
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    set_port(one->ai_addr, port);
    if (bind(descriptor, one->ai_addr, one->ai_addrlen) == 0 && listen(descriptor, kBacklog) == 0) {
      return {.descriptor = descriptor, .port = port_of(descriptor)};
    }
    error = errno;
    close(descriptor);
  }
  VALIDATE(error != EADDRNOTAVAIL,
           "{}: not an address of this host, which runs rank 0; the ranks meet at an address of "
           "rank 0's host",
           printable(host));
  VALIDATE(error != EADDRINUSE, "port {} of {}: in use; choose another for the ranks to meet at",
           port, printable(host));
  fail_input("port {} of {}: cannot listen there ({})", port, printable(host),
             std::strerror(error));
}

std::string address_towards(const std::string& host) {
  const Addresses addresses = look_up(host, SOCK_DGRAM);
  for (addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    const int descriptor = socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) continue;
    set_port(one->ai_addr, 9);  // any: to connect a datagram socket only chooses a route
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    const bool found = connect(descriptor, one->ai_addr, one->ai_addrlen) == 0 &&
                       getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) == 0;
    close(descriptor);
    if (found) return text_of(reinterpret_cast<sockaddr*>(&own), size);
  }
  fail_input("{}: no route from this host", printable(host));
}

std::string address_of_interface(const std::string& name) {
  ifaddrs* found = nullptr;
  VALIDATE(getifaddrs(&found) == 0, "the network interfaces of this host cannot be read ({})",
           std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> interfaces(found, &freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      if (name != one->ifa_name) continue;
      return text_of(one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    }
  }
  fail_input("GLOO_SOCKET_IFNAME: this host has no interface \"{}\" with an address",
             printable(name));
}

}  // namespace heterog::comm
