// Lines to problems, problems and planners to threads, rows to a file and a table.
#include "cli/compare/cases.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "cli/ending.h"
#include "cli/planner_table.h"
#include "cli/progress.h"
#include "cli/stopping.h"

namespace heterog::cli {
namespace {

constexpr const char* kFormat = "heterog-comparison";
constexpr int kVersion = 1;

struct Case {
  std::size_t line = 0;  // from 1
  std::string graph, cluster;
  std::int64_t batch = 0;
  std::string reason;             // why it is no problem; empty: it is one, as far as is known
  std::vector<ComparedRow> rows;  // a planner each
  std::vector<std::uint8_t> done{};

  // While it is worked on.
  std::unique_ptr<std::once_flag> loading = std::make_unique<std::once_flag>();
  std::unique_ptr<const cost::Problem> problem{};
  std::size_t missing = 0;  // planners that have no row yet
};

std::vector<std::string> words_of_line(std::string line) {
  line.resize(std::min(line.find('#'), line.size()));
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

// Lines without words are left out.
std::vector<Case> read_cases(const std::string& path) {
  std::istringstream text(read_file(path));
  std::vector<Case> cases;
  std::map<std::tuple<std::string, std::string, std::int64_t>, std::size_t> known;
  std::string line;
  for (std::size_t number = 1; std::getline(text, line); ++number) {
    const std::vector<std::string> words = words_of_line(line);
    if (words.empty()) continue;
    Case& one = cases.emplace_back();
    one.line = number;
    one.reason =
        ending_of([&] {
          VALIDATE(words.size() == 3, "{} words; expected 3: a graph, a cluster and a batch",
                   words.size());
          one.graph = words[0];
          one.cluster = words[1];
          one.batch = parse_integer("batch", words[2], kBatches);
          const auto [at, is_new] = known.try_emplace({one.graph, one.cluster, one.batch}, number);
          VALIDATE(is_new, "the same as line {}", at->second);
          return 0;
        }).error;
  }
  VALIDATE(!cases.empty(), "{}: no cases; expected lines as \"vgg19 heterog-8gpu 192\"",
           printable(path, 400));
  return cases;
}

// What the rows of a file depend on beside their case and planner.
OrderedJson settings_json(const CasesOptions& options) {
  OrderedJson json = {{"format", kFormat},
                      {"version", kVersion},
                      {"seed", options.common.seed},
                      {"evaluations", nullptr},
                      {"budget_seconds", nullptr},
                      {"seconds_each", nullptr},
                      {"collectives", options.problem.collectives},
                      {"profiles", options.problem.profiles},
                      {"policy", options.policy}};
  if (options.budget.evaluations) json["evaluations"] = *options.budget.evaluations;
  if (options.budget.seconds) json["budget_seconds"] = *options.budget.seconds;
  if (!options.problem.compress.empty()) json["compress"] = options.problem.compress;
  if (options.hidden.costs) json["hidden"] = options.hidden.text;
  if (options.seconds_each) json["seconds_each"] = *options.seconds_each;
  return json;
}

OrderedJson kept_row(const Case& one, const ComparedRow& row) {
  OrderedJson json = {{"graph", one.graph}, {"cluster", one.cluster}, {"batch", one.batch}};
  json.update(row_json(row, one.batch, std::nullopt));
  json.erase("speedup");
  json["code"] = row.code;
  return json;
}

// The rows of an earlier run. One that was written in part, as the last may be, is as none.
class KeptRows {
 public:
  using Key = std::tuple<std::string, std::string, std::int64_t, std::string>;

  KeptRows(const std::string& path, const OrderedJson& settings) {
    if (path.empty()) return;
    expect_writable(path);
    std::string kept = settings.dump() + "\n";
    if (std::filesystem::exists(path)) {
      const std::string text = read_file(path);
      std::size_t begin = 0, number = 1;
      for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos;
           begin = end + 1, ++number) {
        const std::string line = text.substr(begin, end - begin);
        const std::string where = fmt::format("{}: line {}", printable(path, 400), number);
        if (number == 1) {
          VALIDATE(line == settings.dump(),
                   "{} has other settings than this comparison ({}); give another file, or the "
                   "options that the file was made with",
                   where, printable(line, 300));
        } else {
          take(parse_json(line, where), where);
          kept += line + "\n";
        }
      }
      VALIDATE(number > 1 || text.empty(),
               "{}: not a file of compare --cases, which begins with a line of settings",
               printable(path, 400));
    }
    write_file(path, kept);
  }

  const ComparedRow* find(const Case& one, const std::string& planner) const {
    const auto at = rows_.find({one.graph, one.cluster, one.batch, planner});
    return at == rows_.end() ? nullptr : &at->second;
  }

 private:
  void take(const Json& json, const std::string& where) {
    constexpr double kMostSeconds = 9e9;
    constexpr std::int64_t kMostBytes = std::numeric_limits<std::int64_t>::max();
    JsonObject object(JsonValue(json, where));
    ComparedRow row;
    const std::string graph = object.string("graph");
    const std::string cluster = object.string("cluster");
    const std::int64_t batch = object.integer("batch", 1, graph::kMaxSamples);
    row.name = object.string("name");
    row.baseline = object.boolean_or("baseline", false);
    if (object.required("reason").json().is_null()) {
      row.evaluation.step = std::llround(object.number("step_seconds", 0, kMostSeconds) * 1e9);
      object.skip("samples_per_second");
    } else {
      row.reason = object.string("reason");
      object.skip("step_seconds");
      object.skip("samples_per_second");
    }
    row.evaluation.feasible = object.boolean_or("feasible", false);
    row.evaluation.missing_bytes = object.integer("missing_bytes", 0, kMostBytes);
    row.plan_seconds = object.number("plan_seconds", 0, kMostSeconds);
    row.evaluations = object.integer("evaluations", 0, kMostBytes);
    row.code = static_cast<int>(object.integer("code", 0, 4));
    object.finish();
    rows_[{graph, cluster, batch, row.name}] = std::move(row);
  }

  std::map<Key, ComparedRow> rows_;
};

// One planner on one case after the other, by several threads.
class Comparer {
 public:
  Comparer(const CasesOptions& options, const Caller& caller, std::vector<Case>& cases,
           const std::vector<std::string>& names, const Stopping& stopping)
      : options_(options),
        caller_(caller),
        cases_(cases),
        names_(names),
        stopping_(stopping),
        progress_(caller, "comparing") {}

