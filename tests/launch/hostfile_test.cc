// Hostfiles: what is read, what is refused, which ranks a host runs.
#include "launch/hostfile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/json_reader.h"

namespace heterog::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Hostfile, HasAHostALine) {
  EXPECT_THAT(parse_hostfile("# the rack\n"
                             "big slots=4\n"
                             "\n"
                             "  small\tslots=1  # old\r\n"
                             "10.0.0.7\n",
                             "hosts"),
              ElementsAre(HostSlots{"big", 4}, HostSlots{"small", 1}, HostSlots{"10.0.0.7", 1}));
}

TEST(Hostfile, AddsUpLinesOfOneHost) {
  EXPECT_THAT(parse_hostfile("a slots=2\nb slots=1\na slots=3", "hosts"),
              ElementsAre(HostSlots{"a", 5}, HostSlots{"b", 1}));
}

TEST(Hostfile, SaysWhichLineIsWrong) {
  const auto refused = [](const std::string& text) {
    try {
      parse_hostfile(text, "hosts");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refused("a\nb slots=0\n"), AllOf(HasSubstr("hosts:2:"), HasSubstr("slots=0")));
  EXPECT_THAT(refused("a slots=two"), AllOf(HasSubstr("hosts:1:"), HasSubstr("slots=two")));
  EXPECT_THAT(refused("a slots=-1"), HasSubstr("slots=-1"));
  EXPECT_THAT(refused("a slots="), HasSubstr("hosts:1:"));
  EXPECT_THAT(refused("a slots=99999999999999999999"), HasSubstr("1 to 1024"));
  EXPECT_THAT(refused("a gpus=2"), HasSubstr("gpus=2"));
  EXPECT_THAT(refused("\na slots=2 b"), AllOf(HasSubstr("hosts:2:"), HasSubstr("\"b\"")));
  EXPECT_THAT(refused("slots=2"), HasSubstr("where the host should be"));
  EXPECT_THAT(refused("a slots=1000\na slots=1000"), HasSubstr("hosts:2:"));
  EXPECT_THAT(refused("# none\n"), HasSubstr("names no host"));
  EXPECT_THAT(refused(std::string("a\x01")), HasSubstr("hosts:1:"));
}

// The same table as of Python's reader (python/tests/base/test_values.py).
TEST(Hostfile, RefusesWhatAShellOrSshWouldTakeForMoreThanAName) {
  const auto taken = [](const std::string& host) {
    try {
      const auto hosts = parse_hostfile(host, "hosts");
      return hosts.size() == 1 && hosts[0].host == host;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return false;
    }
  };
  const Json names = read_json_file("tests/data/names.json");
  for (const std::string host : names["hosts"]["accepted"]) EXPECT_TRUE(taken(host)) << host;
  for (const std::string host : names["hosts"]["refused"]) EXPECT_FALSE(taken(host)) << host;
}

TEST(Hostfile, NumbersRanksHostByHost) {
  const std::vector<HostSlots> hosts{{"a", 3}, {"b", 1}, {"c", 2}};
  const auto ranks = [&](const char* host) {
    const HostRanks ranks = ranks_of_host(hosts, host, "hosts");
    EXPECT_EQ(ranks.world_size, 6);
    return std::pair(ranks.first, ranks.count);
  };
  EXPECT_EQ(ranks("a"), std::pair(0, 3));
  EXPECT_EQ(ranks("b"), std::pair(3, 1));
  EXPECT_EQ(ranks("c"), std::pair(4, 2));
  try {
    ranks("d");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"d\""), HasSubstr("a, b, c")));
  }
}

}  // namespace
}  // namespace heterog::launch
