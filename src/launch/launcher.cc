// One process a rank, by fork and exec; one loop that reads what they say and sees them end.
#include "launch/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "comm/connections.h"
#include "comm/network.h"
#include "launch/rank_place.h"

extern char** environ;

namespace heterog::launch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLookMilliseconds = 50;
// What main() writes before the message of an Error; held back, for one line to stand at the end.
constexpr std::string_view kErrorMark = "heterog: error: ";

volatile sig_atomic_t g_signal = 0;  // that this process was sent; 0: none

void note_signal(int number) { g_signal = number; }

// Notes the signals that would end this process, as long as it lives.
class SignalGuard {
 public:
  SignalGuard() {
    g_signal = 0;
    struct sigaction note {};
    note.sa_handler = note_signal;
    for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &note, &old_[i]);
  }
  ~SignalGuard() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &old_[i], nullptr);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction old_[std::size(kSignals)] = {};
};

std::string signal_text(int number) {
  const char* name = sigabbrev_np(number);
  return fmt::format("signal {} (SIG{})", number, name == nullptr ? "?" : name);
}

// A process that runs a rank.
struct Rank {
  int number = 0;
  pid_t process = -1;
  int err = -1;            // our end of its stderr; -1: closed
  std::string unfinished;  // the line that it is writing
  std::string error;       // the message of its Error
  std::optional<int> status;
  bool ended_by_us = false;
};

