// Mistyped paths, and words for shells.
#include "base/nearest_file.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/shell.h"

namespace heterog {
namespace {

TEST(NearestFile, KnowsTheFolderAndNotTheEnding) {
  EXPECT_EQ(did_you_mean_file("models/vgg9.json.gz"), " (did you mean models/vgg19.json.gz?)");
  EXPECT_EQ(did_you_mean_file("models/vgg19.json"), " (did you mean models/vgg19.json.gz?)");
  EXPECT_EQ(did_you_mean_file("configs/clusters/ofice-mixed.json"),
            " (did you mean configs/clusters/office-mixed.json?)");
  EXPECT_EQ(did_you_mean_file("models/none.json.gz"), "");
  EXPECT_EQ(did_you_mean_file("no-such-folder/vgg19.json.gz"), "");
}

TEST(NearestFile, ABareNameMayBeOneOfTheProjects) {
  EXPECT_EQ(did_you_mean_file("vg19"), " (did you mean vgg19?)");
  EXPECT_EQ(did_you_mean_file("heterog-8gp.json"), " (did you mean heterog-8gpu?)");
}

// A shell gives back what was quoted for it.
TEST(ShellWord, IsOneWordOfAShell) {
  EXPECT_EQ(shell_word("models/vgg19.json.gz"), "models/vgg19.json.gz");
  for (const std::string word :
       {"", "a b", "it's", "$HOME `x` \"y\" \\", "~", "*", "a;b&c|d", "line\nline"}) {
    const std::string command = "printf %s " + shell_word(word);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string said(64, '\0');
    said.resize(std::fread(said.data(), 1, said.size(), pipe.get()));
    EXPECT_EQ(said, word);
  }
}

}  // namespace
}  // namespace heterog
