// Settings of PyTorch for the whole process, which our work changes for a while and puts back.
#pragma once

#include <memory>

namespace heterog::client {

// Begins as a program does, and puts the caller's number of threads and type of floats back.
// Without LibTorch there is nothing to keep (no_process_kept.cc).
class ProcessKept {
 public:
  ProcessKept();
  ~ProcessKept();
  ProcessKept(const ProcessKept&) = delete;
  ProcessKept& operator=(const ProcessKept&) = delete;

 private:
  struct Settings;
  std::unique_ptr<const Settings> settings_;
};

}  // namespace heterog::client
