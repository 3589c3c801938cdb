// Which verbs Python has, and how the program becomes one of them.
#include "cli/python_verbs.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/check.h"

namespace heterog::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array<PythonVerb, 4> kVerbs = {
    {{"discover", "heterog.discover", "Describes machines in a cluster file, by looking at them"},
     {"export", "heterog.export", "Writes the training step of a PyTorch model as a graph"},
     {"import-profile", "heterog.import_profile",
      "Writes a profile of another planner as a graph and its costs"},
     {"import-timings", "heterog.import_timings",
      "Writes costs and links by what a script of plain PyTorch DDP took"}}};

fs::path own_path() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

// The folder above the program that has the package in python/, if it lies in a checkout. In a
// wheel the package stands around the program, wherever that is installed.
std::optional<fs::path> checkout() {
  std::error_code error;
  if (fs::is_regular_file(own_path().parent_path().parent_path() / "__init__.py", error)) {
    return std::nullopt;
  }
  for (fs::path folder = own_path().parent_path(); folder != folder.parent_path();
       folder = folder.parent_path()) {
    if (fs::is_regular_file(folder / "python/heterog/__init__.py", error)) return folder;
  }
  return std::nullopt;
}

// A folder in front of the others of a variable.
void prepend(const char* variable, const std::string& folder) {
  const char* before = std::getenv(variable);
  const std::string value = before && *before ? folder + ":" + before : folder;
  setenv(variable, value.c_str(), 1);
}

}  // namespace

std::span<const PythonVerb> python_verbs() { return kVerbs; }

bool is_python_verb(const std::string& name) {
  return std::any_of(kVerbs.begin(), kVerbs.end(),
                     [&](const PythonVerb& verb) { return name == verb.name; });
}

void run_python_verb(char** argv) {
  const auto verb = std::find_if(kVerbs.begin(), kVerbs.end(), [&](const PythonVerb& candidate) {
    return std::string(argv[0]) == candidate.name;
  });
  EXPECT(verb != kVerbs.end());
  std::string python = "python3";
  std::error_code error;
  if (const std::optional<fs::path> root = checkout()) {
    prepend("PYTHONPATH", (*root / "python").string());
    const fs::path own = *root / ".venv/bin/python";
    if (fs::exists(own, error)) python = own.string();
  }
  if (const char* given = std::getenv("HETEROG_PYTHON"); given && *given) python = given;
  setenv("HETEROG_BIN", own_path().c_str(), 0);
  std::string flag = "-m", module = verb->module;
  std::vector<char*> arguments = {python.data(), flag.data(), module.data()};
  while (*++argv) arguments.push_back(*argv);
  arguments.push_back(nullptr);
  execvp(python.c_str(), arguments.data());
  throw Error(
      ErrorKind::kInput,
      fmt::format("{}: cannot be started: {}; heterog {} is a verb in Python: install it, or "
                  "set HETEROG_PYTHON to an interpreter that has heterog's package",
                  python, std::strerror(errno), verb->name));
}

}  // namespace heterog::cli
