// A line of shell for each rank, and what became of them.
#include "launch/remote.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "base/check.h"
#include "base/log.h"
#include "base/shell.h"
#include "launch/children.h"
#include "launch/rank_place.h"

extern char** environ;

namespace heterog::launch {

namespace {

constexpr int kSignalled = 128;  // what shells add to the number of a signal

struct Place {
  std::string host;
  int local = 0;
  int slots = 0;
};

std::vector<Place> places_of(const std::vector<HostSlots>& hosts) {
  std::vector<Place> places;
  for (const HostSlots& host : hosts) {
    for (int i = 0; i < host.slots; ++i) places.push_back({host.host, i, host.slots});
  }
  return places;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** one = environ; *one != nullptr; ++one) all.emplace_back(*one);
  return all;
}

}  // namespace

std::vector<std::string> environment_to_pass() {
  constexpr std::array<std::string_view, 9> kFamilies = {
      "HETEROG_", "PYTHON", "TORCH_", "OMP_", "MKL_", "CUDA_", "NCCL_", "GLOO_", "VIRTUAL_ENV"};
  std::vector<std::string> passed;
  for (std::string& entry : own_environment()) {
    const std::string_view key = std::string_view(entry).substr(0, entry.find('='));
    const bool wanted =
        key == "PATH" || key == "LD_LIBRARY_PATH" ||
        std::ranges::any_of(kFamilies, [&](std::string_view one) { return key.starts_with(one); });
    // A socket of this process is none of another's.
    if (wanted && key != kListenSocketVariable) passed.push_back(std::move(entry));
  }
  return passed;
}

std::string remote_line(const RemoteOptions& options, int rank) {
  const std::vector<Place> places = places_of(options.hosts);
  const Place& place = places[static_cast<std::size_t>(rank)];
  std::string script = fmt::format("cd {} || exit 1; ", shell_word(options.folder));
  std::vector<std::string> set = options.environment;
  for (std::string& more : std::vector<std::string>{
           fmt::format("RANK={}", rank), fmt::format("LOCAL_RANK={}", place.local),
           fmt::format("WORLD_SIZE={}", places.size()),
           fmt::format("LOCAL_WORLD_SIZE={}", place.slots), "MASTER_ADDR=" + options.master_address,
           fmt::format("MASTER_PORT={}", options.master_port)}) {
    set.push_back(std::move(more));
  }
  for (const std::string& entry : set) {
    const std::size_t equals = entry.find('=');
    script += fmt::format("export {}={}; ", entry.substr(0, equals),
                          shell_word(entry.substr(equals + 1)));
  }
  std::vector<std::string> words;
  for (const std::string& word : options.command) words.push_back(shell_word(word));
  // A shell gives what it starts in the background no stdin of its own, hence descriptor 3.
  script += fmt::format(
      "exec 3<&0; setsid {} </dev/null 3<&- & child=$!; "
      "tell() {{ kill -s \"$1\" -- \"-$child\" || kill -s \"$1\" \"$child\"; }}; "
      "{{ while read -r number; do tell \"$number\"; done; tell TERM; sleep 2; tell KILL; }} "
      "<&3 >/dev/null 2>&1 & watch=$!; "
      "exec 3<&-; {{ wait \"$child\"; }} 2>/dev/null; code=$?; "
      // What it has left behind is given the time that it has been given itself.
      "n=0; while kill -s 0 -- \"-$child\" 2>/dev/null && [ $n -lt 15 ]; do sleep 0.1; n=$((n+1)); "
      "done; kill -s KILL -- \"-$child\" 2>/dev/null; kill \"$watch\" 2>/dev/null; exit \"$code\"",
      fmt::join(words, " "));
  // Whatever the login shell there is, a POSIX shell reads it.
  return "exec sh -c " + shell_word(script);
}

std::vector<std::string> remote_command(const RemoteOptions& options, int rank) {
  std::vector<std::string> words = options.rsh;
  if (std::filesystem::path(words.front()).filename() == "ssh") words.emplace_back("--");
  words.push_back(places_of(options.hosts)[static_cast<std::size_t>(rank)].host);
  words.push_back(remote_line(options, rank));
  return words;
}

int launch_remotely(const RemoteOptions& options) {
  const std::vector<Place> places = places_of(options.hosts);
  std::vector<ChildCommand> commands;
  const auto label = [&](std::size_t rank) {
    return fmt::format("rank {} {}", rank, places[rank].host);
  };
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    ChildCommand command{.label = label(rank),
                         .program = options.rsh.front(),
                         .arguments = remote_command(options, static_cast<int>(rank)),
                         .environment = own_environment(),
                         .remote = true};
    commands.push_back(std::move(command));
  }
  const ChildrenEnd end =
      run_children(std::move(commands), {.grace = options.grace, .timeout = {}});
  if (end.told) {
    logger().error("ended by {}, and all ranks with it", signal_text(*end.told));
    return kSignalled + *end.told;
  }
  if (!end.first_fallen) return 0;
  const int status = *end.children[*end.first_fallen].status;
  const int code = WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status);
  const std::string why =
      code > kSignalled && code < 255
          ? fmt::format("ended by {}", signal_text(code - kSignalled))
          : fmt::format("ended with exit code {}{}", code,
                        code == 255 ? fmt::format(" (that of {} where it cannot connect)",
                                                  options.rsh.front())
                                    : "");
  logger().error("{}: {}", label(*end.first_fallen), why);
  return code;
}

}  // namespace heterog::launch
