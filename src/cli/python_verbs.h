// Verbs that are written in Python: `heterog discover …` runs `python3 -m heterog.discover …`.
#pragma once

#include <span>
#include <string>

namespace heterog::cli {

struct PythonVerb {
  const char* name;      // "import-profile"
  const char* module;    // "heterog.import_profile"
  const char* one_line;  // for the list of verbs
};

std::span<const PythonVerb> python_verbs();
bool is_python_verb(const std::string& name);

// Becomes the verb, with all arguments that follow its name in `argv`, which ends with a nullptr.
// Returns only by throwing: there is no Python.
//
// The interpreter is $HETEROG_PYTHON (the command of the wheel sets it), else the one of the
// checkout that the program was built in, else `python3`. The package is the checkout's, where
// there is one, and runs this same program.
[[noreturn]] void run_python_verb(char** argv);

}  // namespace heterog::cli
