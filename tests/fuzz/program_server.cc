// The program as a server of single runs: reads a command line (a JSON array) a line, runs each in
// a forked child, and answers with how it ended. Starting LibTorch takes longer than most runs on
// damaged files; a fork of a process that has loaded it does not. Given arguments, it is the
// program itself, so that ranks that it starts are ranks.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// main() of src/cli/main.cc, compiled under this name.
int heterog_main(int argc, char** argv);

namespace {

using Json = nlohmann::json;

void redirect(const std::string& path, int to) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || dup2(file, to) < 0) _exit(126);
  close(file);
}

// {"arguments": […], "stdout": F, "stderr": F, "seconds": N, "exec": true to start it anew}.
[[noreturn]] void run_child(const Json& request) {
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  redirect(request.at("stdout"), STDOUT_FILENO);
  redirect(request.at("stderr"), STDERR_FILENO);
  std::vector<std::string> words = request.at("arguments");
  words.insert(words.begin(), "heterog");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // A program that starts itself again does so by its command line, which a fork has not.
  if (request.value("exec", false)) {
    execv("/proc/self/exe", argv.data());
    _exit(126);
  }
  const int code = heterog_main(static_cast<int>(words.size()), argv.data());
  std::fflush(nullptr);
  _exit(code);
}

double now() {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Waits for the child, at most so long; then it is killed, and all that it started.
Json watch(pid_t child, double seconds) {
  const double begin = now();
  int status = 0;
  rusage usage = {};
  bool late = false;
  pid_t ended = 0;
  while ((ended = wait4(child, &status, WNOHANG, &usage)) == 0) {
    if (now() - begin > seconds) {
      late = true;
      kill(-child, SIGKILL);
      ended = wait4(child, &status, 0, &usage);
      break;
    }
    const double waited = now() - begin;
    usleep(waited < 0.1 ? 1000 : 10000);
  }
  kill(-child, SIGKILL);
  Json answer;
  answer["late"] = late;
  answer["code"] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  answer["signal"] = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  answer["peak_bytes"] = std::int64_t{usage.ru_maxrss} * 1024;
  answer["seconds"] = now() - begin;
  return answer;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) return heterog_main(argc, argv);
  std::string line;
  while (std::getline(std::cin, line)) {
    const Json request = Json::parse(line);
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) {
      std::perror("fork");
      return 1;
    }
    if (child == 0) run_child(request);
    setpgid(child, child);
    std::cout << watch(child, request.at("seconds")).dump() << std::endl;
  }
  return 0;
}
