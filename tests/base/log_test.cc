// Logging goes to stderr at the level that was asked for.
#include "base/log.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace heterog {
namespace {

std::string logged() {
  testing::internal::CaptureStderr();
  logger().debug("1");
  logger().info("2");
  logger().warn("3");
  logger().error("4");
  return testing::internal::GetCapturedStderr();
}

TEST(Log, KeepsToItsLevelAndLeavesStdoutAlone) {
  log_to_stderr();
  testing::internal::CaptureStdout();
  const std::string warnings = "heterog: warning: 3\nheterog: error: 4\n";
  EXPECT_EQ(logged(), warnings);
  set_log_level("error");
  EXPECT_EQ(logged(), "heterog: error: 4\n");
  set_log_level("info");
  EXPECT_EQ(logged(), "heterog: info: 2\n" + warnings);
  set_log_level("debug");
  EXPECT_EQ(logged(), "heterog: debug: 1\nheterog: info: 2\n" + warnings);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Log, UnknownLevel) {
  try {
    set_log_level("loud");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--log-level: \"loud\" given; it is error, warn, info or debug");
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
  }
}

}  // namespace
}  // namespace heterog
