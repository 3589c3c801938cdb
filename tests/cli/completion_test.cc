// heterog completion: what bash is offered.
#include <gmock/gmock.h>

#include <sstream>

#include "cli/program.h"

namespace heterog::cli {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

using Words = std::vector<std::string>;

class CompletionTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    const Finished script = run("completion bash");
    ASSERT_EQ(script.code, 0) << script.err;
    write("completion.bash", script.out);
  }
  // What bash offers for the last of these words, of a command line in a folder with one file.
  Words offered(const Words& words) const {
    std::filesystem::create_directories(path("here"));
    write("here/graph.json", "{}");
    std::string line =
        "source '" + path("completion.bash") + "'; cd '" + path("here") + "'; COMP_WORDS=(heterog";
    for (const std::string& word : words) line += " '" + word + "'";
    line += "); COMP_CWORD=" + std::to_string(words.size()) +
            "; _heterog; printf '%s\\n' \"${COMPREPLY[@]}\"";
    write("ask.bash", line);
    const std::string command = "bash --norc '" + path("ask.bash") + "' >'" + path("offered") +
                                "' 2>'" + path("complaints") + "'";
    EXPECT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(read_file(path("complaints")), "");
    std::istringstream text(read_file(path("offered")));
    Words found;
    for (std::string word; text >> word;) found.push_back(word);
    return found;
  }
};

TEST_F(CompletionTest, OffersEveryVerb) {
  EXPECT_THAT(offered({"pl"}), UnorderedElementsAre("plan", "planners"));
  EXPECT_THAT(offered({"dis"}), ElementsAre("discover"));  // a verb in Python
  const Words verbs = offered({""});
  for (const char* verb : {"plan", "launch", "completion", "run", "report"}) {
    EXPECT_THAT(verbs, Contains(verb));
  }
}

TEST_F(CompletionTest, OffersTheOptionsOfTheVerb) {
  const Words options = offered({"plan", "--"});
  EXPECT_THAT(options, Each(StartsWith("--")));
  for (const char* option : {"--graph", "--cluster", "--batch", "--verbose", "--log-level"}) {
    EXPECT_THAT(options, Contains(option));
  }
  EXPECT_THAT(options, Not(Contains("--hostfile")));
  EXPECT_THAT(offered({"run", "--hostf"}), ElementsAre("--hostfile"));
}

TEST_F(CompletionTest, OffersWhatAnOptionTakes) {
  EXPECT_THAT(offered({"plan", "--planner", "loc"}), ElementsAre("local-search"));
  EXPECT_THAT(offered({"plan", "--planner", "=", "loc"}), ElementsAre("local-search"));
  EXPECT_THAT(offered({"shares", "--planner", ""}), ElementsAre("search", "ev-ar", "cp-ar"));
  EXPECT_THAT(offered({"simulate", "--order", "rank-"}), ElementsAre("rank-queued"));
  EXPECT_THAT(offered({"planners", "pip"}), ElementsAre("pipedream"));
  EXPECT_THAT(offered({"completion", ""}), UnorderedElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(offered({"plan", "--graph", ""}), ElementsAre("graph.json"));
  EXPECT_THAT(offered({"diff", "g"}), ElementsAre("graph.json"));
  EXPECT_THAT(offered({"plan", "--batch", ""}), IsEmpty());
}

// Words that are written down for the scripts, and not asked of a table, are those of the verbs.
TEST_F(CompletionTest, OffersNothingThatIsRefused) {
  const std::string files =
      "--graph models/lenet5-tiny.json.gz --cluster configs/clusters/local-2cpu.json ";
  ASSERT_EQ(run("plan " + files + "--batch 8 --planner ev-ar --out " + path("plan.json")).code, 0);
  const std::string with_plan = files + "--plan " + path("plan.json") + " ";
  for (const std::string& order : offered({"simulate", "--order", ""})) {
    EXPECT_EQ(run("simulate " + with_plan + "--order " + order).code, 0) << order;
  }
  for (const std::string& word : offered({"simulate", "--collectives", ""})) {
    EXPECT_EQ(run("simulate " + with_plan + "--collectives " + word).code, 0) << word;
  }
  for (const std::string& level : offered({"simulate", "--log-level", ""})) {
    EXPECT_EQ(run("simulate " + with_plan + "--log-level " + level).code, 0) << level;
  }
  for (const std::string& word : offered({"plan", "--compress", ""})) {
    const std::string planned =
        "plan " + files + "--batch 8 --planner ev-ar --out " + path("p") + " --compress " + word;
    EXPECT_EQ(run(planned).code, 0) << word;
  }
  const std::string help = run("run --help").out;
  for (const std::string& name : offered({"run", "--transport", ""})) {
    EXPECT_THAT(help, testing::HasSubstr(name));
  }
  const std::string verify = run("verify --help").out;
  for (const char* option : {"--dtype", "--devices"}) {
    for (const std::string& word : offered({"verify", option, ""})) {
      EXPECT_THAT(verify, testing::HasSubstr(word));
    }
  }
}

TEST_F(CompletionTest, HasScriptsForOtherShells) {
  EXPECT_THAT(run("completion fish").out,
              testing::HasSubstr("'__fish_seen_subcommand_from plan' -l batch -x"));
  EXPECT_THAT(run("completion zsh").out, StartsWith("#compdef heterog\n"));
  const Finished other = run("completion csh");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, testing::HasSubstr("bash, zsh and fish"));
}

}  // namespace
}  // namespace heterog::cli
