// Options of launch, and what it runs where.
#include "cli/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/options.h"
#include "launch/remote.h"

namespace heterog::cli {

namespace {

struct LaunchVerbOptions {
  std::string hostfile;
  std::string rsh = "ssh -o BatchMode=yes";
  std::string master_address;
  std::uint16_t master_port = 29500;  // torchrun's too
  std::vector<std::string> environment;
  std::string folder;
  std::vector<std::string> command;
};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// "NAME=value" as given, or of "NAME" what this process has.
std::string entry_of(const std::string& given) {
  const std::string name = given.substr(0, given.find('='));
  const bool word = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_';
  });
  VALIDATE(word && std::isdigit(static_cast<unsigned char>(name[0])) == 0,
           "--env: \"{}\" given; it is NAME or NAME=value", printable(given));
  if (name.size() < given.size()) return given;
  const char* value = std::getenv(name.c_str());
  VALIDATE(value != nullptr, "--env {}: is not set here; give {}=value", name, name);
  return name + "=" + value;
}

bool is_this_host(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

// Of "user@host", what others call it.
std::string address_of(const std::string& host) { return host.substr(host.find('@') + 1); }

int run_launch(const LaunchVerbOptions& options, const Caller& caller) {
  VALIDATE(caller.is_program, "launch: starts processes, which only the program heterog does");
  launch::RemoteOptions remote{
      .hosts = launch::parse_hostfile(read_file(options.hostfile), options.hostfile),
      .rsh = words_of(options.rsh),
      .command = options.command,
      .folder = options.folder,
      .environment = launch::environment_to_pass(),
      .master_address = options.master_address,
      .master_port = options.master_port};
  VALIDATE(!remote.rsh.empty(), "--rsh: is empty; it is a command such as ssh");
  if (remote.folder.empty()) remote.folder = std::filesystem::current_path().string();
  for (const std::string& given : options.environment) {
    remote.environment.push_back(entry_of(given));
  }
  const bool given = !remote.master_address.empty();
  if (!given) remote.master_address = address_of(remote.hosts[0].host);
  for (const launch::HostSlots& host : remote.hosts) {
    VALIDATE(given || !is_this_host(remote.master_address) || is_this_host(address_of(host.host)),
             "{}: the first host is {}, which {} cannot reach; name it as others do, or give "
             "--master-addr",
             options.hostfile, remote.master_address, printable(host.host));
  }
  if (const std::string& first = remote.command.front();
      first == "run" || first == "verify" || first == "train") {
    std::error_code error;
    remote.command.insert(remote.command.begin(),
                          std::filesystem::read_symlink("/proc/self/exe", error).string());
  }
  return launch::launch_remotely(remote);
}

}  // namespace

void add_launch(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<LaunchVerbOptions>();
  CLI::App& verb = *app.add_subcommand(
      "launch", "Starts a command on all hosts of a hostfile, a process a rank");
  verb.add_option("--hostfile", options->hostfile, "Lines HOST slots=N: ranks, host by host")
      ->required();
  verb.add_option("--rsh", options->rsh,
                  "Command that runs a line of shell on a host, called with host and line")
      ->capture_default_str();
  verb.add_option("--master-addr", options->master_address,
                  "Address of rank 0's host, where the ranks meet; the first host of the file");
  add_integer(verb, "--master-port", options->master_port, {1, 65535}, "Port there");
  verb.add_option("--env", options->environment,
                  "NAME, or NAME=value: also set there (PATH, LD_LIBRARY_PATH and variables of "
                  "heterog, Python, PyTorch, OpenMP, CUDA, NCCL and Gloo are anyway)")
      ->allow_extra_args(false);
  verb.add_option("--chdir", options->folder,
                  "Folder to run in, there; this one's name if not given");
  verb.add_option("command", options->command,
                  "What to run, behind --: run, verify or train with their options, or any program")
      ->required();
  verb.footer(
      "Example:\n  heterog launch --hostfile hosts -- run --graph G --cluster C --plan plan.json\n"
      "  heterog launch --hostfile hosts -- python train.py --epochs 3\n"
      "Each process gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT. "
      "When one fails, all end, and the exit code is its own (docs/running.md).");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_launch(*options, caller); };
  });
}

}  // namespace heterog::cli
