// One thread that polls the connections to all peers.
#include "comm/lifelines.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace heterog::comm {

struct Lifelines::State {
  const Connections connections;
  const Options options;
  const Descriptor stop{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};  // can be read once it is over
  std::thread thread;

  State(Connections given, Options given_options)
      : connections(std::move(given)), options(std::move(given_options)) {
    ENSURE(stop.valid());
  }

  int of(DeviceId peer) const {
    const auto& flows = connections[peer][static_cast<std::size_t>(Channel::kMessages)];
    return flows.empty() ? -1 : flows.front().get();
  }

  void watch() const {
    std::vector<pollfd> waited{{.fd = stop.get(), .events = POLLIN, .revents = 0}};
    std::vector<DeviceId> peers{DeviceId()};  // parallel to `waited`
    for (const DeviceId peer : id_range<DeviceId>(connections.size())) {
      if (of(peer) < 0) continue;
      waited.push_back({.fd = of(peer), .events = POLLIN, .revents = 0});
      peers.push_back(peer);
    }
    auto ticked = std::chrono::steady_clock::now();
    for (;;) {
      poll(waited.data(), waited.size(), static_cast<int>(options.every.count()));
      if (waited.front().revents != 0) return;
      for (std::size_t i = 1; i < waited.size(); ++i) {
        if (waited[i].revents == 0 || !has_closed(waited[i].fd)) continue;
        const std::string why = errno == 0 ? "closed" : std::strerror(errno);
        waited[i].fd = -1;  // is passed over
        options.on_lost(peers[i], why);
      }
      if (const auto now = std::chrono::steady_clock::now(); now - ticked >= options.every) {
        ticked = now;
        options.on_tick();
      }
    }
  }

  // With errno as the reason, 0 where the peer closed it.
  static bool has_closed(int connection) {
    char byte = 0;
    const ssize_t count = recv(connection, &byte, 1, MSG_DONTWAIT);
    if (count == 0) errno = 0;
    return count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
  }
};

Lifelines::Lifelines(Connections connections, Options options)
    : state_(std::make_unique<State>(std::move(connections), std::move(options))) {
  state_->thread = std::thread([state = state_.get()] { state->watch(); });
}

Lifelines::~Lifelines() { let_go(); }

void Lifelines::let_go() {
  if (!state_->thread.joinable()) return;
  const std::uint64_t one = 1;
  ENSURE(write(state_->stop.get(), &one, sizeof one) == sizeof one);
  state_->thread.join();
}

}  // namespace heterog::comm
