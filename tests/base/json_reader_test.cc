// Strict JSON: every refusal names file and field, what is wrong and what would be right.
#include "base/json_reader.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace heterog {
namespace {

std::string reading_error(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

std::string parse_error_of(const std::string& text) {
  return reading_error([&] { parse_json(text, "f.json"); });
}

class JsonReaderTest : public testing::Test {
 protected:
  JsonObject object(const std::string& text) {
    json_ = parse_json(text, "f.json");
    return JsonObject(JsonValue(json_, "f.json"));
  }
  Json json_;
};

TEST_F(JsonReaderTest, TakesWhatIsThere) {
  auto o = object(R"({"s": "x", "i": -3, "big": 16e9, "d": 0.5, "b": true, // a comment
                      "l": [1, 2], "free": {"any": 1}})");
  EXPECT_EQ(o.string("s"), "x");
  EXPECT_EQ(o.integer("i", -5, 5), -3);
  EXPECT_EQ(o.integer("big", 1, std::numeric_limits<std::int64_t>::max()), 16'000'000'000);
  EXPECT_EQ(o.positive("d"), 0.5);
  EXPECT_TRUE(o.boolean_or("b", false));
  EXPECT_EQ(o.list("l")[1].as_int(0, 9), 2);
  o.skip("free");
  o.finish();
}

TEST_F(JsonReaderTest, DefaultsWhatIsNot) {
  auto o = object("{}");
  EXPECT_EQ(o.string_or("s", "y"), "y");
  EXPECT_EQ(o.integer_or("i", 0, 9, 4), 4);
  EXPECT_EQ(o.number_or("d", 0, 1, 0.25), 0.25);
  EXPECT_TRUE(o.boolean_or("b", true));
  o.finish();
}

TEST_F(JsonReaderTest, NamesFileAndFieldInDepth) {
  auto o = object(R"({"machines": [{}, {}, {"nic": {"bandwidth_bytes_per_second": -3}}]})");
  JsonObject machine(o.list("machines")[2]);
  JsonObject nic(machine.required("nic"));
  EXPECT_EQ(reading_error([&] { nic.positive("bandwidth_bytes_per_second"); }),
            "f.json: machines[2].nic.bandwidth_bytes_per_second: expected a positive number, "
            "found -3");
  EXPECT_EQ(reading_error([&] { nic.required("latency_seconds"); }),
            "f.json: machines[2].nic: the field \"latency_seconds\" is missing");
}

TEST_F(JsonReaderTest, RefusesWrongTypesAndRanges) {
  auto o = object(R"({"s": 1, "i": 2.5, "big": 18446744073709551615, "d": "x", "l": {}, "o": []})");
  EXPECT_EQ(reading_error([&] { o.string("s"); }), "f.json: s: expected a string, found 1");
  EXPECT_EQ(reading_error([&] { o.integer("i", 1, 64); }),
            "f.json: i: expected an integer from 1 to 64, found 2.5");
  EXPECT_EQ(reading_error([&] { o.integer("s", 2, 64); }),
            "f.json: s: expected an integer from 2 to 64, found 1");
  EXPECT_EQ(reading_error([&] { o.integer("big", 0, std::numeric_limits<std::int64_t>::max()); }),
            "f.json: big: expected an integer of at least 0, found 18446744073709551615");
  EXPECT_EQ(reading_error([&] { o.number("d", 0, 1); }),
            "f.json: d: expected a number from 0 to 1, found \"x\"");
  EXPECT_EQ(reading_error([&] { o.number("i", 0, 1); }),
            "f.json: i: expected a number from 0 to 1, found 2.5");
  EXPECT_EQ(reading_error([&] { o.list("l"); }), "f.json: l: expected a list, found an object");
  EXPECT_EQ(reading_error([&] { o.boolean_or("s", true); }),
            "f.json: s: expected true or false, found 1");
  EXPECT_EQ(reading_error([&] { JsonObject inner(o.required("o")); }),
            "f.json: o: expected an object, found an empty list");
}

TEST_F(JsonReaderTest, RefusesUnknownKeys) {
  auto o = object(R"({"a": 1, "b\n": 2})");
  o.integer("a", 0, 9);
  o.integer_or("c", 0, 9, 0);
  EXPECT_EQ(reading_error([&] { o.finish(); }), "f.json: unknown key \"b?\", expected one of a, c");
  auto mistyped = object(R"({"stpes": 1})");
  mistyped.integer_or("steps", 0, 9, 0);
  EXPECT_EQ(reading_error([&] { mistyped.finish(); }),
            "f.json: unknown key \"stpes\" (did you mean steps?), expected one of steps");
}

TEST_F(JsonReaderTest, ChecksFormatAndVersion) {
  const auto check = [&](const std::string& text) {
    return reading_error([&] {
      auto o = object(text);
      check_format(o, "heterog-plan", 2);
    });
  };
  EXPECT_EQ(check(R"({"format": "heterog-plan", "version": 2})"), "no error");
  EXPECT_EQ(check(R"({"format": "heterog-graph", "version": 2})"),
            "f.json: format: expected \"heterog-plan\", found \"heterog-graph\"");
  EXPECT_EQ(check(R"({"format": "heterog-plan", "version": 3})"),
            "f.json: version: expected 2, found 3");
  EXPECT_EQ(check(R"({})"), "f.json: the field \"format\" is missing");
}

TEST_F(JsonReaderTest, RefusesWhatIsNotJson) {
  EXPECT_EQ(parse_error_of("{\"a\": 1,\n  oops}").rfind("f.json: parse error at line 2", 0), 0u)
      << parse_error_of("{\"a\": 1,\n  oops}");
  for (const std::string text : {"", "{", "[1] 2", "{\"a\": 1e999}", "[NaN]", "\"\xff\"", "[1,]"}) {
    EXPECT_EQ(parse_error_of(text).rfind("f.json: ", 0), 0u) << parse_error_of(text);
  }
}

TEST_F(JsonReaderTest, RefusesDuplicateKeys) {
  EXPECT_EQ(parse_error_of(R"({"a": 1, "b": {"c": 1, "c": 2}})"),
            "f.json: the key \"c\" occurs twice in one object");
  EXPECT_EQ(parse_error_of(R"({"a": {"c": 1}, "b": {"c": 2}})"), "no error");
}

TEST_F(JsonReaderTest, RefusesDepthThatWouldOverflowTheStack) {
  EXPECT_EQ(parse_error_of(std::string(100'000, '[')), "f.json: nested more than 100 levels deep");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(parse_error_of(objects), "f.json: nested more than 100 levels deep");
  EXPECT_EQ(parse_error_of(std::string(100, '[') + std::string(100, ']')), "no error");
}

}  // namespace
}  // namespace heterog
