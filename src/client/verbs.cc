// Puts the verbs of src/cli into the caller's process, one at a time.
#include "client/verbs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <mutex>
#include <string_view>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/app.h"
#include "client/process_kept.h"

namespace heterog::client {

namespace {

// The others start processes, or take hours that should not end with somebody's interpreter.
constexpr std::array<std::string_view, 9> kVerbs = {
    "plan", "simulate", "compare", "shares", "explain", "diff", "report", "verify", "planners"};

void check_verb(const std::vector<std::string>& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments.front();
  VALIDATE(std::find(kVerbs.begin(), kVerbs.end(), verb) != kVerbs.end(),
           "no verb \"{}\" in the library; it has {}", printable(verb), fmt::join(kVerbs, ", "));
}

// One verb at a time: PyTorch's number of threads, its type of floats and its generator of random
// numbers, which verbs set and put back, are of the whole process.
std::unique_lock<std::timed_mutex> wait_for_others(const std::function<bool()>& stopped) {
  static std::timed_mutex running;
  std::unique_lock lock(running, std::defer_lock);
  while (!lock.try_lock_for(std::chrono::milliseconds(20))) expect_not_stopped(stopped);
  return lock;
}

}  // namespace

RunVerb run_verb(const std::vector<std::string>& arguments, const std::int32_t* stop) {
  RunVerb run;
  const cli::Caller caller{
      .print = [&](std::string_view text) { run.output += text; },
      .stopped = [stop] { return stop != nullptr && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0; },
      .is_program = false};
  run.ending = cli::ending_of([&] {
    check_verb(arguments);
    const auto alone = wait_for_others(caller.stopped);
    const ProcessKept kept(ProcessKept::Begins::kAsProgram);
    set_log_level("warn");
    return cli::run_arguments(arguments, caller);
  });
  return run;
}

}  // namespace heterog::client
