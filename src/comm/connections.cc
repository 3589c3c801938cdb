// Each rank says in the store where it listens; the higher of two ranks calls the lower.
#include "comm/connections.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <random>
#include <sstream>
#include <thread>

#include "base/check.h"
#include "base/text.h"
#include "comm/network.h"

namespace heterog::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{5};          // between looks at the store
constexpr milliseconds kPatience{5000};   // for the first words of who has connected
constexpr std::size_t kMostGuests = 256;  // that have not said them

// Where a rank listens.
struct Place {
  std::string address;
  std::uint16_t port = 0;
  std::uint64_t secret = 0;  // whoever connects must say it
};

// For poll(), which wakes no earlier.
int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max()));
}

// The first words of whoever connects.
struct Hello {
  std::uint64_t secret = 0;
  std::uint32_t rank = 0;
  std::uint32_t line = 0;  // of the rank's lines to this one
};

std::string text_of(const Place& place) {
  return fmt::format("{} {} {}", place.address, place.port, place.secret);
}

Place parse_place(const std::string& text) {
  Place place;
  std::istringstream(text) >> place.address >> place.port >> place.secret;
  return place;
}

class Connecting {
 public:
  Connecting(const Store& store, DeviceId own, const ConnectOptions& options)
      : own_(own),
        options_(options),
        deadline_(Clock::now() + options.timeout),
        store_(store.until(deadline_)),
        made_(options.device_names.size()) {
    for (const DeviceId rank : id_range<DeviceId>(made_.size())) {
      if (rank == own_) continue;
      for (std::vector<Descriptor>& flows : made_[rank]) flows.resize(options.flows_to(rank));
    }
  }

  Connections run() {
    const ListeningSocket socket = listen_on(options_.address, 0);
    const Descriptor listening(socket.descriptor);
    std::random_device random;
    secret_ = (std::uint64_t{random()} << 32) | random();
    store_.set(key(own_), text_of({options_.address, socket.port, secret_}));
    for (const DeviceId rank : id_range<DeviceId>(made_.size())) {
      if (rank < own_) call(rank);
    }
    accept_all(listening);
    return std::move(made_);
  }

 private:
  static std::string key(DeviceId rank) { return fmt::format("listens/{}", rank.value()); }

  int milliseconds_left() const { return milliseconds_until(deadline_); }

  [[noreturn]] void fail(const std::string& reason) const {
    std::string missing;
    for (const DeviceId rank : id_range<DeviceId>(made_.size())) {
      if (rank == own_ || made_[rank].back().back().valid()) continue;
      missing += (missing.empty() ? "" : ", ") + rank_text(rank, options_.device_names);
    }
    throw Error(ErrorKind::kVerification,
                fmt::format("{}: not connected to {} on {} within {} s{}{}", missing,
                            rank_text(own_, options_.device_names), options_.address,
                            seconds_of(options_.timeout), reason.empty() ? "" : ": ", reason));
  }

  // Until one of the events; false once the time is over.
  static bool wait(int descriptor, short events, int milliseconds) {
    pollfd one{.fd = descriptor, .events = events, .revents = 0};
    return poll(&one, 1, milliseconds) > 0;
  }

  Place find(DeviceId rank) const {
    for (;;) {
      if (const auto said = store_.find(key(rank))) return parse_place(*said);
      if (milliseconds_left() == 0) fail("");
      std::this_thread::sleep_for(kLook);
    }
  }

