// Verbs in Python: which interpreter runs them, and with what.
#include <gmock/gmock.h>

#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class PythonVerbsTest : public ProgramTest {};

// An echo in place of Python shows what it is given.
TEST_F(PythonVerbsTest, GetEveryArgumentAsItIs) {
  const Finished done = run_under("HETEROG_PYTHON=/bin/echo",
                                  "import-profile --out 'a b' plan --help --version -- run");
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(done.out, "-m heterog.import_profile --out a b plan --help --version -- run\n");
  EXPECT_EQ(run_under("HETEROG_PYTHON=/bin/echo", "discover").out, "-m heterog.discover\n");
}

TEST_F(PythonVerbsTest, FindThePackageAndThisProgram) {
  const std::string script =
      write("python", "#!/bin/sh\necho \"$PYTHONPATH $HETEROG_BIN\"; exit 7\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const Finished done = run_under("PYTHONPATH=/before HETEROG_PYTHON='" + script + "'", "export");
  EXPECT_EQ(done.code, 7);
  EXPECT_THAT(done.out, AllOf(HasSubstr("/python:/before "), HasSubstr("/bin/heterog\n")));
}

TEST_F(PythonVerbsTest, SayThatThereIsNoPython) {
  const Finished done = run_under("HETEROG_PYTHON=/nowhere/python", "discover");
  EXPECT_EQ(done.code, 2);
  EXPECT_THAT(done.err, AllOf(HasSubstr("/nowhere/python"), HasSubstr("HETEROG_PYTHON")));
}

TEST_F(PythonVerbsTest, AreListedAndGuessed) {
  EXPECT_THAT(run("--help").out, HasSubstr("import-profile"));
  EXPECT_THAT(run("discovr").err, HasSubstr("discover"));
}

}  // namespace
}  // namespace heterog::cli
