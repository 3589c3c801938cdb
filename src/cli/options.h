// Options that several verbs share, and the problem that they describe.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "base/thread_pool.h"
#include "cli/caller.h"
#include "compiler/compile.h"
#include "cost/problem.h"
#include "decide/strategy.h"
#include "graph/types.h"
#include "loading/problem_files.h"
#include "oracle/batch_evaluator.h"

namespace heterog::cli {

// Every option that takes numbers is added by add_integer, add_integers or add_number.
inline constexpr IntegerRange kSeeds = {0, std::numeric_limits<std::int64_t>::max()};
inline constexpr IntegerRange kThreads = {1, 1024};
inline constexpr IntegerRange kBatches = {1, graph::kMaxSamples};
inline constexpr IntegerRange kCounts = {1, 1'000'000'000'000};  // of steps and evaluations
inline constexpr NumberRange kDurations = {1e-3, 1e7};           // seconds: up to 116 days

// The name of such options' values in --help.
inline constexpr const char* kIntegerWord = "INTEGER";
inline constexpr const char* kNumberWord = "NUMBER";

// `help` is followed by the range, and by the value that `value` has unless it is out of range,
// which means that there is none.
template <class T>
CLI::Option* add_integer(CLI::App& verb, const std::string& name, T& value, IntegerRange range,
                         const std::string& help) {
  auto* option = verb.add_option_function<std::string>(
      name,
      [&value, name, range](const std::string& word) {
        if constexpr (std::is_integral_v<T>) {
          value = static_cast<T>(parse_integer(name, word, range));
        } else {
          value = parse_integer(name, word, range);
        }
      },
      fmt::format("{} ({} to {})", help, range.least, range.most));
  if constexpr (std::is_integral_v<T>) {
    if (std::in_range<std::int64_t>(value) && static_cast<std::int64_t>(value) >= range.least &&
        static_cast<std::int64_t>(value) <= range.most) {
      option->default_str(std::to_string(value));
    }
  }
  return option->type_name(kIntegerWord);
}
// A list, as in 1,4,16.
CLI::Option* add_integers(CLI::App& verb, const std::string& name, std::vector<std::int64_t>& value,
                          IntegerRange range, const std::string& help);
template <class T>
CLI::Option* add_number(CLI::App& verb, const std::string& name, T& value, NumberRange range,
                        const std::string& help) {
  auto* option = verb.add_option_function<std::string>(
      name,
      [&value, name, range](const std::string& word) { value = parse_number(name, word, range); },
      fmt::format("{} ({:g} to {:g})", help, range.least, range.most));
  if constexpr (std::is_floating_point_v<T>) {
    if (value >= range.least && value <= range.most) {
      option->default_str(fmt::format("{:g}", value));
    }
  }
  return option->type_name(kNumberWord);
}

struct CommonOptions {
  std::uint64_t seed = 0;
  int threads = hardware_threads();
  bool json = false;
};
void add_common(CLI::App& verb, CommonOptions& options);

using loading::compile_options;
using loading::load_problem;
using loading::ProblemOptions;
void add_graph_and_cluster(CLI::App& verb, ProblemOptions& options);
// "--graph G --cluster C", and what else was given of the problem, for commands that can be copied.
std::string problem_words(const ProblemOptions& options);
void add_batch(CLI::App& verb, ProblemOptions& options);
// Of verbs that plan; a plan file says it of itself.
void add_compress(CLI::App& verb, ProblemOptions& options);
void add_accumulate(CLI::App& verb, std::int64_t& micro_batches);
// Adds a batch for verbs that take a plan file. The file has one; the option only says it again.
void add_batch_of_plan(CLI::App& verb, ProblemOptions& options);

struct BudgetOptions {
  std::optional<double> seconds;
  std::optional<std::int64_t> evaluations;
  bool any() const { return seconds || evaluations; }
};
void add_budget(CLI::App& verb, BudgetOptions& options);
// Wall seconds count from now; while it is asked, it reports progress under this title.
oracle::Budget start_budget(const BudgetOptions& options, const std::string& title,
                            const Caller& caller);

}  // namespace heterog::cli
