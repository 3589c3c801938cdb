// Forks, and asks the system what the child took.
#include "support/peak.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

#include "base/check.h"

namespace heterog::support {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

// In the child: tells the parent what was wrong.
[[noreturn]] void run(const std::function<void()>& body, int to) {
  int status = 0;
  try {
    body();
  } catch (const Error& error) {
    const std::string_view what = error.what();
    status = error.kind() == ErrorKind::kInput &&
                     ::write(to, what.data(), what.size()) == static_cast<ssize_t>(what.size())
                 ? 2
                 : 1;
  } catch (...) {
    status = 1;
  }
  ::_exit(status);
}

}  // namespace

Attempt attempt(const std::function<void()>& body) {
  int ends[2];
  require(::pipe(ends) == 0, "no pipe");
  const pid_t child = ::fork();
  require(child >= 0, "no process");
  if (child == 0) run(body, ends[1]);
  ::close(ends[1]);
  Attempt result;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof(buffer))) > 0;) {
    result.error.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  rusage usage = {};
  require(::wait4(child, &status, 0, &usage) == child, "no child");
  require(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2),
          "the child ended by something else than an input error");
  if (!kSanitized) result.peak_megabytes = static_cast<double>(usage.ru_maxrss) / 1024;
  return result;
}

}  // namespace heterog::support
