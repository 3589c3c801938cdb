// Settings of PyTorch for the whole process, which our work changes for a while and puts back.
#pragma once

#include <cstdint>
#include <memory>

namespace heterog::client {

// Puts the caller's number of threads and type of floats back. Without LibTorch there is nothing to
// keep (no_process_kept.cc).
class ProcessKept {
 public:
  // What runs the caller's own step begins with his settings, a verb with those of a program.
  enum class Begins : std::uint8_t { kAsCaller, kAsProgram };
  explicit ProcessKept(Begins begins);
  ~ProcessKept();
  ProcessKept(const ProcessKept&) = delete;
  ProcessKept& operator=(const ProcessKept&) = delete;

 private:
  struct Settings;
  std::unique_ptr<const Settings> settings_;
};

}  // namespace heterog::client
