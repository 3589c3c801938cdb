// Files that ask for more than any file of ours: refused before memory is taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/json_reader.h"
#include "support/peak.h"

namespace heterog {
namespace {

using support::attempt;
using support::Attempt;
using testing::HasSubstr;

constexpr double kMaxPeak = 1000;  // MB

std::string repeated(std::string_view part, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + part.size());
  while (text.size() < bytes) text += part;
  return text;
}

void expect_refused(const std::string& what, const std::string& message,
                    const std::function<std::string()>& text) {
  const Attempt result = attempt([&] { parse_json(text(), "f.json"); });
  EXPECT_THAT(result.error, HasSubstr("f.json: ")) << what;
  EXPECT_THAT(result.error, HasSubstr(message)) << what;
  EXPECT_LT(result.peak_megabytes, kMaxPeak) << what;
}

TEST(Bounds, ValuesAreCountedBeforeTheyTakeMemory) {
  for (const char* part : {"1,", "\"sixteen letters.\",", "{\"a\":{\"b\":{}}},"}) {
    expect_refused(part, "holds too much",
                   [&] { return "[" + repeated(part, kMaxFileBytes - 100) + "0]"; });
  }
  expect_refused("keys", "holds too much", [] {
    std::string text = "{";
    for (int i = 0; text.size() < kMaxFileBytes; ++i) text += fmt::format("\"{:x}\":0,", i);
    return text + "\"last\":0}";
  });
}

TEST(Bounds, NoStringNumberOrCommentIsLong) {
  const std::pair<const char*, const char*> kTexts[] = {
      {"\"", "x"}, {"\"", "\\u00e9"}, {"[1", "1"}, {"[0.", "0"},
      {"/*", "*"}, {"//", "/"},       {"[ ", " "}, {"{\"", "k"}};
  for (const auto& [begin, part] : kTexts) {
    expect_refused(begin, "string, number or comment of more than",
                   [&] { return begin + repeated(part, kMaxTokenBytes + 100); });
  }
}

TEST(Bounds, WhatIsAllowedIsRead) {
  const std::string text = "[\"" + std::string(kMaxTokenBytes - 10, 'x') + "\"]";
  EXPECT_EQ(parse_json(text, "f.json")[0].get<std::string>().size(), kMaxTokenBytes - 10);
  const std::string list = "[" + repeated("1,", 2'000'000) + "1]";
  const Json json = parse_json(list, "f.json");
  EXPECT_EQ(JsonValue(json, "f.json").as_list().size(), 1'000'001u);
}

TEST(Bounds, AGzipOfZerosUnfoldsToNoMoreThanItsRatioAllows) {
  const std::string zeros = gzip(std::string(16 << 20, '\0'));
  const Attempt once = attempt([&] { gunzip(zeros, "f"); });
  EXPECT_THAT(once.error, HasSubstr("f: unfolds to more than 200 times its size"));
  EXPECT_LT(once.peak_megabytes, 100);
  // Members one after the other, 4 GB in all; and incompressible ones in between.
  const Attempt many = attempt([&] { gunzip(repeated(zeros, 256 * zeros.size()), "f"); });
  EXPECT_THAT(many.error, HasSubstr("f: holds more than 134217728 bytes once decompressed"));
  EXPECT_LT(many.peak_megabytes, kMaxPeak);
  const Attempt mixed = attempt([&] {
    std::string noise;
    for (std::uint64_t i = 0; noise.size() < 200'000; ++i) {
      noise += fmt::format("{:016x}", i * 0x9e3779b97f4a7c15ULL);
    }
    gunzip(repeated(gzip(noise) + zeros, 8 << 20), "f");
  });
  EXPECT_THAT(mixed.error, HasSubstr("f: holds more than 134217728 bytes once decompressed"));
  EXPECT_LT(mixed.peak_megabytes, kMaxPeak);
}

TEST(Bounds, ALargeFileIsRefusedUnread) {
  const auto path = std::filesystem::path(testing::TempDir()) / "heterog_bounds_large";
  write_file(path.string(), "x");
  std::filesystem::resize_file(path, std::uintmax_t{4} << 30);  // a hole: takes no disk
  const Attempt result = attempt([&] { read_file(path.string()); });
  EXPECT_THAT(result.error, HasSubstr("4294967296 bytes, the most that is read is 134217728"));
  EXPECT_LT(result.peak_megabytes, 100);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace heterog
