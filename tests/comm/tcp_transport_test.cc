// What TCP has of its own: headers of messages, and strangers at the door. The rest is in
// transport_test.cc, as for every transport.
#include "comm/tcp_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "comm/rank_transport.h"
#include "comm/ranks.h"

namespace heterog::comm {
namespace {

using testing::Each;
using testing::IsEmpty;
using testing::StartsWith;

// What does not fit to what is due is not taken for it.
TEST(TcpTransport, NamesTheMessageThatIsNotDue) {
  for (const std::int64_t count : {4, 5}) {
    const auto errors = run_ranks(2, {}, [&](ProcessTransport& transport, std::size_t rank) {
      at::Tensor value = at::zeros({rank == 0 ? 4 : count});
      if (rank == 0) transport.send(value, DeviceId(1), 7);
      transport.receive(value, DeviceId(1 - rank), count == 4 ? 8 : 7);
    });
    EXPECT_THAT(errors, Each(StartsWith("rank 0 (host/cpu0): sent 16 bytes of 7 where ")));
  }
}

// Nobody else deals a message over several connections.
TEST(RankTransport, RefusesFlowsOfWhatHasOneConnection) {
  for (const std::string& name : transport_names()) {
    if (name == "tcp") continue;
    RankTransport::Options options{.own = DeviceId(0), .transport = name};
    options.connect.device_names = device_names(1);
    try {
      RankTransport(make_local_store(), {.flows = 4}, options);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_THAT(error.what(), StartsWith("network.flows: the cluster has 4, and " + name));
    }
  }
}

// Connections to where rank 0 accepts the others, each of which has said these words.
std::vector<Descriptor> strangers(const Store& store, const std::vector<std::string>& words) {
  std::optional<std::string> place;
  while (!place) place = store.under("connections").find("listens/0");
  const auto port = static_cast<std::uint16_t>(std::stoi(place->substr(place->find(' ') + 1)));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<Descriptor> lines;
  for (const std::string& text : words) {
    const Descriptor& line = lines.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(line.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(send(line.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  return lines;
}

// Whether the other end has closed it.
bool is_closed(const Descriptor& line) {
  char byte = 0;
  return recv(line.get(), &byte, 1, MSG_DONTWAIT) == 0 || (errno != EAGAIN && errno != EINTR);
}

// Two ranks that meet once rank 1 has seen what it waits for.
void meet_after(const std::function<void(const Store&)>& before) {
  const Store store = make_local_store();
  const auto errors = run_threads(2, [&](int rank) {
    if (rank == 1) before(store);
    TcpTransport transport(
        store, DeviceId(static_cast<std::size_t>(rank)),
        {.connect = {.device_names = device_names(2), .timeout = kPatient}, .sets = {everyone(2)}});
    at::Tensor value = at::ones({3});
    transport.all_reduce(value, 0);
    EXPECT_EQ(value.sum().item<double>(), 6);
    transport.finish();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Somebody who looks for open ports.
TEST(TcpTransport, IgnoresStrangers) {
  meet_after([](const Store& store) {
    strangers(store, {"", "GET / HTTP/1.1\r\n\r\n", "123456781234"});  // and they go
  });
  // More than are listened to at once, which stay.
  std::vector<Descriptor> lines;
  meet_after([&](const Store& store) {
    lines = strangers(store, std::vector<std::string>(400, "12345678"));
  });
}

// Who comes last and is sent away is so while the silent ones before it still have all their time.
TEST(TcpTransport, SilentStrangersHoldNobodyUp) {
  bool held_up = true;
  for (int attempt = 0; attempt < 2 && held_up; ++attempt) {  // should this thread have slept
    std::vector<Descriptor> lines;
    meet_after([&](const Store& store) {
      std::vector<std::string> words(20);
      words.push_back("sixteen letters.");  // as many as the first words of a rank
      lines = strangers(store, words);
      while (!is_closed(lines.back())) std::this_thread::yield();
      held_up = std::any_of(lines.begin(), lines.end() - 1, is_closed);
    });
  }
  EXPECT_FALSE(held_up);
}

}  // namespace
}  // namespace heterog::comm
