// Processes that belong together: what they say is passed on line by line, and when one fails, or
// this process is told to end, all of them end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heterog::launch {

struct ChildCommand {
  std::string label;                     // what its lines begin with: "[rank 1 a/gpu1] "
  std::string program;                   // a path, or a name that is looked for in PATH
  std::vector<std::string> arguments;    // with the program's name
  std::vector<std::string> environment;  // "NAME=value"
  int keep_open = -1;                    // a descriptor that it inherits
  bool quiet = false;                    // what it prints to stdout goes nowhere
  // It stands for a process on another host: signals go to it as lines on its stdin ("TERM"), as a
  // connection passes on nothing else, and what it prints is passed on with its label too. Else it
  // has our stdin and stdout.
  bool remote = false;
};

struct Child {
  ChildCommand command;
  pid_t process = -1;
  int in = -1, out = -1, err = -1;  // our ends; -1: closed, or not ours
  std::string out_line, err_line;   // that it is writing
  std::string error;                // the message of its Error
  std::optional<int> status;
  bool ended_by_us = false;

  bool failed_by_signal() const;
};

std::string signal_text(int number);  // "signal 9 (SIGKILL)"

struct ChildrenOptions {
  // How long the others may take to end on their own once one has failed, before SIGTERM.
  std::chrono::milliseconds grace{1'500};
  // How long they may take to obey a signal before SIGKILL; none: as long as `grace`.
  std::optional<std::chrono::milliseconds> obey;
  // How long after the first that ended well the others may take; none: for ever.
  std::optional<std::chrono::milliseconds> timeout;
};

// How it went, once all have ended.
struct ChildrenEnd {
  std::vector<Child> children;              // in the order of the commands
  std::optional<std::size_t> first_fallen;  // which failed first
  std::optional<std::size_t> first_done;    // which ended well first
  std::optional<std::size_t> late;          // that did not end with it
  std::optional<int> told;                  // the signal that this process was sent
};

// Starts them and returns when all have ended. SIGINT, SIGTERM and SIGHUP are passed on to all.
// Children do not outlive this process. Call from the thread that lives longest: the kernel ends
// them with it. `started` is called once all have been started. Throws if one cannot be.
ChildrenEnd run_children(std::vector<ChildCommand> commands, const ChildrenOptions& options,
                         const std::function<void()>& started = {});

}  // namespace heterog::launch
