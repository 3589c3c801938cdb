// Ranks as children of this process: their variables, and what became of them in one line.
#include "launch/launcher.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string_view>
#include <utility>

#include "base/check.h"
#include "comm/connections.h"
#include "comm/network.h"
#include "launch/children.h"
#include "launch/rank_place.h"

extern char** environ;

namespace heterog::launch {

namespace {

std::string name_of(const LaunchOptions& options, int rank) {
  return comm::rank_text(DeviceId(static_cast<std::size_t>(rank)), options.device_names);
}

std::vector<std::string> environment_of(const LaunchOptions& options, int rank,
                                        const comm::ListeningSocket& socket) {
  const std::uint16_t port = socket.port != 0 ? socket.port : options.master_port;
  std::vector<std::string> set{
      fmt::format("RANK={}", rank), fmt::format("LOCAL_RANK={}", rank - options.first),
      fmt::format("WORLD_SIZE={}", options.device_names.size()),
      "MASTER_ADDR=" + options.master_address, fmt::format("MASTER_PORT={}", port)};
  if (rank == 0) set.push_back(fmt::format("{}={}", kListenSocketVariable, socket.descriptor));
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

// Who named another rank as lost may have ended before it; what that one says itself is the cause.
std::size_t cause(const LaunchOptions& options, const ChildrenEnd& end) {
  const Child& first = end.children[*end.first_fallen];
  for (std::size_t i = 0; i < end.children.size(); ++i) {
    const Child& child = end.children[i];
    const std::string name = name_of(options, options.first + static_cast<int>(i));
    if (!first.error.starts_with(name + ":")) continue;
    const bool killed = child.failed_by_signal() && !child.ended_by_us;
    if (killed || (child.status.value_or(0) != 0 && !child.error.empty())) return i;
  }
  return *end.first_fallen;
}

void report(const LaunchOptions& options, const ChildrenEnd& end) {
  const auto name = [&](std::size_t child) {
    return name_of(options, options.first + static_cast<int>(child));
  };
  if (end.told) {
    for (const Child& child : end.children) {
      const bool by_itself = child.status && WIFEXITED(*child.status) && !child.error.empty();
      // One that names a rank has only missed it.
      if (by_itself && !child.error.starts_with("rank ")) {
        throw Error(ErrorKind::kVerification, child.error);
      }
    }
    throw Error(ErrorKind::kVerification,
                fmt::format("ended by {}, and all ranks with it", signal_text(*end.told)));
  }
  if (end.late) {
    throw Error(ErrorKind::kVerification,
                fmt::format("{}: did not end within {} s of {}", name(*end.late),
                            comm::seconds_of(options.timeout), name(*end.first_done)));
  }
  if (!end.first_fallen) return;
  const std::size_t at = cause(options, end);
  const Child& child = end.children[at];
  const int status = *child.status;
  if (WIFSIGNALED(status)) {
    throw Error(
        ErrorKind::kVerification,
        fmt::format("{}: ended by {}{}", name(at), signal_text(WTERMSIG(status)), options.if_lost));
  }
  const int code = WEXITSTATUS(status);
  const bool named = child.error.starts_with("rank ");
  const std::string why =
      child.error.empty() ? fmt::format("ended with exit code {}", code) : child.error;
  throw Error(
      code == static_cast<int>(ErrorKind::kInput) ? ErrorKind::kInput : ErrorKind::kVerification,
      named ? why : fmt::format("{}: {}", name(at), why));
}

}  // namespace

void launch_ranks(const LaunchOptions& options) {
  // The socket is opened here, so that no other process can take the port before rank 0 runs.
  comm::ListeningSocket socket;
  if (options.first == 0) socket = comm::listen_on(options.master_address, options.master_port);
  std::vector<ChildCommand> commands;
  for (int rank = options.first; rank < options.first + options.count; ++rank) {
    const std::string& device = options.device_names[static_cast<std::size_t>(rank)];
    ChildCommand command{
        .label = fmt::format("rank {}{}{}", rank, device.empty() ? "" : " ", device),
        .program = options.program,
        .arguments = {"heterog"},
        .environment = environment_of(options, rank, socket),
        .keep_open = rank == 0 ? socket.descriptor : -1,
        .quiet = options.quiet};
    command.arguments.insert(command.arguments.end(), options.arguments.begin(),
                             options.arguments.end());
    commands.push_back(std::move(command));
  }
  const auto close_socket = [&] {
    if (socket.descriptor >= 0) close(socket.descriptor);
  };
  report(options,
         run_children(std::move(commands),
                      {.grace = options.grace, .obey = options.obey, .timeout = options.timeout},
                      close_socket));
}

}  // namespace heterog::launch
