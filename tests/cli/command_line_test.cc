// Every option of every verb that takes a number: what is no number, or out of range, is refused.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <regex>

#include "cli/app.h"
#include "cli/options.h"

namespace heterog::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// What is said of the arguments; empty: this option is content.
std::string said_of(const std::string& verb, const std::string& option, const std::string& word) {
  Action chosen;
  const auto app = make_app(chosen);
  std::vector<std::string> reversed = {word, option, verb};
  try {
    app->parse(reversed);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  } catch (const CLI::ParseError&) {  // other options are missing
  }
  return "";
}

struct Option {
  std::string verb;
  std::string name;
  std::string type;
  std::string help;
};

std::vector<Option> all_options() {
  std::vector<Option> options;
  Action chosen;
  const auto app = make_app(chosen);
  for (const CLI::App* verb : app->get_subcommands({})) {
    for (const CLI::Option* option : verb->get_options()) {
      const std::string name =
          option->get_lnames().empty() ? "" : "--" + option->get_lnames().front();
      options.push_back(
          {verb->get_name(), name, option->get_type_name(), option->get_description()});
    }
  }
  return options;
}

bool is_numeric(const Option& option) {
  return option.type == kIntegerWord || option.type == kNumberWord;
}

TEST(Numbers, AreTakenByCheckedOptionsAlone) {
  std::size_t numeric = 0;
  for (const Option& option : all_options()) {
    SCOPED_TRACE(option.verb + " " + option.name);
    numeric += is_numeric(option);
    // What CLI11 calls the types of numbers that it reads by itself.
    EXPECT_NE(option.type, "INT");
    EXPECT_NE(option.type, "UINT");
    EXPECT_NE(option.type, "FLOAT");
    EXPECT_EQ(option.type.find(":"), std::string::npos) << option.type;  // or checks
  }
  EXPECT_GT(numeric, 30u);
}

TEST(Numbers, OutOfRangeOrNoneAreRefused) {
  const std::vector<std::string> never = {"",
                                          " 8",
                                          "8 ",
                                          "+8",
                                          "x",
                                          "8x",
                                          "0x10",
                                          "1_0",
                                          "1,x",
                                          "nan",
                                          "inf",
                                          "-inf",
                                          "1e300",
                                          "-1",
                                          "1e400",
                                          "--8",
                                          "8\n",
                                          "٨",
                                          "18446744073709551616",
                                          "9999999999999999999"};
  const std::regex range(R"(.*\((\S+) to (\S+)\)$)");
  for (const Option& option : all_options()) {
    if (!is_numeric(option)) continue;
    SCOPED_TRACE(option.verb + " " + option.name);
    std::smatch ends;
    ASSERT_TRUE(std::regex_match(option.help, ends, range)) << option.help;
    const std::string least = ends[1], most = ends[2];
    EXPECT_EQ(said_of(option.verb, option.name, least), "");
    EXPECT_EQ(said_of(option.verb, option.name, most), "");
    std::vector<std::string> bad = never;
    if (option.type == kIntegerWord) {
      bad.push_back(std::to_string(std::stoll(least) - 1));
      if (std::stoll(most) < std::numeric_limits<std::int64_t>::max()) {
        bad.push_back(std::to_string(std::stoll(most) + 1));
      }
      bad.insert(bad.end(), {"1.5", "1e3"});
    } else {
      bad.push_back(fmt::format("{:g}", std::stod(least) / 2));
      bad.push_back(fmt::format("{:g}", std::stod(most) * 2));
      bad.push_back("-" + least);
    }
    for (const std::string& word : bad) {
      EXPECT_THAT(said_of(option.verb, option.name, word),
                  AllOf(HasSubstr(option.name + ": "), HasSubstr(least), HasSubstr(most)))
          << '"' << word << '"';
    }
  }
}

// Numbers inside of words.
TEST(Numbers, InTexts) {
  EXPECT_EQ(parse_integer("--a", "-3", {-3, 4}), -3);
  EXPECT_EQ(parse_integer("--a", "4", {-3, 4}), 4);
  EXPECT_EQ(parse_number("--a", "1e-3", kDurations), 1e-3);
  EXPECT_EQ(parse_number("--a", "2.5", kDurations), 2.5);
  EXPECT_THROW(parse_number("--a", "0", kDurations), Error);
}

std::string usage_of(std::vector<std::string> arguments) {
  Action chosen;
  const auto app = make_app(chosen);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app->parse(arguments);
  } catch (const CLI::ParseError& error) {
    return usage_error(*app, error);
  }
  return "";
}

TEST(Usage, NamesTheNearestVerbOrOption) {
  EXPECT_EQ(usage_of({"plna"}), "no verb \"plna\" (did you mean plan?) (see heterog --help)");
  EXPECT_EQ(usage_of({"fine-tune", "--seed", "1"}),
            "no verb \"fine-tune\" (did you mean finetune?) (see heterog --help)");
  EXPECT_EQ(usage_of({"frobnicate"}), "no verb \"frobnicate\" (see heterog --help)");
  EXPECT_EQ(usage_of({"plan", "--bacth", "8"}),
            "no option --bacth (did you mean --batch?) (see heterog plan --help)");
  EXPECT_EQ(usage_of({"plan", "--grpah=g.json"}),
            "no option --grpah (did you mean --graph?) (see heterog plan --help)");
  EXPECT_EQ(usage_of({"--verison"}),
            "no option --verison (did you mean --version?) (see heterog --help)");
  EXPECT_THAT(usage_of({}), HasSubstr("(see heterog --help)"));
  EXPECT_THAT(usage_of({"plan", "--batch", "8"}),
              AllOf(HasSubstr("--graph"), HasSubstr("(see heterog plan --help)")));
}

}  // namespace
}  // namespace heterog::cli
