// Runs the heterog program and keeps what it says; a folder of its own for what it writes.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "nlohmann/json.hpp"

namespace heterog::cli {

struct Finished {
  int code = -1;  // exit code; -1: ended by a signal
  std::string out;
  std::string err;
};

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("heterog_cli_" + std::string(test->name()) + "_" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    write_file(path(name), text);
    return path(name);
  }
  // `arguments` as in a shell.
  Finished run(const std::string& arguments) const { return run_under("", arguments); }
  // Started by another command, as timeout.
  Finished run_under(const std::string& starter, const std::string& arguments) const {
    Finished finished = start(starter, arguments, path("stdout"));
    finished.out = read_file(path("stdout"));
    return finished;
  }
  // What it prints goes elsewhere.
  Finished run_into(const std::string& file, const std::string& arguments) const {
    return start("", arguments, file);
  }
  static nlohmann::json json(const Finished& run) { return nlohmann::json::parse(run.out); }

 private:
  Finished start(const std::string& starter, const std::string& arguments,
                 const std::string& output) const {
    const std::string command = starter + " '" + HETEROG_PROGRAM + "' " + arguments + " >'" +
                                output + "' 2>'" + path("stderr") + "' </dev/null";
    const int status = std::system(command.c_str());
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1, .err = read_file(path("stderr"))};
  }
  std::filesystem::path folder_;
};

// Machines m-0, m-1, … of two CPUs whose hosts serve parameters.
inline std::string served_cluster(int machines) {
  return R"({"format": "heterog-cluster", "version": 1, "name": "served", "machines": [
      {"name": "m", "count": )" +
         std::to_string(machines) + R"(, "devices": [{"model": "CPU", "count": 2}],
       "fabric": {"kind": "switch", "bandwidth_bytes_per_second": 1e9, "latency_seconds": 1e-5},
       "nic": {"bandwidth_bytes_per_second": 1e9, "latency_seconds": 1e-5},
       "host_model": "CPU", "host_memory_bytes": 8589934592, "serves_parameters": true}]})";
}

inline const std::string kTiny =
    "--graph models/vgg19-tiny.json.gz --cluster configs/clusters/heterog-4gpu.json --batch 32";

}  // namespace heterog::cli