class Launch {
 public:
  explicit Launch(const LaunchOptions& options) : options_(options) {}
  ~Launch() {
    for (Rank& rank : ranks_) {
      if (!rank.status && rank.process > 0) {
        kill(rank.process, SIGKILL);
        waitpid(rank.process, nullptr, 0);
      }
      if (rank.err >= 0) close(rank.err);
    }
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  void run() {
    const SignalGuard guard;
    start_all();
    while (any_running()) {
      read_what_they_say(kLookMilliseconds);
      collect();
      if (any_running()) end_the_others();
    }
    read_what_they_say(0);
    report();
  }

 private:
  std::string name(int rank) const {
    return comm::rank_text(DeviceId(static_cast<std::size_t>(rank)), options_.device_names);
  }
  bool any_running() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return !rank.status.has_value(); });
  }

  void start_all() {
    // The socket is opened here, so that no other process can take the port before rank 0 runs.
    comm::ListeningSocket socket;
    if (options_.first == 0)
      socket = comm::listen_on(options_.master_address, options_.master_port);
    const std::uint16_t port = socket.port != 0 ? socket.port : options_.master_port;
    ranks_.resize(static_cast<std::size_t>(options_.count));
    for (int i = 0; i < options_.count; ++i) {
      ranks_[i].number = options_.first + i;
      start(ranks_[i], i, port, socket.descriptor);
    }
    if (socket.descriptor >= 0) close(socket.descriptor);
  }

  std::vector<std::string> environment_of(const Rank& rank, int local, std::uint16_t port,
                                          int socket) const {
    std::vector<std::string> set{
        fmt::format("RANK={}", rank.number), fmt::format("LOCAL_RANK={}", local),
        fmt::format("WORLD_SIZE={}", options_.device_names.size()),
        "MASTER_ADDR=" + options_.master_address, fmt::format("MASTER_PORT={}", port)};
    if (rank.number == 0) set.push_back(fmt::format("{}={}", kListenSocketVariable, socket));
    for (char** one = environ; *one != nullptr; ++one) {
      const std::string_view entry = *one;
      const std::string_view key = entry.substr(0, entry.find('='));
      const bool ours = key == "RANK" || key == "LOCAL_RANK" || key == "WORLD_SIZE" ||
                        key == "MASTER_ADDR" || key == "MASTER_PORT" ||
                        key == kListenSocketVariable || key.starts_with("TORCHELASTIC_");
      if (!ours) set.emplace_back(entry);
    }
    return set;
  }

  void start(Rank& rank, int local, std::uint16_t port, int socket) {
    // All is made before the fork: the child may call nothing that allocates.
    std::vector<std::string> arguments{"heterog"};
    arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
    std::vector<std::string> environment = environment_of(rank, local, port, socket);
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> all;
      all.reserve(texts.size() + 1);
      for (std::string& text : texts) all.push_back(text.data());
      all.push_back(nullptr);
      return all;
    };
    const std::vector<char*> argv = pointers(arguments);
    const std::vector<char*> envp = pointers(environment);
    int ends[2];
    ENSURE(pipe2(ends, O_CLOEXEC) == 0);
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);  // it ended before the line above
      for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_DFL);
      dup2(ends[1], STDERR_FILENO);
      if (rank.number == 0 && socket >= 0) fcntl(socket, F_SETFD, 0);  // stays open
      execve(options_.program.c_str(), argv.data(), envp.data());
      constexpr char kFailed[] = "heterog: error: the program cannot be started\n";
      if (write(STDERR_FILENO, kFailed, sizeof kFailed - 1) < 0) _exit(1);
      _exit(1);
    }
    close(ends[1]);
    rank.err = ends[0];
    fcntl(rank.err, F_SETFL, O_NONBLOCK);
    if (child < 0) {
      throw Error(ErrorKind::kVerification, fmt::format("{}: no process can be started ({})",
                                                        name(rank.number), std::strerror(errno)));
    }
    rank.process = child;
  }

  void read_what_they_say(int milliseconds) {
    std::vector<pollfd> waits;
    for (const Rank& rank : ranks_) {
      if (rank.err >= 0) waits.push_back({.fd = rank.err, .events = POLLIN, .revents = 0});
    }
    poll(waits.data(), waits.size(), milliseconds);
    for (Rank& rank : ranks_) {
      char bytes[4096];
      ssize_t count = 0;
      while (rank.err >= 0 && (count = read(rank.err, bytes, sizeof bytes)) > 0) {
        hear(rank, std::string_view(bytes, static_cast<std::size_t>(count)));
      }
      if (rank.err >= 0 && (count == 0 || (errno != EAGAIN && errno != EINTR))) {
        if (!rank.unfinished.empty()) hear(rank, "\n");
        close(rank.err);
        rank.err = -1;
      }
    }
  }

  void hear(Rank& rank, std::string_view text) {
    rank.unfinished += text;
    for (std::size_t end; (end = rank.unfinished.find('\n')) != std::string::npos;) {
      const std::string line = rank.unfinished.substr(0, end);
      rank.unfinished.erase(0, end + 1);
      if (line.starts_with(kErrorMark)) {
        rank.error = line.substr(kErrorMark.size());
      } else {
        const std::string& device = options_.device_names[static_cast<std::size_t>(rank.number)];
        fmt::print(stderr, "[rank {} {}] {}\n", rank.number, device, line);
      }
    }
  }

  void collect() {
    std::vector<Rank*> fallen;
    for (Rank& rank : ranks_) {
      int status = 0;
      if (rank.status || waitpid(rank.process, &status, WNOHANG) != rank.process) continue;
      rank.status = status;
      if (status == 0 && first_done_ == nullptr) {
        first_done_ = &rank;
        late_at_ = Clock::now() + options_.timeout;
      }
      if (status != 0 && !rank.ended_by_us) fallen.push_back(&rank);
    }
    // Of those that ended between two looks, one that a signal ended is no consequence of others.
    for (Rank* rank : fallen) {
      const bool by_signal = WIFSIGNALED(*rank->status);
      if (first_fallen_ == nullptr || (by_signal && !WIFSIGNALED(*first_fallen_->status))) {
        first_fallen_ = rank;
      }
    }
  }

  // Once one has failed or this process was told to end: the others are given time to say why they
  // end, then SIGTERM, then SIGKILL.
  void end_the_others() {
    if (g_signal != 0 && !told_) {
      told_ = g_signal;
      signal_all(*told_);
      kill_at_ = Clock::now() + options_.grace;
    }
    if (first_fallen_ != nullptr && !terminate_at_ && !kill_at_) {
      terminate_at_ = Clock::now() + options_.grace;
    }
    if (late_at_ && !terminate_at_ && !kill_at_ && Clock::now() >= *late_at_) {
      late_ = &*std::find_if(ranks_.begin(), ranks_.end(),
                             [](const Rank& rank) { return !rank.status.has_value(); });
      terminate_at_ = Clock::now();
    }
    if (terminate_at_ && !kill_at_ && Clock::now() >= *terminate_at_) {
      signal_all(SIGTERM);
      kill_at_ = Clock::now() + options_.grace;
    }
    if (kill_at_ && Clock::now() >= *kill_at_) signal_all(SIGKILL);
  }

  void signal_all(int number) {
    for (Rank& rank : ranks_) {
      if (rank.status) continue;
      rank.ended_by_us = true;
      kill(rank.process, number);
    }
  }

  // Who named another rank as lost may have ended before it; what that one says itself is the
  // cause.
  const Rank& cause() const {
    const Rank& first = *first_fallen_;
    for (const Rank& rank : ranks_) {
      if (!first.error.starts_with(name(rank.number) + ":")) continue;
      const int status = rank.status.value_or(0);
      const bool killed = WIFSIGNALED(status) && !rank.ended_by_us;
      if (killed || (status != 0 && !rank.error.empty())) return rank;
    }
    return first;
  }

  void report() const {
    if (told_) {
      throw Error(ErrorKind::kVerification,
                  fmt::format("ended by {}, and all ranks with it", signal_text(*told_)));
    }
    if (late_ != nullptr) {
      throw Error(ErrorKind::kVerification,
                  fmt::format("{}: did not end within {} s of {}", name(late_->number),
                              comm::seconds_of(options_.timeout), name(first_done_->number)));
    }
    if (first_fallen_ == nullptr) return;
    const Rank& rank = cause();
    const int status = *rank.status;
    if (WIFSIGNALED(status)) {
      throw Error(ErrorKind::kVerification,
                  fmt::format("{}: ended by {}", name(rank.number), signal_text(WTERMSIG(status))));
    }
    const int code = WEXITSTATUS(status);
    const bool named = rank.error.starts_with("rank ");
    const std::string why =
        rank.error.empty() ? fmt::format("ended with exit code {}", code) : rank.error;
    throw Error(
        code == static_cast<int>(ErrorKind::kInput) ? ErrorKind::kInput : ErrorKind::kVerification,
        named ? why : fmt::format("{}: {}", name(rank.number), why));
  }

  const LaunchOptions& options_;
  std::vector<Rank> ranks_;
  const Rank* first_fallen_ = nullptr;
  const Rank* first_done_ = nullptr;  // that ended well
  const Rank* late_ = nullptr;        // that did not end with it
  std::optional<int> told_;           // the signal that this process was sent
  std::optional<Clock::time_point> late_at_;
  std::optional<Clock::time_point> terminate_at_;
  std::optional<Clock::time_point> kill_at_;
};

}  // namespace

void launch_ranks(const LaunchOptions& options) { Launch(options).run(); }

}  // namespace heterog::launch
