// A program that runs beside the test, and is waited for by what it says and leaves behind.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"

namespace heterog::cli {

// No test waits longer for what must come: what has not by then never does.
inline constexpr std::chrono::seconds kForEver{300};

// Whether it became true.
template <class Ready>
bool await(const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + kForEver;
  while (!ready()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

using Variables = std::map<std::string, std::string>;

class Process {
 public:
  enum class Out : std::uint8_t {
    kFile,
    kLines,  // the test takes them one by one, and the program is two ahead of it at most
  };

  // `arguments` as in a shell; what it says is in files with names that begin with `files`.
  Process(const std::string& arguments, const Variables& variables, std::string files,
          Out out = Out::kFile)
      : files_(std::move(files)) {
    // What an earlier process of that name said is not taken for this one's.
    for (const char* ending : {".out", ".err"}) std::remove((files_ + ending).c_str());
    int ends[2] = {-1, -1};
    if (out == Out::kLines) {
      // With O_DIRECT what is written stays apart, and a page has room for one piece.
      if (pipe2(ends, O_CLOEXEC | O_DIRECT) != 0) std::abort();
      fcntl(ends[1], F_SETPIPE_SZ, 4096);
    }
    pid_ = fork();
    if (pid_ == 0) {
      for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
      if (ends[1] >= 0) dup2(ends[1], STDOUT_FILENO);
      const std::string to = out == Out::kFile ? " >'" + files_ + ".out'" : "";
      const std::string command = "exec '" + std::string(HETEROG_PROGRAM) + "' " + arguments + to +
                                  " 2>'" + files_ + ".err' </dev/null";
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    if (ends[1] >= 0) close(ends[1]);
    lines_ = ends[0];
  }
  ~Process() {
    hear_no_more();
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void kill(int number) const { ::kill(pid_, number); }

  // Its exit code, or minus the signal that ended it; kNever if it does not end.
  static constexpr int kNever = 1000;
  int wait() {
    int status = 0;
    if (!await([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return kNever;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string out() const { return said(".out"); }
  std::string err() const { return said(".err"); }

  // Until this step has been printed; false if the program ends before.
  bool await_step(int number) {
    bool printed = false;
    await([&] {
      const bool ended = has_ended();
      printed = out().find("step " + std::to_string(number) + ":") != std::string::npos;
      return printed || ended;
    });
    return printed;
  }

  // What it wrote next; empty if it has ended.
  std::string line() {
    char text[4096];
    pollfd waited{.fd = lines_, .events = POLLIN, .revents = 0};
    if (poll(&waited, 1, static_cast<int>(std::chrono::milliseconds(kForEver).count())) <= 0) {
      return "";
    }
    const ssize_t count = read(lines_, text, sizeof text);
    return count > 0 ? std::string(text, static_cast<std::size_t>(count)) : "";
  }
  void hear_no_more() {
    if (lines_ >= 0) close(lines_);
    lines_ = -1;
  }

 private:
  std::string said(const char* ending) const {
    const std::string file = files_ + ending;
    return std::filesystem::exists(file) ? read_file(file) : "";
  }
  bool has_ended() const {
    siginfo_t ended{};
    return waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           ended.si_pid == pid_;
  }

  pid_t pid_ = -1;
  int lines_ = -1;
  std::string files_;
};

// Of a rank as torchrun would start it.
inline Variables rank_variables(int number, int port, int ranks) {
  return {{"RANK", std::to_string(number)},
          {"LOCAL_RANK", std::to_string(number)},
          {"WORLD_SIZE", std::to_string(ranks)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}};
}
// Other tests run at the same time; theirs are other processes.
inline int free_port(int offset = 0) { return 20'000 + (getpid() * 7 + offset) % 10'000; }

// A zombie, whose parent has not asked for it yet, has ended.
inline bool runs(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::size_t name_end = text.str().rfind(") ");
  return name_end != std::string::npos && text.str()[name_end + 2] != 'Z';
}

inline std::vector<pid_t> children_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
  std::vector<pid_t> children;
  for (pid_t child; file >> child;) children.push_back(child);
  return children;
}

}  // namespace heterog::cli
