// The one exception type, and the tiers of checks: EXPECT for bugs, VALIDATE for input.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace heterog {

// The kind of error, in terms of the process's exit code (docs/design.md §9).
enum class ErrorKind {
  kBug = 1,           // a broken invariant of ours
  kInput = 2,         // bad usage or input
  kInfeasible = 3,    // no plan fits in memory
  kVerification = 4,  // verification or run failed
};

// The only exception heterog throws; caught in src/cli/ending.cc and, where C calls, in
// src/client/heterog.cc alone. The message is one line.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

[[noreturn]] void fail_expect(const char* condition, const char* file, int line);

template <class... Args>
[[noreturn]] void fail_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::kInput, fmt::format(format, std::forward<Args>(args)...));
}

// Throws if whoever waits has asked to give up; an empty function never does.
void expect_not_stopped(const std::function<bool()>& stopped);

}  // namespace heterog

// Input check, always on. The message names file and field, what is wrong, what would be right.
#define VALIDATE(condition, ...)                          \
  do {                                                    \
    if (!(condition)) ::heterog::fail_input(__VA_ARGS__); \
  } while (false)

// Internal invariant, on in dev and sanitizer builds. ENSURE is the same, always on: for checks
// that cost nothing beside what they guard.
#define ENSURE(condition)                                                     \
  do {                                                                        \
    if (!(condition)) ::heterog::fail_expect(#condition, __FILE__, __LINE__); \
  } while (false)
#ifdef HETEROG_CHECKS
#define EXPECT(condition) ENSURE(condition)
#else
#define EXPECT(condition) \
  do {                    \
  } while (false)
#endif