  void call(DeviceId rank) {
    const Place place = find(rank);
    for (std::size_t line = 0; line < kChannelCount * options_.flows_to(rank); ++line) {
      Descriptor made = connect_to(place);
      const Hello hello{place.secret, static_cast<std::uint32_t>(own_.value()),
                        static_cast<std::uint32_t>(line)};
      // A new connection has room for so few bytes.
      if (::send(made.get(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) {
        fail(std::strerror(errno));
      }
      keep(rank, line, std::move(made));
    }
  }

  Descriptor connect_to(const Place& place) const {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const std::string port = std::to_string(place.port);
    const int unknown = getaddrinfo(place.address.c_str(), port.c_str(), &hints, &found);
    if (unknown != 0) fail(fmt::format("{}: {}", printable(place.address), gai_strerror(unknown)));
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
    std::string reason;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      Descriptor made(socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      int error = made.valid() ? 0 : errno;
      if (made.valid() && connect(made.get(), one->ai_addr, one->ai_addrlen) != 0) {
        error = errno;
        if (error == EINPROGRESS) {
          socklen_t size = sizeof error;
          if (!wait(made.get(), POLLOUT, milliseconds_left())) fail("");
          getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size);
        }
      }
      if (error == 0) return made;
      reason = std::strerror(error);
    }
    fail(fmt::format("{} port {}: {}", printable(place.address), place.port, reason));
  }

  // Whoever has connected and has not said all of its first words.
  struct Guest {
    Descriptor line;
    Clock::time_point patience;
    Hello hello;
    std::size_t heard = 0;  // bytes
  };

  // Listens to all guests at once: a silent stranger holds nobody up.
  void accept_all(const Descriptor& listening) {
    std::size_t missing = 0;
    for (const DeviceId rank : id_range<DeviceId>(made_.size())) {
      if (rank > own_) missing += kChannelCount * options_.flows_to(rank);
    }
    std::deque<Guest> guests;  // the longest here first
    while (missing > 0) {
      std::vector<pollfd> waits{{.fd = listening.get(), .events = POLLIN, .revents = 0}};
      for (const Guest& guest : guests) {
        waits.push_back({.fd = guest.line.get(), .events = POLLIN, .revents = 0});
      }
      Clock::time_point until = deadline_;
      if (!guests.empty()) until = std::min(until, guests.front().patience);
      poll(waits.data(), waits.size(), milliseconds_until(until));
      for (std::size_t i = 0; i < guests.size(); ++i) {
        if (waits[i + 1].revents != 0) missing -= listen_to(guests[i]);
      }
      const Clock::time_point now = Clock::now();
      std::erase_if(
          guests, [&](const Guest& guest) { return !guest.line.valid() || now >= guest.patience; });
      if (waits.front().revents != 0) accept_one(listening, guests);
      if (missing > 0 && now >= deadline_) fail("");
    }
  }

  void accept_one(const Descriptor& listening, std::deque<Guest>& guests) const {
    Descriptor made(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int error = made.valid() ? 0 : errno;
    const bool full = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
    // A rank of the job says its words at once, so the one that is here longest is a stranger.
    if ((full || guests.size() == kMostGuests) && !guests.empty()) guests.pop_front();
    if (made.valid()) guests.push_back({std::move(made), Clock::now() + kPatience});
    if (full && guests.empty()) fail(std::strerror(error));
  }

  // Takes what a guest says; whether that made it the connection of a rank. One that is a stranger,
  // or has gone, loses its line.
  bool listen_to(Guest& guest) {
    auto* words = reinterpret_cast<char*>(&guest.hello);
    const ssize_t got = recv(guest.line.get(), words + guest.heard, sizeof(Hello) - guest.heard, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    if (got > 0) guest.heard += static_cast<std::size_t>(got);
    if (got > 0 && guest.heard < sizeof(Hello)) return false;
    Descriptor line = std::move(guest.line);
    const Hello& hello = guest.hello;
    const bool known = got > 0 && hello.secret == secret_ && hello.rank > own_.value() &&
                       hello.rank < made_.size() &&
                       hello.line < kChannelCount * options_.flows_to(DeviceId(hello.rank));
    if (!known || place_of(DeviceId(hello.rank), hello.line).valid()) return false;
    keep(DeviceId(hello.rank), hello.line, std::move(line));
    return true;
  }

  // Lines to a rank are counted flow by flow: the first of each use, the second of each, …
  Descriptor& place_of(DeviceId rank, std::size_t line) {
    return made_[rank][line % kChannelCount][line / kChannelCount];
  }

  void keep(DeviceId rank, std::size_t line, Descriptor made) {
    const int yes = 1;
    // What is small goes at once.
    setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    place_of(rank, line) = std::move(made);
  }

  const DeviceId own_;
  const ConnectOptions& options_;
  const Clock::time_point deadline_;
  const Store store_;
  std::uint64_t secret_ = 0;
  Connections made_;
};

}  // namespace

Descriptor::~Descriptor() {
  if (valid()) close(descriptor_);
}

std::string rank_text(DeviceId rank, const std::vector<std::string>& device_names) {
  if (rank.value() >= device_names.size() || device_names[rank.value()].empty())
    return fmt::format("rank {}", rank.value());
  return fmt::format("rank {} ({})", rank.value(), device_names[rank.value()]);
}

Connections connect_ranks(const Store& store, DeviceId own, const ConnectOptions& options) {
  return Connecting(store, own, options).run();
}

}  // namespace heterog::comm
