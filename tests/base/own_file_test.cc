// What is installed with a program is found from where the program lies.
#include "base/own_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"

namespace heterog {
namespace {

TEST(OwnFile, OfAProgramIsTheProgram) {
  EXPECT_EQ(own_file(), std::filesystem::read_symlink("/proc/self/exe").string());
}

TEST(OwnFile, NearestAboveStopsAtTheFirst) {
  namespace fs = std::filesystem;
  const fs::path top = fs::path(testing::TempDir()) / ("own_file_" + std::to_string(getpid()));
  fs::create_directories(top / "a/b");
  fs::create_directories(top / "a/configs");
  fs::create_directories(top / "configs");
  const std::string program = (top / "a/b/program").string();
  EXPECT_EQ(nearest_above(program, "configs/own_file_test.json"), "");
  write_file((top / "configs/own_file_test.json").string(), "1");
  EXPECT_EQ(nearest_above(program, "configs/own_file_test.json"),
            (top / "configs/own_file_test.json").string());
  write_file((top / "a/configs/own_file_test.json").string(), "2");
  EXPECT_EQ(nearest_above(program, "configs/own_file_test.json"),
            (top / "a/configs/own_file_test.json").string());
  EXPECT_EQ(nearest_above("", "configs/own_file_test.json"), "");
  fs::remove_all(top);
}

}  // namespace
}  // namespace heterog
