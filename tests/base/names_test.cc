// The table of names that Python's readers are tested with, too.
#include "base/names.h"

#include <gtest/gtest.h>

#include "base/json_reader.h"

namespace heterog {
namespace {

TEST(Names, AreThoseOfTheTable) {
  const Json names = read_json_file("tests/data/names.json");
  for (const std::string host : names["hosts"]["accepted"]) EXPECT_TRUE(is_host_name(host)) << host;
  for (const std::string host : names["hosts"]["refused"]) EXPECT_FALSE(is_host_name(host)) << host;
  for (const std::string file : names["files"]["accepted"]) EXPECT_TRUE(is_file_name(file)) << file;
  for (const std::string file : names["files"]["refused"]) EXPECT_FALSE(is_file_name(file)) << file;
}

TEST(Names, OfNoUtf8AreNone) {
  EXPECT_FALSE(is_file_name("a\xff"));
  EXPECT_FALSE(is_host_name("a\xff"));
}

}  // namespace
}  // namespace heterog
