// Profile files: what is written is read, what makes no sense is refused.
#include "cost/profile_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "cost/profiles.h"

namespace heterog::cost {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    parse_profile(text, "p.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

// The chain's profile with one piece of its text replaced.
std::string with(const std::string& from, const std::string& to) {
  std::string text = profile_text(chain_profile());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(ProfileFile, ComesBackAsItWas) {
  const Profile profile = chain_profile();
  const std::string text = profile_text(profile);
  const Profile read = parse_profile(text, "p.json");
  EXPECT_EQ(profile_text(read), text);
  EXPECT_EQ(read.graph_hash, profile.graph_hash);
  EXPECT_EQ(read.device, "fast");
  EXPECT_EQ(read.slices, profile.slices);
  ASSERT_EQ(read.operators.size(), 2u);
  EXPECT_EQ(read.operators[0].fit.at(7), profile.operators[0].fit.at(7));
  EXPECT_EQ(read.operators[0].measured[2].seconds, 9e-3);
  EXPECT_EQ(read.links[0].bytes_per_second, profile.links[0].bytes_per_second);
  EXPECT_TRUE(read.finished);
}

TEST(ProfileFile, SaysWhatHoldsBetweenSizes) {
  EXPECT_EQ(parse_profile(profile_text(chain_profile()), "p.json").between, Between::kLine);
  Profile run = chain_profile();
  run.between = Between::kModel;
  EXPECT_EQ(parse_profile(profile_text(run), "p.json").between, Between::kModel);
  EXPECT_EQ(refusal(with("\"finished\"", "\"between\": \"nothing\",\n\"finished\"")),
            "p.json: between: \"nothing\" given; it is line or model");
}

TEST(ProfileFile, RefusesAnotherFormatOrVersion) {
  EXPECT_THAT(refusal(with("heterog-profile", "heterog-plan")),
              AllOf(HasSubstr("p.json: format"), HasSubstr("\"heterog-profile\"")));
  EXPECT_THAT(refusal(with("\"version\": 1", "\"version\": 2")),
              AllOf(HasSubstr("p.json: version"), HasSubstr("expected 1, found 2")));
  EXPECT_THAT(refusal(with("\"hash\":\"", "\"hash\":\"x")), HasSubstr("graph.hash"));
}

TEST(ProfileFile, RefusesCostsThatMakeNoSense) {
  const std::string constant = "\"fixed_seconds\":0.005,\"seconds_per_sample\":0.0";
  EXPECT_THAT(refusal(with(constant, "\"fixed_seconds\":0,\"seconds_per_sample\":0")),
              AllOf(HasSubstr("p.json: operators[1]"), HasSubstr("both 0")));
  EXPECT_THAT(refusal(with(constant, "\"fixed_seconds\":-0.005,\"seconds_per_sample\":0.0")),
              AllOf(HasSubstr("operators[1].fixed_seconds"), HasSubstr("-0.005")));
  EXPECT_THAT(refusal(with(constant, "\"fixed_seconds\":0.005,\"seconds_per_sample\":-1e-9")),
              HasSubstr("operators[1].seconds_per_sample"));
  // Writers have no other form for an infinite number.
  EXPECT_THAT(refusal(with(constant, "\"fixed_seconds\":null,\"seconds_per_sample\":0.0")),
              HasSubstr("operators[1].fixed_seconds"));
  EXPECT_THAT(refusal(with(constant, "\"fixed_seconds\":1e999,\"seconds_per_sample\":0.0")),
              HasSubstr("p.json"));
  EXPECT_THAT(
      refusal(with(constant, "\"fixed_seconds\":0.005")),
      AllOf(HasSubstr("operators[1]"), HasSubstr("seconds_per_sample"), HasSubstr("missing")));
  EXPECT_THAT(refusal(with("\"seconds\":0.009", "\"seconds\":0")),
              HasSubstr("operators[0].measured[2].seconds"));
  EXPECT_THAT(
      refusal(with("\"samples\":4", "\"samples\":2")),
      AllOf(HasSubstr("operators[0].measured[2]"), HasSubstr("2 samples"), HasSubstr("once")));
  EXPECT_THAT(refusal(with("\"bandwidth_bytes_per_second\":", "\"bandwidth_bytes_per_second\":-")),
              HasSubstr("links[0].bandwidth_bytes_per_second"));
}

// Of which nanoseconds overflow.
TEST(ProfileFile, RefusesMeasuredTimesThatAreTooLong) {
  EXPECT_THAT(refusal(with("\"seconds\":0.009", "\"seconds\":9007199254740992")),
              AllOf(HasSubstr("p.json: operators[0]"), HasSubstr("seconds")));
}

TEST(ProfileFile, RefusesUnknownKeysAndOpsCostedTwice) {
  EXPECT_THAT(refusal(with("\"threads\"", "\"treads\"")), HasSubstr("threads"));
  EXPECT_THAT(refusal(with("[\"last\"]", "[\"first\"]")),
              AllOf(HasSubstr("operators[1].ops[0]"), HasSubstr("'first'")));
}

TEST(ProfileFile, RefusesATruncatedFile) {
  const std::string text = profile_text(chain_profile());
  for (std::size_t length : {std::size_t{0}, text.size() / 3, text.size() - 2}) {
    EXPECT_THAT(refusal(text.substr(0, length)), HasSubstr("p.json")) << length;
  }
}

}  // namespace
}  // namespace heterog::cost