  // Whether all were done, not stopped.
  bool run() {
    const KeptRows kept(options_.out, settings_json(options_));
    std::vector<std::pair<Case*, std::size_t>> jobs;
    for (Case& one : cases_) {
      one.rows.resize(names_.size());
      one.done.assign(names_.size(), 0);
      for (std::size_t i = 0; i < names_.size() && one.reason.empty(); ++i) {
        if (const ComparedRow* row = kept.find(one, names_[i])) {
          one.rows[i] = *row;
          one.done[i] = 1;
        } else {
          jobs.emplace_back(&one, i);
          ++one.missing;
        }
      }
    }
    const auto count = static_cast<int>(
        std::clamp<std::size_t>(jobs.size(), 1, static_cast<std::size_t>(options_.common.threads)));
    ThreadPool threads(count);
    threads.run(jobs.size(), [&](int, std::size_t i) {
      if (!stopping_.asked()) work(*jobs[i].first, jobs[i].second);
      const std::scoped_lock lock(mutex_);
      ++ended_;
      progress_.show(static_cast<double>(ended_) / static_cast<double>(jobs.size()),
                     jobs[i].first->graph + ", " + names_[jobs[i].second]);
    });
    return !stopping_.asked();
  }

 private:
  void work(Case& one, std::size_t planner) {
    std::call_once(*one.loading, [&] { load(one); });
    ThreadPool alone(1);
    if (one.problem) {
      // A budget of seconds draws no line of its own: many run beside each other.
      const Caller silent{.print = caller_.print, .stopped = caller_.stopped, .is_program = false};
      ComparedRow row = compared(
          {.name = names_[planner],
           .policy = options_.policy,
           .budget = options_.budget,
           .seconds = options_.seconds_each,
           .seed = options_.common.seed,
           .hidden = options_.hidden},
          *one.problem, alone, compile_options(options_.problem), [&] { return stopping_.asked(); },
          silent);
      // Unless it was in time, it is to be done again.
      if (stopping_.asked() && !row.planned()) return;
      const std::scoped_lock lock(mutex_);
      if (!options_.out.empty()) append_file(options_.out, kept_row(one, row).dump() + "\n");
      one.rows[planner] = std::move(row);
      one.done[planner] = 1;
    }
    const std::scoped_lock lock(mutex_);
    if (--one.missing == 0) one.problem.reset();
  }

