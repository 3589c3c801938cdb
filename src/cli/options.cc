// Declares the shared options.
#include "cli/options.h"

#include <fmt/ranges.h>

#include "base/shell.h"
#include "cli/progress.h"

namespace heterog::cli {

CLI::Option* add_integers(CLI::App& verb, const std::string& name, std::vector<std::int64_t>& value,
                          IntegerRange range, const std::string& help) {
  auto* option = verb.add_option_function<std::vector<std::string>>(
      name,
      [&value, name, range](const std::vector<std::string>& words) {
        value.clear();
        for (const std::string& word : words) value.push_back(parse_integer(name, word, range));
      },
      fmt::format("{} ({} to {})", help, range.least, range.most));
  option->default_str(fmt::format("{}", fmt::join(value, ",")));
  return option->delimiter(',')->type_name(kIntegerWord);
}

void add_common(CLI::App& verb, CommonOptions& options) {
  add_integer(verb, "--seed", options.seed, kSeeds, "Seed of everything random");
  add_integer(verb, "--threads", options.threads, kThreads,
              "Threads that evaluate plans; the result does not depend on it");
  verb.add_flag("--json", options.json, "One JSON object on stdout instead of tables");
}

void add_graph_and_cluster(CLI::App& verb, ProblemOptions& options) {
  verb.add_option("--graph", options.graph,
                  "Model graph: a file, or one of the zoo by its name (models/*.json.gz)")
      ->required();
  verb.add_option("--cluster", options.cluster,
                  "Cluster: a file, or a shipped one by its name (configs/clusters/*.json)")
      ->required();
  verb.add_option("--collectives", options.collectives,
                  "per-device: all-reduces of disjoint devices may overlap; serial: none may")
      ->capture_default_str();
  verb.add_option(
      "--profile", options.profiles,
      "Measured costs (heterog profile, run --profile-out), one file per device type and "
      "one of links; the others' costs are analytic");
}

std::string problem_words(const ProblemOptions& options) {
  std::string words = fmt::format("--graph {} --cluster {}", shell_word(options.graph),
                                  shell_word(options.cluster));
  for (const std::string& profile : options.profiles) words += " --profile " + shell_word(profile);
  if (options.collectives != ProblemOptions{}.collectives) {
    words += " --collectives " + options.collectives;
  }
  return words;
}

void add_batch(CLI::App& verb, ProblemOptions& options) {
  add_integer(verb, "--batch", options.batch, kBatches, "Samples of one step, over all devices")
      ->required();
}

void add_compress(CLI::App& verb, ProblemOptions& options) {
  verb.add_option("--compress", options.compress,
                  "Compress gradients on their way, which changes the training: fp16, bf16 or "
                  "powersgd[:rank=R] (rank 2), the first two also with ,feedback behind it: what "
                  "is lost is added to the next gradient, as powersgd always does")
      ->default_str("none");
}

void add_accumulate(CLI::App& verb, std::int64_t& micro_batches) {
  add_integer(verb, "--accumulate", micro_batches, {1, graph::kMaxSamples},
              "Accumulate gradients over so many micro-batches, one after the other");
}

void add_batch_of_plan(CLI::App& verb, ProblemOptions& options) {
  add_integer(verb, "--batch", options.batch, kBatches, "The plan's batch (it is what it is for)");
}

void add_budget(CLI::App& verb, BudgetOptions& options) {
  auto* seconds =
      add_number(verb, "--budget", options.seconds, kDurations, "Go on for this many seconds");
  add_integer(verb, "--evaluations", options.evaluations, kCounts,
              "Go on for this many simulated plans (reproducible)")
      ->excludes(seconds);
}

oracle::Budget start_budget(const BudgetOptions& options, const std::string& title,
                            const Caller& caller) {
  oracle::Budget budget{.evaluations = options.evaluations};
  if (options.seconds) {
    auto progress = std::make_shared<Progress>(caller, title);
    budget.time_used = [progress, seconds = *options.seconds] {
      const double used = progress->seconds() / seconds;
      progress->show(used, "");
      return used;
    };
  }
  return budget;
}

}  // namespace heterog::cli
