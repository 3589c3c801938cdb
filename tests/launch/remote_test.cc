// How a remote shell is called for a rank; tests/cli/launch_test.cc starts some.
#include "launch/remote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heterog::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Remote, SaysToSshWhereItsOptionsEnd) {
  RemoteOptions options{.hosts = {{"big", 2}, {"me@small", 1}},
                        .rsh = {"ssh", "-o", "BatchMode=yes"},
                        .command = {"true"},
                        .folder = "/",
                        .master_address = "big"};
  EXPECT_THAT(remote_command(options, 2), ElementsAre("ssh", "-o", "BatchMode=yes", "--",
                                                      "me@small", HasSubstr("export RANK=2")));
  options.rsh = {"/usr/bin/ssh"};
  EXPECT_THAT(remote_command(options, 1), ElementsAre("/usr/bin/ssh", "--", "big", testing::_));
  options.rsh = {"/opt/reach"};  // called with host and line alone
  EXPECT_THAT(remote_command(options, 0), ElementsAre("/opt/reach", "big", testing::_));
}

}  // namespace
}  // namespace heterog::launch
