// Plans of one problem take turns with steps that profile it, a step each, as one rank of several:
// what the machine does meanwhile hits what is predicted and what is measured alike. For
// scripts/reproduce/predicted_measured.py, which says what its options and files mean.
//
//     RANK=0 WORLD_SIZE=2 MASTER_ADDR=… MASTER_PORT=… bench_turns --graph G --cluster C
//         --case PLAN=ORDER … --slices 8,12,24 --slow 1,2 --rounds 30 --out FOLDER
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/median.h"
#include "base/stopwatch.h"
#include "cost/profile_io.h"
#include "launch/join.h"
#include "loading/one_device.h"
#include "loading/plan_files.h"
#include "measure/run_profile.h"
#include "measure/step_profile.h"
#include "runtime/program/job_terms.h"
#include "runtime/program/traffic.h"
#include "runtime/ranks/training_run.h"

namespace heterog::bench {
namespace {

using measure::SizeSteps;

struct TurnsOptions {
  loading::ProblemOptions problem;
  std::vector<std::string> cases;    // PLAN=ORDER
  std::vector<std::int64_t> slices;  // to profile
  std::vector<int> slow;             // a factor a rank
  int rounds = 60;                   // at most
  int quiet = 15;                    // steps of each that the host left alone are enough
  std::string out;
};

// What the machine's host gave to others of the cores' time so far, and all of it.
struct Ticks {
  double stolen = 0;
  double all = 0;
};
Ticks read_ticks() {
  std::ifstream stat("/proc/stat");
  std::string cpu;
  stat >> cpu;
  Ticks ticks;
  for (int column = 0; column < 8; ++column) {  // user, nice, system, idle, iowait, …, steal
    double count = 0;
    stat >> count;
    ticks.all += count;
    if (column == 7) ticks.stolen = count;
  }
  return ticks;
}

// One plan in one order, on this rank.
class Case {
 public:
  Case(const TurnsOptions& options, const std::string& text, int number,
       const launch::RankPlace& place)
      : loaded_(loading::load_plan(text.substr(0, text.rfind('=')), options.problem,
                                   text.substr(text.rfind('=') + 1))),
        job_(runtime::make_job(loaded_.problem, loaded_.simulated.plan,
                               loaded_.simulated.result.dispatch, {}, options.problem.graph)) {
    launch::RankPlace own = place;
    own.master_port = static_cast<std::uint16_t>(own.master_port + number);  // all at once
    joined_ = launch::join(runtime::terms_of(job_, loaded_.simulated.result.peak_bytes,
                                             {.any_device = true, .others = {text}}),
                           runtime::traffic_of(job_), own, {});
    const runtime::WorkerOptions worker{.repeat = options.slow[joined_.rank.value()],
                                        .record = true};
    auto ranks = runtime::rank_among_processes(job_, loaded_.simulated.plan,
                                               {joined_.rank, joined_.transport->get()}, worker);
    ranks_ = ranks.get();
    run_ = std::make_unique<runtime::TrainingRun>(std::move(ranks), worker);
  }

  void step() {
    const runtime::StepReport report = run_->step(static_cast<std::int64_t>(seconds_.size()) + 1);
    seconds_.push_back(report.seconds);
    measured_.push_back(*report.measured);
  }
  // Of the counted rounds alone; the first step warms up.
  void keep(const std::vector<std::size_t>& rounds) {
    std::vector<runtime::MeasuredStep> kept;
    for (std::size_t round : rounds) kept.push_back(measured_[round + 1]);
    measured_ = std::move(kept);
  }

  const std::vector<double>& seconds() const { return seconds_; }
  runtime::Ranks& ranks() { return *ranks_; }
  DeviceId rank() const { return joined_.rank; }
  void finish() { joined_.transport->finish(); }

  void write_costs(const std::string& folder) const {
    const cluster::Cluster& cluster = *loaded_.problem->cluster;
    const measure::RecordedRun run{*loaded_.problem, loaded_.simulated.plan, measured_};
    for (const DeviceTypeId type : id_range<DeviceTypeId>(cluster.type_count())) {
      const cost::Profile profile = measure::profile_of_runs(*loaded_.problem, {&run, 1}, type);
      if (!profile.finished) continue;
      cost::write_profile(fmt::format("{}.{}.profile.json", folder, cluster.type(type).name),
                          profile);
    }
  }
  const loading::LoadedPlan& loaded() const { return loaded_; }
  comm::Transport& transport() { return joined_.transport->get(); }

