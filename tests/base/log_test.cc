// Logging goes to stderr at the level that was asked for.
#include "base/log.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace heterog {
namespace {

TEST(Log, KeepsToItsLevelAndLeavesStdoutAlone) {
  start_logging("warn");
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  spdlog::info("not shown");
  spdlog::warn("shown");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "heterog: warning: shown\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Log, UnknownLevel) {
  try {
    start_logging("loud");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "log level \"loud\": expected debug, info, warn or error");
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
  }
}

}  // namespace
}  // namespace heterog