  void load(Case& one) const {
    one.reason = ending_of([&] {
                   ProblemOptions problem = options_.problem;
                   problem.graph = one.graph;
                   problem.cluster = one.cluster;
                   problem.batch = one.batch;
                   one.problem = load_problem(problem);
                   return 0;
                 }).error;
  }

  const CasesOptions& options_;
  const Caller& caller_;
  std::vector<Case>& cases_;
  const std::vector<std::string>& names_;
  const Stopping& stopping_;
  std::mutex mutex_;
  Progress progress_;
  std::size_t ended_ = 0;
};

// The rows that there are.
std::vector<ComparedRow> rows_of(const Case& one) {
  std::vector<ComparedRow> rows;
  for (std::size_t i = 0; i < one.rows.size(); ++i) {
    if (one.done[i]) rows.push_back(one.rows[i]);
  }
  return rows;
}

std::string cases_table(const std::vector<Case>& cases) {
  Table table({"graph", "cluster", "batch", "planner", "step", "over best", "feasible", "short of",
               "planned in", "plans"});
  std::string reasons;
  for (const Case& one : cases) {
    if (!one.reason.empty()) reasons += fmt::format("line {}: {}\n", one.line, one.reason);
    const std::vector<ComparedRow> rows = rows_of(one);
    std::optional<double> best;
    for (const ComparedRow& row : rows) {
      if (row.feasible()) best = std::min(best.value_or(row.step_seconds()), row.step_seconds());
    }
    for (const ComparedRow& row : rows) {
      const bool fits = row.feasible();
      table.add_row({one.graph, one.cluster, std::to_string(one.batch), row.name,
                     row.planned() ? milliseconds_text(row.step_seconds()) : "-",
                     fits ? fmt::format("{:+.1f} %", 100 * (row.step_seconds() / *best - 1)) : "-",
                     fits ? "yes" : "no",
                     fits || !row.planned() ? "-" : gigabytes_text(row.evaluation.missing_bytes),
                     fmt::format("{:.2f} s", row.plan_seconds), std::to_string(row.evaluations)});
      if (row.planned()) continue;
      reasons += fmt::format("line {}: {}: {}\n", one.line, row.name, row.reason);
    }
  }
  return table.text() + reasons;
}

OrderedJson cases_json(const std::vector<Case>& cases) {
  OrderedJson json;
  json["cases"] = OrderedJson::array();
  for (const Case& one : cases) {
    OrderedJson item = {{"line", one.line},       {"graph", one.graph},
                        {"cluster", one.cluster}, {"batch", one.batch},
                        {"reason", nullptr},      {"planners", OrderedJson::array()}};
    if (!one.reason.empty()) item["reason"] = one.reason;
    const std::vector<ComparedRow> rows = rows_of(one);
    const std::optional<double> base = best_baseline(rows);
    for (const ComparedRow& row : rows) {
      item["planners"].push_back(row_json(row, one.batch, base));
    }
    json["cases"].push_back(std::move(item));
  }
  return json;
}

}  // namespace

int compare_cases(const CasesOptions& options, const Caller& caller) {
  std::vector<Case> cases = read_cases(options.cases);
  const std::vector<std::string> names = compared_names(options.planners);
  // Refuses a wrong name before any long work; options may be right for some clusters alone.
  for (const std::string& name : names) planner_registry().entry(search::parse_request(name).name);
  compile_options(options.problem);
  std::optional<Stopping> stopping(std::in_place, caller);
  const Stopwatch watch;
  const bool all = Comparer(options, caller, cases, names, *stopping).run();
  const std::string stopped = all ? "" : stopping->text(watch.seconds());
  stopping.reset();
  if (options.common.json) {
    print_json(caller, cases_json(cases));
  } else {
    print(caller, "{}", cases_table(cases));
  }
  if (!all) {
    throw Error(ErrorKind::kVerification,
                fmt::format("{}; {}", stopped,
                            options.out.empty() ? "the rows above are those that there were"
                                                : "the same command goes on from there"));
  }
  const auto bad =
      std::ranges::count_if(cases, [](const Case& one) { return !one.reason.empty(); });
  if (bad == 0) return 0;
  const Case& first =
      *std::ranges::find_if(cases, [](const Case& one) { return !one.reason.empty(); });
  fail_input("{}: line {}: {}{}", printable(options.cases, 400), first.line, first.reason,
             bad == 1 ? "" : fmt::format("; and {} more lines", bad - 1));
}

}  // namespace heterog::cli