 private:
  const loading::LoadedPlan loaded_;
  const runtime::Job job_;
  launch::Joined joined_;
  runtime::Ranks* ranks_ = nullptr;
  std::unique_ptr<runtime::TrainingRun> run_;
  std::vector<double> seconds_;
  std::vector<runtime::MeasuredStep> measured_;
};

// Of the rounds that count; the first of all warms up and is none of them.
std::vector<double> pick(const std::vector<double>& values, const std::vector<std::size_t>& kept) {
  std::vector<double> picked;
  for (std::size_t round : kept) picked.push_back(values[round + 1]);
  return picked;
}

double mean_of_middle(const std::vector<double>& values) {
  double total = 0;
  const std::vector<std::size_t> middle = middle_half(values);
  for (std::size_t i : middle) total += values[i];
  return total / static_cast<double>(middle.size());
}

// The profile's steps of one size: so many that they come to about a batch, as the micro-batches or
// the slices of a plan do, whose caches only the first finds cold. A rank that is not slow makes
// more of them meanwhile, so that no core is idle while another is measured.
struct Size {
  std::int64_t samples = 0;
  std::unique_ptr<SizeSteps> steps;
  int in_a_round = 1;
  std::vector<std::vector<SizeSteps::Times>> rounds = {};
  std::vector<double> seconds = {};  // of a round, by the clock

  void step() {
    const Stopwatch watch;
    rounds.emplace_back();
    for (int i = 0; i < in_a_round; ++i) rounds.back().push_back(steps->step());
    seconds.push_back(watch.seconds());
  }
  // Of the counted rounds; the first warms up.
  IdVector<OpId, double> seconds_of_ops(const std::vector<std::size_t>& kept) const {
    std::vector<SizeSteps::Times> all;
    for (std::size_t round : kept) {
      all.insert(all.end(), rounds[round + 1].begin(), rounds[round + 1].end());
    }
    return steps->seconds_of_ops(all);
  }
};

constexpr double kQuiet = 0.01;  // of the cores' time, taken by the host

bool is_enough(const std::vector<std::vector<double>>& stolen, int wanted) {
  return std::all_of(stolen.begin(), stolen.end(), [&](const std::vector<double>& of_turn) {
    return std::count_if(of_turn.begin(), of_turn.end(),
                         [](double share) { return share <= kQuiet; }) >= wanted;
  });
}

// The quiet ones, and at least half of all.
std::vector<std::size_t> quiet_rounds(const std::vector<double>& stolen) {
  std::vector<std::size_t> order(stolen.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return stolen[a] < stolen[b]; });
  std::size_t count = (stolen.size() + 1) / 2;
  while (count < order.size() && stolen[order[count]] <= kQuiet) ++count;
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

// Steps of one size while all-reduces keep the link busy: what it carries then, and how much longer
// the steps take for each byte that this rank sends or receives.
class Loaded {
 public:
  Loaded(Size& size, comm::Transport& transport, std::size_t ranks)
      : size_(size), transport_(transport), ranks_(static_cast<double>(ranks)) {}

  void step() {
    std::atomic<bool> done{false};
    std::atomic<int> reduced{0};
    double link_seconds = 0;
    std::thread link([&] {
      at::set_num_threads(1);  // of this thread's operators, as a worker's
      const Stopwatch watch;
      at::Tensor value = at::zeros({kElements});
      for (bool all_done = false; !all_done; ++reduced) {
        value.fill_(done ? 1 : 0);
        transport_.all_reduce(value, 0);
        all_done = value[0].item<float>() == static_cast<float>(ranks_);
      }
      link_seconds = watch.seconds();
    });
    const Stopwatch watch;
    for (int i = 0; i < size_.in_a_round; ++i) size_.steps->step();
    seconds_.push_back(watch.seconds());
    const int meanwhile = reduced;
    done = true;
    link.join();
    bytes_.push_back(meanwhile * passed() * 2);
    bandwidths_.push_back(reduced * passed() / link_seconds);
  }

  nlohmann::ordered_json link(const std::vector<std::size_t>& kept,
                              const std::vector<std::size_t>& kept_of_size) const {
    const double longer =
        mean_of_middle(pick(seconds_, kept)) - mean_of_middle(pick(size_.seconds, kept_of_size));
    return {
        {"bandwidth_bytes_per_second", mean_of_middle(pick(bandwidths_, kept))},
        {"overhead_seconds_per_byte", std::max(longer / mean_of_middle(pick(bytes_, kept)), 0.0)}};
  }

 private:
  static constexpr std::int64_t kElements = 1 << 18;  // a mebibyte
  // Bytes that an all-reduce sends from this rank.
  double passed() const { return 2 * (ranks_ - 1) / ranks_ * 4 * static_cast<double>(kElements); }

