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

TEST(OwnFile, WhatIsNotHereMayHaveBeenShipped) {
  namespace fs = std::filesystem;
  const fs::path own = fs::path(own_file()).parent_path();
  const std::string name = "own_file_" + std::to_string(getpid());
  fs::create_directories(own / name);
  const std::string shipped = (own / name / "one.json").string();
  write_file(shipped, "1");
  EXPECT_EQ(here_or_shipped(name + "/one.json", "models", ".json"), shipped);  // by its path
  EXPECT_EQ(here_or_shipped("one", name, ".json"), shipped);                   // by its name
  // Neither here nor shipped: as given.
  EXPECT_EQ(here_or_shipped("two", name, ".json"), "two");
  EXPECT_EQ(here_or_shipped(name + "/one", name, ".json"), name + "/one");
  EXPECT_EQ(here_or_shipped("", name, ".json"), "");
  // A file of the user's own comes first, and a full path means itself.
  const fs::path before = fs::current_path();
  const fs::path here = fs::path(testing::TempDir()) / name;
  fs::create_directories(here / name);
  fs::current_path(here);
  write_file("one", "2");
  write_file(name + "/one.json", "2");
  EXPECT_EQ(here_or_shipped("one", name, ".json"), "one");
  EXPECT_EQ(here_or_shipped(name + "/one.json", "models", ".json"), name + "/one.json");
  EXPECT_EQ(here_or_shipped("/" + name + "/one.json", "", ""), "/" + name + "/one.json");
  fs::current_path(before);
  fs::remove_all(own / name);
  fs::remove_all(here);
}

}  // namespace
}  // namespace heterog
