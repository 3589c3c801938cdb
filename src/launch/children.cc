// One process a command, by fork and exec; one loop that reads what they say and sees them end.
#include "launch/children.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/signals.h"

namespace heterog::launch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLookMilliseconds = 50;
// What main() writes before the message of an Error; held back, for one line to stand at the end.
constexpr std::string_view kErrorMark = "heterog: error: ";

// A pipe whose ends no other child inherits.
struct Pipe {
  int read_end = -1, write_end = -1;
};
Pipe open_pipe() {
  int ends[2];
  ENSURE(pipe2(ends, O_CLOEXEC) == 0);
  return {ends[0], ends[1]};
}

void close_end(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

class Children {
 public:
  Children(std::vector<ChildCommand> commands, const ChildrenOptions& options) : options_(options) {
    for (ChildCommand& command : commands) {
      end_.children.emplace_back().command = std::move(command);
    }
  }
  ~Children() {
    for (Child& child : end_.children) {
      if (!child.status && child.process > 0) {
        kill(child.process, SIGKILL);
        waitpid(child.process, nullptr, 0);
      }
      for (int* descriptor : {&child.in, &child.out, &child.err}) close_end(*descriptor);
    }
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  ChildrenEnd run(const std::function<void()>& started) {
    const NotedSignals signals;
    for (Child& child : end_.children) start(child);
    if (started) started();
    while (any_running()) {
      read_what_they_say(kLookMilliseconds);
      collect();
      if (any_running()) end_the_others(signals);
    }
    read_what_they_say(0);
    for (Child& child : end_.children) {
      for (int* descriptor : {&child.in, &child.out, &child.err}) close_end(*descriptor);
    }
    return std::move(end_);
  }

 private:
  bool any_running() const {
    return std::any_of(end_.children.begin(), end_.children.end(),
                       [](const Child& child) { return !child.status.has_value(); });
  }

  void start(Child& child) {
    // All is made before the fork: the child may call nothing that allocates.
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> all;
      all.reserve(texts.size() + 1);
      for (std::string& text : texts) all.push_back(text.data());
      all.push_back(nullptr);
      return all;
    };
    const std::vector<char*> argv = pointers(child.command.arguments);
    const std::vector<char*> envp = pointers(child.command.environment);
    const Pipe err = open_pipe();
    const bool remote = child.command.remote;
    const Pipe in = remote ? open_pipe() : Pipe{};
    const Pipe out = remote ? open_pipe() : Pipe{};
    const pid_t parent = getpid();
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);  // it ended before the line above
      // A terminal's Ctrl-C is ours to pass on: what connects must not end before what it carries.
      if (remote) setpgid(0, 0);
      for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(number, SIG_DFL);
      dup2(err.write_end, STDERR_FILENO);
      if (remote) {
        dup2(in.read_end, STDIN_FILENO);
        dup2(out.write_end, STDOUT_FILENO);
      }
      if (child.command.quiet) dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
      if (child.command.keep_open >= 0) fcntl(child.command.keep_open, F_SETFD, 0);
      execvpe(child.command.program.c_str(), argv.data(), envp.data());
      constexpr char kFailed[] = "heterog: error: the program cannot be started\n";
      if (write(STDERR_FILENO, kFailed, sizeof kFailed - 1) < 0) _exit(1);
      _exit(1);
    }
    close(err.write_end);
    if (remote) {
      close(in.read_end);
      close(out.write_end);
    }
    child.in = in.write_end;
    child.out = out.read_end;
    child.err = err.read_end;
    for (int descriptor : {child.in, child.out, child.err}) {
      if (descriptor >= 0) fcntl(descriptor, F_SETFL, O_NONBLOCK);
    }
    if (process < 0) {
      throw Error(ErrorKind::kVerification, fmt::format("{}: no process can be started ({})",
                                                        child.command.label, std::strerror(errno)));
    }
    child.process = process;
  }

  void read_what_they_say(int milliseconds) {
    std::vector<pollfd> waits;
    for (const Child& child : end_.children) {
      for (int descriptor : {child.out, child.err}) {
        if (descriptor >= 0) waits.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
      }
    }
    poll(waits.data(), waits.size(), milliseconds);
    for (Child& child : end_.children) {
      read_lines(child, child.out, child.out_line, stdout);
      read_lines(child, child.err, child.err_line, stderr);
    }
  }

  static void read_lines(Child& child, int& descriptor, std::string& line, std::FILE* to) {
    char bytes[4096];
    ssize_t count = 0;
    while (descriptor >= 0 && (count = read(descriptor, bytes, sizeof bytes)) > 0) {
      hear(child, line, std::string_view(bytes, static_cast<std::size_t>(count)), to);
    }
    if (descriptor >= 0 && (count == 0 || (errno != EAGAIN && errno != EINTR))) {
      if (!line.empty()) hear(child, line, "\n", to);
      close_end(descriptor);
    }
    if (to == stdout) std::fflush(to);
  }

  static void hear(Child& child, std::string& unfinished, std::string_view text, std::FILE* to) {
    unfinished += text;
    for (std::size_t end; (end = unfinished.find('\n')) != std::string::npos;) {
      const std::string line = unfinished.substr(0, end);
      unfinished.erase(0, end + 1);
      if (!child.command.remote && line.starts_with(kErrorMark)) {
        child.error = line.substr(kErrorMark.size());
      } else {
        fmt::print(to, "[{}] {}\n", child.command.label, line);
      }
    }
  }

  void collect() {
    std::vector<std::size_t> fallen;
    for (std::size_t i = 0; i < end_.children.size(); ++i) {
      Child& child = end_.children[i];
      int status = 0;
      if (child.status || waitpid(child.process, &status, WNOHANG) != child.process) continue;
      child.status = status;
      if (status == 0 && !end_.first_done) {
        end_.first_done = i;
        if (options_.timeout) late_at_ = Clock::now() + *options_.timeout;
      }
      if (status != 0 && !child.ended_by_us) fallen.push_back(i);
    }
    // Of those that ended between two looks, one that a signal ended is no consequence of others.
    for (std::size_t i : fallen) {
      const bool by_signal = end_.children[i].failed_by_signal();
      if (!end_.first_fallen ||
          (by_signal && !end_.children[*end_.first_fallen].failed_by_signal())) {
        end_.first_fallen = i;
      }
    }
  }

  // Once one has failed or this process was told to end: the others are given time to say why they
  // end, then SIGTERM, then SIGKILL.
  void end_the_others(const NotedSignals& signals) {
    if (!end_.told && (end_.told = signals.noted())) {
      signal_all(*end_.told);
      kill_at_ = Clock::now() + time_to_obey();
    }
    if (end_.first_fallen && !terminate_at_ && !kill_at_) {
      terminate_at_ = Clock::now() + options_.grace;
    }
    if (late_at_ && !terminate_at_ && !kill_at_ && Clock::now() >= *late_at_) {
      const auto running = std::find_if(end_.children.begin(), end_.children.end(),
                                        [](const Child& child) { return !child.status; });
      end_.late = static_cast<std::size_t>(running - end_.children.begin());
      terminate_at_ = Clock::now();
    }
    if (terminate_at_ && !kill_at_ && Clock::now() >= *terminate_at_) {
      signal_all(SIGTERM);
      kill_at_ = Clock::now() + time_to_obey();
    }
    if (kill_at_ && Clock::now() >= *kill_at_ && !killed_) {
      killed_ = true;
      signal_all(SIGKILL);
      // What is behind a connection that hangs is left to the other end of it.
      drop_at_ = Clock::now() + options_.grace;
    }
    if (drop_at_ && Clock::now() >= *drop_at_) {
      for (Child& child : end_.children) {
        if (!child.status) kill(child.process, SIGKILL);
      }
    }
  }

  std::chrono::milliseconds time_to_obey() const { return options_.obey.value_or(options_.grace); }

  void signal_all(int number) {
    for (Child& child : end_.children) {
      if (child.status) continue;
      child.ended_by_us = true;
      if (!child.command.remote) {
        kill(child.process, number);
      } else if (child.in >= 0) {
        const std::string line = std::string(sigabbrev_np(number)) + "\n";
        const ssize_t wrote = write(child.in, line.data(), line.size());
        if (wrote != static_cast<ssize_t>(line.size())) kill(child.process, number);
      }
    }
  }

  const ChildrenOptions options_;
  ChildrenEnd end_;
  bool killed_ = false;
  std::optional<Clock::time_point> late_at_;
  std::optional<Clock::time_point> terminate_at_;
  std::optional<Clock::time_point> kill_at_;
  std::optional<Clock::time_point> drop_at_;
};

}  // namespace

bool Child::failed_by_signal() const { return status && WIFSIGNALED(*status); }

std::string signal_text(int number) {
  const char* name = sigabbrev_np(number);
  return fmt::format("signal {} (SIG{})", number, name == nullptr ? "?" : name);
}

ChildrenEnd run_children(std::vector<ChildCommand> commands, const ChildrenOptions& options,
                         const std::function<void()>& started) {
  return Children(std::move(commands), options).run(started);
}

}  // namespace heterog::launch
