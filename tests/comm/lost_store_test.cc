// A store that no longer answers: nobody waits for it for ever, and no thread stays behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <future>

#include "comm/bounded_calls.h"
#include "comm/job_watch.h"
#include "comm/network.h"
#include "comm/ranks.h"

namespace heterog::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using Clock = BoundedCalls::Clock;

const Clock::time_point kNever = Clock::time_point::max();

// Between a store and those that reach it: passes bytes on, until it is frozen. Nothing closes.
class Gate {
 public:
  explicit Gate(std::uint16_t store_port) : store_port_(store_port), thread_([this] { pass(); }) {}
  ~Gate() {
    ends_ = true;
    thread_.join();
    close(socket_.descriptor);
  }
  std::uint16_t port() const { return socket_.port; }
  void freeze() {
    frozen_ = true;
    while (!seen_frozen_) std::this_thread::yield();
  }

 private:
  void pass() {
    std::vector<std::pair<Descriptor, Descriptor>> lines;  // from a caller, to the store
    while (!ends_) {
      seen_frozen_ = frozen_.load();
      if (frozen_) {
        std::this_thread::yield();
        continue;
      }
      std::vector<pollfd> waits{{.fd = socket_.descriptor, .events = POLLIN, .revents = 0}};
      for (const auto& [from, to] : lines) {
        waits.push_back({.fd = from.get(), .events = POLLIN, .revents = 0});
        waits.push_back({.fd = to.get(), .events = POLLIN, .revents = 0});
      }
      poll(waits.data(), waits.size(), 5);
      for (std::size_t i = 0; i < lines.size(); ++i) {
        if (waits[1 + 2 * i].revents != 0) pass_on(lines[i].first, lines[i].second);
        if (waits[2 + 2 * i].revents != 0) pass_on(lines[i].second, lines[i].first);
      }
      if (waits[0].revents == 0) continue;
      Descriptor from(accept(socket_.descriptor, nullptr, nullptr));
      Descriptor to(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(store_port_), .sin_addr = {}};
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      connect(to.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
      lines.emplace_back(std::move(from), std::move(to));
    }
  }
  static void pass_on(const Descriptor& from, const Descriptor& to) {
    char bytes[4096];
    const ssize_t count = recv(from.get(), bytes, sizeof bytes, 0);
    if (count > 0) send(to.get(), bytes, static_cast<std::size_t>(count), MSG_NOSIGNAL);
  }

  const std::uint16_t store_port_;
  const ListeningSocket socket_ = listen_on("127.0.0.1", 0);
  std::atomic<bool> frozen_ = false;
  std::atomic<bool> seen_frozen_ = false;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

class LostStore : public testing::Test {
 protected:
  LostStore()
      : socket_(listen_on("127.0.0.1", 0)),
        served_(serve_store({.host = "127.0.0.1", .port = socket_.port, .server = "rank 0"},
                            socket_.descriptor)),
        gate_(socket_.port) {}

  Store connect(std::chrono::milliseconds timeout) const {
    return connect_store(
        {.host = "127.0.0.1", .port = gate_.port(), .server = "rank 0", .timeout = timeout});
  }
  static std::string failure(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kVerification);
      return error.what();
    }
    return "";
  }

  const ListeningSocket socket_;
  const Store served_;
  Gate gate_;
};

TEST_F(LostStore, EndsEveryCallWithinTheTimeout) {
  const Store store = connect(kPatient);
  store.set("key", "value");
  EXPECT_EQ(store.find("key"), "value");
  const Store hasty = store.another_connection().until(Clock::now());
  gate_.freeze();
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { hasty.find("key"); }, [&] { hasty.set("key", "other"); },
           [&] { hasty.add("number", 1); }, [&] { hasty.set_first("key", "other"); },
           [&] { hasty.another_connection(); }, [&] { connect(kHasty); }}) {
    EXPECT_THAT(failure(call), StartsWith("rank 0: "));
  }
}

// The watching thread hangs in a call; what it would tell is gone once the destructor returns.
TEST_F(LostStore, LeavesNoThreadOfAWatchBehind) {
  const Store store = connect(kPatient);
  for (int round = 0; round < 2; ++round) {
    auto told = std::make_unique<std::string>();
    {
      JobWatch watch(store.another_connection().under("job"),
                     [&told](const std::string& why) { *told += why; });
      if (round == 1) {
        gate_.freeze();
        EXPECT_EQ(watch.end("rank 1: fails"), "rank 1: fails") << "the store says nothing";
      }
    }
    EXPECT_EQ(*told, round == 1 ? "rank 1: fails" : "") << "once";
    told.reset();  // a thread that comes to it now is seen by the sanitizers
  }
}

TEST_F(LostStore, EndsLeaving) {
  const Store store = connect(kPatient);
  std::promise<std::string> told;
  JobWatch watch(store.another_connection().under("job").until(Clock::now() + kHasty),
                 [&told](const std::string& why) { told.set_value(why); });
  gate_.freeze();
  watch.leave_together({.rank = 1, .ranks = 2, .timeout = kHasty});
  EXPECT_THAT(told.get_future().get(), AllOf(StartsWith("rank 0: lost"), HasSubstr("no answer")));
}

}  // namespace
}  // namespace heterog::comm
