// Options of planners: each planner has a struct of its own, and a table that says of every member
// what it is called, what it takes and what it does. Text is read here; planners see the struct.
#pragma once

#include <fmt/format.h>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/numbers.h"
#include "cluster/cluster.h"

namespace heterog::search {

// What somebody typed: "evaluations=200".
struct Setting {
  std::string option;
  std::string value;
};

// What is said of an option to whoever asks.
struct OptionInfo {
  std::string name;
  std::string takes;          // "an integer from 1 to 64"
  std::string default_value;  // as it would be typed, or in words
  std::string help;
};

template <class Options>
struct IntegerField {
  std::int64_t Options::*member;
  IntegerRange range;
  std::string_view word = {};  // that may be given in place of a number, and what it stands for
  std::int64_t stands_for = 0;
};
template <class Options>
struct NumberField {
  double Options::*member;
  NumberRange range;
};
// One of some words: the enumerator of that number.
template <class Options>
struct ChoiceField {
  std::span<const std::string_view> words;
  void (*set)(Options& options, std::size_t word);
  std::size_t (*get)(const Options& options);
};
template <class Options>
struct DeviceField {
  DeviceId Options::*member;  // invalid by default
  std::string_view unset;     // what that means
};
template <class Options>
struct FileField {
  std::string Options::*member;  // empty by default
  std::string_view unset;        // what that means
};

template <class Options>
struct Field {
  std::string_view name;
  std::string_view help;
  std::variant<IntegerField<Options>, NumberField<Options>, ChoiceField<Options>,
               DeviceField<Options>, FileField<Options>>
      kind;
};

// choice<Options, &Options::order>(words): an enumeration whose values count from 0.
template <class Options, auto kMember>
constexpr ChoiceField<Options> choice(std::span<const std::string_view> words) {
  using Enum = std::remove_cvref_t<decltype(std::declval<Options>().*kMember)>;
  return {
      .words = words,
      .set = [](Options& options, std::size_t word) { options.*kMember = static_cast<Enum>(word); },
      .get = [](const Options& options) { return static_cast<std::size_t>(options.*kMember); }};
}

// "better, rank or fifo".
std::string list_text(std::span<const std::string_view> words);
// The place of `value` in `words`; an input error that names the option and the nearest word.
std::size_t find_word(const std::string& option, const std::string& value,
                      std::span<const std::string_view> words);
DeviceId find_device(const std::string& option, const std::string& value,
                     const cluster::Cluster& cluster);
// Of a setting that no field has.
[[noreturn]] void fail_option(const std::string& planner, const std::string& option,
                              const std::vector<std::string>& known);

namespace detail {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

}  // namespace detail

// Name, type, default and help of each field.
template <class Options>
std::vector<OptionInfo> describe_options(std::span<const Field<Options>> fields) {
  const Options defaults;
  std::vector<OptionInfo> infos;
  for (const Field<Options>& field : fields) {
    OptionInfo info{.name = std::string(field.name), .help = std::string(field.help)};
    std::visit(detail::Overloaded{[&](const IntegerField<Options>& kind) {
                                    info.takes = fmt::format("an integer from {} to {}",
                                                             kind.range.least, kind.range.most);
                                    if (!kind.word.empty())
                                      info.takes += fmt::format(" or {}", kind.word);
                                    info.default_value = std::to_string(defaults.*kind.member);
                                  },
                                  [&](const NumberField<Options>& kind) {
                                    info.takes = fmt::format("a number from {:g} to {:g}",
                                                             kind.range.least, kind.range.most);
                                    info.default_value = fmt::format("{:g}", defaults.*kind.member);
                                  },
                                  [&](const ChoiceField<Options>& kind) {
                                    info.takes = list_text(kind.words);
                                    info.default_value =
                                        std::string(kind.words[kind.get(defaults)]);
                                  },
                                  [&](const DeviceField<Options>& kind) {
                                    info.takes = "a device of the cluster";
                                    info.default_value = std::string(kind.unset);
                                  },
                                  [&](const FileField<Options>& kind) {
                                    info.takes = "a file";
                                    info.default_value = std::string(kind.unset);
                                  }},
               field.kind);
    infos.push_back(std::move(info));
  }
  return infos;
}

// The defaults with `settings` laid over them, one after another. Throws an input error that names
// the planner, the option and what would be right.
template <class Options>
Options read_options(const std::string& planner, std::span<const Field<Options>> fields,
                     std::span<const Setting> settings, const cluster::Cluster& cluster) {
  Options options;
  for (const Setting& setting : settings) {
    const Field<Options>* field = nullptr;
    std::vector<std::string> known;
    for (const Field<Options>& candidate : fields) {
      known.emplace_back(candidate.name);
      if (candidate.name == setting.option) field = &candidate;
    }
    if (!field) fail_option(planner, setting.option, known);
    const std::string name = fmt::format("planner {}: option {}", planner, setting.option);
    std::visit(detail::Overloaded{
                   [&](const IntegerField<Options>& kind) {
                     if (!kind.word.empty() && setting.value == kind.word) {
                       options.*kind.member = kind.stands_for;
                       return;
                     }
                     const std::string what =
                         kind.word.empty() ? name
                                           : fmt::format("{} ({} or a number)", name, kind.word);
                     options.*kind.member = parse_integer(what, setting.value, kind.range);
                   },
                   [&](const NumberField<Options>& kind) {
                     options.*kind.member = parse_number(name, setting.value, kind.range);
                   },
                   [&](const ChoiceField<Options>& kind) {
                     kind.set(options, find_word(name, setting.value, kind.words));
                   },
                   [&](const DeviceField<Options>& kind) {
                     options.*kind.member = find_device(name, setting.value, cluster);
                   },
                   [&](const FileField<Options>& kind) { options.*kind.member = setting.value; }},
               field->kind);
  }
  return options;
}

}  // namespace heterog::search
