// Two processes that send messages to and fro over the loopback device.
#include "measure/links.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/median.h"
#include "comm/connections.h"
#include "cost/poor_fit.h"

namespace heterog::measure {
namespace {

// From a message that is all latency to one that is all bandwidth: larger than caches.
constexpr std::array<Bytes, 8> kSizes = {64,      1 << 10, 16 << 10, 64 << 10,
                                         1 << 18, 1 << 20, 4 << 20,  16 << 20};
constexpr int kTimeoutSeconds = 60;               // of one read or write, so that nothing hangs
constexpr double kEnoughSecondsOfMessages = 0.5;  // for one size; at least three messages

[[noreturn]] void fail(const char* what) {
  throw Error(ErrorKind::kVerification,
              fmt::format("measuring the loopback device: {}: {}", what, std::strerror(errno)));
}

void require(bool condition, const char* what) {
  if (!condition) fail(what);
}

bool send_all(int fd, const char* data, Bytes bytes) {
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, data, static_cast<std::size_t>(bytes), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    bytes -= sent;
  }
  return true;
}

bool receive_all(int fd, char* data, Bytes bytes) {
  while (bytes > 0) {
    const ssize_t received = ::recv(fd, data, static_cast<std::size_t>(bytes), 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    data += received;
    bytes -= received;
  }
  return true;
}

void set_options(int fd) {
  const int on = 1;
  const timeval timeout{.tv_sec = kTimeoutSeconds, .tv_usec = 0};
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
}

// The other process: sends back what it gets, until there is no more. Each message is preceded by
// its size.
[[noreturn]] void echo(sockaddr_in address, char* buffer) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    ::_exit(1);
  }
  set_options(fd);
  Bytes bytes = 0;
  while (receive_all(fd, reinterpret_cast<char*>(&bytes), sizeof(bytes)) &&
         receive_all(fd, buffer, bytes) && send_all(fd, buffer, bytes)) {
  }
  ::_exit(0);
}

// Waits for the child on every way out.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() { ::waitpid(pid_, nullptr, 0); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t pid_;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

cost::Transfer measured_transfer(int fd, char* buffer, Bytes bytes, int repeat) {
  std::vector<double> times;
  const double begin = seconds_now();
  for (int i = -2; i < repeat; ++i) {  // two to warm up
    const double start = seconds_now();
    require(send_all(fd, reinterpret_cast<const char*>(&bytes), sizeof(bytes)) &&
                send_all(fd, buffer, bytes) && receive_all(fd, buffer, bytes),
            "the other process is gone");
    const double end = seconds_now();
    if (i >= 0) times.push_back((end - start) / 2);
    if (i >= 2 && end - begin > kEnoughSecondsOfMessages) break;
  }
  const Robust summary = robust(std::move(times));
  return {.bytes = bytes, .seconds = summary.median, .spread_seconds = summary.spread};
}

// Once.
cost::ProfiledLink try_loopback(int repeat) {
  // Allocated and touched before the fork; the child calls nothing that may allocate.
  std::vector<char> buffer(static_cast<std::size_t>(kSizes.back()), 'x');
  const comm::Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  require(listener.get() >= 0, "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  require(::bind(listener.get(), any, sizeof(address)) == 0, "bind");
  require(::listen(listener.get(), 1) == 0, "listen");
  socklen_t length = sizeof(address);
  require(::getsockname(listener.get(), any, &length) == 0, "getsockname");
  set_options(listener.get());

  const pid_t pid = ::fork();
  require(pid >= 0, "fork");
  if (pid == 0) echo(address, buffer.data());
  const Child child(pid);
  const comm::Descriptor connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  require(connection.get() >= 0, "accept");
  set_options(connection.get());
  std::vector<cost::Transfer> measured;
  for (Bytes bytes : kSizes) {
    // Short messages are cheap to repeat, and vary more.
    const int times = bytes <= (64 << 10) ? 20 * repeat : repeat;
    measured.push_back(measured_transfer(connection.get(), buffer.data(), bytes, times));
  }
  return cost::fit_link("two processes of this machine, TCP over loopback", std::move(measured));
}

}  // namespace

cost::ProfiledLink measure_loopback(int repeat) {
  constexpr int kTries = 3;  // a burst of another program is over by then
  cost::ProfiledLink best = try_loopback(repeat);
  for (int i = 1; i < kTries && best.r2 < cost::kLeastFit; ++i) {
    cost::ProfiledLink again = try_loopback(repeat);
    if (again.r2 > best.r2) best = std::move(again);
  }
  return best;
}

}  // namespace heterog::measure