  Size& size_;
  comm::Transport& transport_;
  const double ranks_;
  std::vector<double> seconds_, bytes_, bandwidths_;
};

bool first_of_type(const cluster::Cluster& cluster, DeviceId device) {
  for (const DeviceId other : id_range<DeviceId>(device.value())) {
    if (cluster.device(other).type == cluster.device(device).type) return false;
  }
  return true;
}

void run(const TurnsOptions& options) {
  const auto place = launch::read_rank_place(launch::process_environment());
  VALIDATE(place, "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not set");
  VALIDATE(options.slow.size() == static_cast<std::size_t>(place->world_size),
           "--slow: {} factors given for {} ranks", options.slow.size(), place->world_size);
  std::vector<std::unique_ptr<Case>> cases;
  for (const std::string& text : options.cases) {
    cases.push_back(std::make_unique<Case>(options, text, static_cast<int>(cases.size()), *place));
  }
  const loading::LoadedPlan& loaded = cases.front()->loaded();
  const std::shared_ptr<const graph::ModelGraph> graph = loaded.problem->graph;
  const DeviceId rank = cases.front()->rank();
  const cluster::Cluster& cluster = *loaded.problem->cluster;
  const measure::ProfilerOptions profiler{.device = cluster.type(cluster.device(rank).type).name,
                                          .repeat = options.rounds,
                                          .slices = options.slices,
                                          .slow = options.slow[rank.value()]};
  const int slowest = *std::max_element(options.slow.begin(), options.slow.end());
  const std::int64_t batch = *std::max_element(options.slices.begin(), options.slices.end());
  std::vector<Size> sizes;
  for (std::int64_t samples : options.slices) {
    const auto one = loading::one_device_plan(graph, samples);
    sizes.push_back(
        {.samples = samples,
         .steps = std::make_unique<SizeSteps>(
             runtime::make_job(one.problem, one.plan, one.dispatch, {}, graph->name()), profiler),
         .in_a_round = static_cast<int>(slowest / profiler.slow * (batch / samples))});
  }
  runtime::Ranks& all = cases.front()->ranks();
  Size& half = sizes[sizes.size() / 2];
  Loaded loaded_link(half, cases.front()->transport(), options.slow.size());
  const std::size_t turns = cases.size() + sizes.size() + 1;
  std::vector<std::vector<double>> stolen(turns);          // [turn][round]
  for (int round = 0; round <= options.rounds; ++round) {  // the first warms up
    if (is_enough(stolen, options.quiet)) break;
    // In another order each time, the same on every rank.
    for (std::size_t i = 0; i < turns; ++i) {
      const std::size_t turn = (i + 5 * static_cast<std::size_t>(round)) % turns;
      all.meet(0);
      const Ticks before = read_ticks();
      if (turn < cases.size()) {
        cases[turn]->step();
      } else if (turn < cases.size() + sizes.size()) {
        sizes[turn - cases.size()].step();
      } else {
        loaded_link.step();
      }
      all.meet(0);
      const Ticks after = read_ticks();
      const double own = (after.stolen - before.stolen) / std::max(after.all - before.all, 1.0);
      const double told = all.gather(at::full({1}, own, at::kDouble))[0].item<double>();
      if (round > 0) stolen[turn].push_back(told);
    }
    if (rank.value() == 0) fmt::print(stderr, "round {} of {}\n", round, options.rounds);
  }
  measure::SecondsOfSizes seconds;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    seconds[sizes[i].samples] = sizes[i].seconds_of_ops(quiet_rounds(stolen[cases.size() + i]));
  }
  if (first_of_type(cluster, rank)) {
    cost::write_profile(
        fmt::format("{}/{}.profile.json", options.out, profiler.device),
        measure::profile_of_sizes(*graph, seconds, measure::begin_profile(*graph, profiler)));
  }
  write_file(
      fmt::format("{}/link{}.json", options.out, rank.value()),
      loaded_link
          .link(quiet_rounds(stolen.back()), quiet_rounds(stolen[cases.size() + sizes.size() / 2]))
          .dump(1));
  nlohmann::ordered_json json;
  for (std::size_t i = 0; i + 1 < turns; ++i) {
    const std::vector<std::size_t> kept = quiet_rounds(stolen[i]);
    nlohmann::ordered_json turn = {{"stolen", stolen[i]}, {"kept", kept}};
    if (i >= cases.size()) {
      turn["samples"] = sizes[i - cases.size()].samples;
      json["sizes"].push_back(turn);
      continue;
    }
    cases[i]->keep(kept);
    turn["case"] = options.cases[i];
    turn["seconds"] = mean_of_middle(pick(cases[i]->seconds(), kept));
    turn["rounds"] =
        std::vector<double>(cases[i]->seconds().begin() + 1, cases[i]->seconds().end());
    json["cases"].push_back(turn);
    if (rank.value() == 0) cases[i]->write_costs(fmt::format("{}/case{}", options.out, i));
  }
  if (rank.value() == 0) write_file(options.out + "/turns.json", json.dump(1));
  for (const auto& each : cases) each->finish();
}

}  // namespace
}  // namespace heterog::bench

int main(int argc, char** argv) {
  CLI::App app("Plans and profiles take turns");
  heterog::bench::TurnsOptions options;
  app.add_option("--graph", options.problem.graph)->required();
  app.add_option("--cluster", options.problem.cluster)->required();
  app.add_option("--profile", options.problem.profiles);
  app.add_option("--case", options.cases)->required();
  app.add_option("--slices", options.slices)->required()->delimiter(',');
  app.add_option("--slow", options.slow)->required()->delimiter(',');
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 100000));
  app.add_option("--quiet", options.quiet)->check(CLI::Range(1, 100000));
  app.add_option("--out", options.out)->required();
  CLI11_PARSE(app, argc, argv);
  try {
    heterog::bench::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_turns: {}\n", error.what());
    return 1;
  }
}
