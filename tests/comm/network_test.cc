// Sockets of this host, and its addresses.
#include "comm/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"

namespace heterog::comm {
namespace {

using testing::HasSubstr;

TEST(Network, ListensOnOneAddress) {
  const ListeningSocket socket = listen_on("127.0.0.1", 0);
  EXPECT_GT(socket.port, 0);
  const auto refused = [](const std::string& host, std::uint16_t port) {
    try {
      close(listen_on(host, port).descriptor);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("listens");
  };
  EXPECT_THAT(refused("127.0.0.1", socket.port), HasSubstr("in use"));
  EXPECT_EQ(refused("127.0.0.2", socket.port), "listens") << "the same port of another address";
  EXPECT_THAT(refused("192.0.2.1", 0), HasSubstr("not an address of this host"));
  EXPECT_THAT(refused("no such host", 0), HasSubstr("no such host"));
  close(socket.descriptor);
}

TEST(Network, FindsTheOwnAddress) {
  EXPECT_EQ(address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  EXPECT_THROW(address_of_interface("none0"), Error);
}

}  // namespace
}  // namespace heterog::comm
