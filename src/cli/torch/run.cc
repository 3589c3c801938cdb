// heterog run: executes a plan, one process per device, and says how far the prediction was off.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/file.h"
#include "base/median.h"
#include "base/shell.h"
#include "base/text.h"
#include "cli/loaded_plan.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/torch/processes.h"
#include "cli/verbs.h"
#include "cluster/cluster_io.h"
#include "cost/profile_io.h"
#include "explain/gradients.h"
#include "launch/rank_device.h"
#include "measure/drift.h"
#include "measure/memory_drift.h"
#include "measure/records_io.h"
#include "measure/run_links.h"
#include "measure/run_profile.h"
#include "runtime/program/job_terms.h"
#include "runtime/ranks/training_run.h"
#include "sim/trace_io.h"

namespace heterog::cli {

namespace {

using launch::RankPlace;
using runtime::WorkerOptions;

struct RunOptions {
  ProblemOptions problem;
  std::string plan;
  std::int64_t steps = 5;
  int threads = 0;
  std::uint64_t seed = 0;
  bool json = false;
  bool any_device = false;
  bool no_measure = false;
  ProcessOptions ranks;
  std::vector<std::string> slow;  // DEVICE=FACTOR
  std::string order;
  std::string trace;
  std::string profile_out;
  std::string records_out;
  std::string checkpoint;
  std::int64_t every = 0;
  bool resume = false;
};

// "DEVICE=FACTOR": how often a device repeats its work.
int slowness(const RunOptions& options, const std::string& device) {
  int factor = 1;
  for (const std::string& entry : options.slow) {
    if (entry.substr(0, entry.rfind('=')) != device) continue;
    factor = std::stoi(entry.substr(entry.rfind('=') + 1));
  }
  return factor;
}

void check_slow(const RunOptions& options, const cluster::Cluster& cluster) {
  const std::vector<std::string> names = device_names(cluster);
  for (const std::string& entry : options.slow) {
    const std::size_t at = entry.rfind('=');
    int factor = 0;
    const char* end = entry.data() + entry.size();
    const bool number =
        at != entry.npos && std::from_chars(entry.data() + at + 1, end, factor).ptr == end;
    VALIDATE(number && factor >= 1 && factor <= 1000,
             "--slow: \"{}\" given; it is DEVICE=FACTOR, the factor a number from 1 to 1000",
             printable(entry));
    VALIDATE(std::count(names.begin(), names.end(), entry.substr(0, at)) == 1,
             "--slow: no device \"{}\" in cluster {}; its first is {}",
             printable(entry.substr(0, at)), cluster.name(), names[0]);
  }
}

WorkerOptions worker_options(const RunOptions& options, const cluster::Cluster& cluster,
                             DeviceId rank, int ranks_here) {
  return {.seed = options.seed,
          .threads = launch::operator_threads(options.threads, ranks_here,
                                              launch::rank_type(cluster, rank)),
          .repeat = slowness(options, cluster.device(rank).name),
          .record = !options.no_measure};
}

// Prints steps as they end, and at last what they took beside what was predicted.
class Printer {
 public:
  Printer(const RunOptions& options, const LoadedPlan& loaded, const std::string& how,
          const Caller& caller)
      : options_(options), loaded_(loaded), caller_(caller) {
    const cost::Problem& problem = *loaded.problem;
    json_ = {{"graph", problem.graph->name()},
             {"cluster", problem.cluster->name()},
             {"batch", problem.batch},
             {"planner", loaded.record.planner},
             {"ranks", problem.cluster->place_count()},
             {"ranks_are", how},
             {"steps", OrderedJson::array()}};
    if (options.json) return;
    print(caller, "{} on {}, batch {}, plan of {}{}: {} ranks, {}\n", problem.graph->name(),
          problem.cluster->name(), problem.batch, loaded.record.planner,
          explain::compression_words(problem), problem.cluster->place_count(), how);
    std::fflush(stdout);
  }

  void step(std::int64_t number, const runtime::StepReport& report) {
    seconds_.push_back(report.seconds);
    memory_.resize(report.memory.size());
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if (report.memory[i].most > memory_[i].most) memory_[i] = report.memory[i];
    }
    json_["steps"].push_back(
        {{"step", number}, {"loss", report.loss}, {"seconds", report.seconds}});
    if (options_.json) return;
    print(caller_, "step {}: loss {:.6g}, {}\n", number, report.loss,
          milliseconds_text(report.seconds));
    if (std::fflush(stdout) != 0) {
      throw Error(ErrorKind::kVerification,
                  fmt::format("stdout: cannot be written: {}", std::strerror(errno)));
    }
  }

  // The first step, which warms up, is not counted if there are others. `drift`: empty if the tasks
  // were not measured.
  void end(const std::vector<measure::Drift>& drift) {
    if (seconds_.empty()) {
      if (options_.json) return print_json(caller_, json_);
      return print(caller_, "all {} steps had been done before\n", options_.steps);
    }
    std::vector<double> counted = seconds_;
    if (counted.size() > 1) counted.erase(counted.begin());
    const double measured = median(counted);
    const double predicted = to_seconds(loaded_.simulated.result.step);
    json_["median_step_seconds"] = measured;
    json_["predicted_step_seconds"] = predicted;
    json_["measured_over_predicted"] = measured / predicted;
    if (!options_.no_measure) json_["drift"] = OrderedJson::array();
    for (const measure::Drift& row : drift) {
      json_["drift"].push_back({{"what", row.what},
                                {"tasks", row.tasks},
                                {"predicted_seconds", row.predicted_seconds},
                                {"measured_seconds", row.measured_seconds}});
    }
    const std::vector<measure::MemoryDrift> memory = memory_drift();
    if (!memory.empty()) json_["memory"] = OrderedJson::array();
    for (const measure::MemoryDrift& row : memory) {
      json_["memory"].push_back({{"device", row.device},
                                 {"predicted", memory_json(row.predicted)},
                                 {"measured", memory_json(row.measured)}});
      if (row.measured.reserved > 0) {
        json_["memory"].back()["measured"]["reserved_bytes"] = row.measured.reserved;
      }
    }
    if (options_.json) return print_json(caller_, json_);
    Table table({"drift", "tasks", "predicted", "measured", "ratio"});
    for (const measure::Drift& row : drift) {
      table.add_row({row.what, std::to_string(row.tasks), milliseconds_text(row.predicted_seconds),
                     milliseconds_text(row.measured_seconds), fmt::format("{:.2f}", row.ratio())});
    }
    // What the allocator of a GPU keeps for tensors to come: CPUs have none.
    const bool reserves = std::ranges::any_of(
        memory, [](const measure::MemoryDrift& row) { return row.measured.reserved > 0; });
    std::vector<std::string> titles{"memory at the peak", "parameters", "optimizer",
                                    "predicted",          "measured",   "ratio"};
    if (reserves) titles.emplace_back("reserved");
    Table peaks(titles);
    for (const measure::MemoryDrift& row : memory) {
      std::vector<std::string> cells{row.device,
                                     megabytes_text(row.measured.parameters),
                                     megabytes_text(row.measured.optimizer_state),
                                     megabytes_text(row.predicted.most),
                                     megabytes_text(row.measured.most),
                                     fmt::format("{:.2f}", row.ratio())};
      if (reserves) cells.push_back(megabytes_text(row.measured.reserved));
      peaks.add_row(cells);
    }
    print(caller_, "{}{}median step {}, predicted {}: measured is {:.3g} times the prediction\n",
          drift.empty() ? "" : table.text(), memory.empty() ? "" : peaks.text(),
          milliseconds_text(measured), milliseconds_text(predicted), measured / predicted);
  }

 private:
  // Of ranks that are processes, which count their own.
  std::vector<measure::MemoryDrift> memory_drift() const {
    if (options_.no_measure || options_.ranks.in_threads) return {};
    return measure::memory_drift(*loaded_.problem, loaded_.simulated.plan, loaded_.simulated.result,
                                 memory_);
  }
  static OrderedJson memory_json(const runtime::RankMemory& memory) {
    return {{"peak_bytes", memory.most},
            {"parameters_bytes", memory.parameters},
            {"optimizer_bytes", memory.optimizer_state},
            {"buffers_bytes", memory.buffers}};
  }
  static std::string megabytes_text(Bytes bytes) {
    return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  }

  const RunOptions& options_;
  const LoadedPlan& loaded_;
  const Caller& caller_;
  std::vector<double> seconds_;
  std::vector<runtime::RankMemory> memory_;  // of each rank, in the step in which it took most
  OrderedJson json_;
};

LoadedPlan load(const RunOptions& options) {
  LoadedPlan loaded = load_plan(options.plan, options.problem, options.order);
  check_slow(options, *loaded.problem->cluster);
  return loaded;
}

runtime::Job job_of(const LoadedPlan& loaded, const RunOptions& options) {
  return runtime::make_job(loaded.problem, loaded.simulated.plan, loaded.simulated.result.dispatch,
                           {}, options.problem.graph);
}

// The steps that are looked at: the last ones, and the first, which warms up, only where it is all
// there is.
class Records {
 public:
  void add(const runtime::StepReport& report) {
    if (!report.measured) return;
    if (steps().size() == kMost || (steps().size() == 1 && !warm_)) {
      records_.steps.erase(records_.steps.begin());
      records_.seconds.erase(records_.seconds.begin());
      warm_ = true;
    }
    records_.steps.push_back(*report.measured);
    records_.seconds.push_back(report.seconds);
  }
  const std::vector<runtime::MeasuredStep>& steps() const { return records_.steps; }
  const measure::RecordedSteps& all() const { return records_; }

 private:
  static constexpr std::size_t kMost = 100;
  measure::RecordedSteps records_;
  bool warm_ = false;
};

// The step of the median duration, as a timeline of the plan.
sim::SimResult median_step(const compiler::Plan& plan, std::vector<runtime::MeasuredStep> steps) {
  std::sort(steps.begin(), steps.end(),
            [](const auto& a, const auto& b) { return a.duration < b.duration; });
  const runtime::MeasuredStep& middle = steps[steps.size() / 2];
  sim::SimResult result;
  result.step = middle.duration;
  result.start = middle.begin;
  result.end = middle.end;
  for (const TaskId task : plan.task_ids()) result.dispatch.push_back(task);
  std::stable_sort(result.dispatch.begin(), result.dispatch.end(),
                   [&](TaskId a, TaskId b) { return middle.begin[a] < middle.begin[b]; });
  return result;
}

// DIR/rankN.json, one per rank.
void write_rank_trace(const RunOptions& options, const LoadedPlan& loaded, const Records& records,
                      DeviceId rank) {
  if (options.trace.empty()) return;
  const compiler::Plan& plan = loaded.simulated.plan;
  write_file(
      fmt::format("{}/rank{}.json", options.trace, rank.value()),
      sim::chrome_trace(*loaded.problem, plan, median_step(plan, records.steps()), {.rank = rank}));
}

// The records themselves, and DIR/TYPE.profile.json, one per type of device, and
// DIR/links.profile.json.
void write_measured(const RunOptions& options, const LoadedPlan& loaded, const Records& records) {
  if (!options.records_out.empty()) measure::write_records(options.records_out, records.all());
  if (options.profile_out.empty()) return;
  const cluster::Cluster& cluster = *loaded.problem->cluster;
  measure::write_links(options.profile_out + "/links.profile.json", cluster, loaded.simulated.plan,
                       records.steps());
  const measure::RecordedRun run{*loaded.problem, loaded.simulated.plan, records.steps()};
  for (const DeviceTypeId type : id_range<DeviceTypeId>(cluster.place_type_count())) {
    const cost::Profile profile = measure::profile_of_runs(*loaded.problem, {&run, 1}, type);
    if (!profile.finished) continue;
    cost::write_profile(
        fmt::format("{}/{}.profile.json", options.profile_out, cluster.type(type).name), profile);
  }
}

std::vector<measure::Drift> drift_of(const LoadedPlan& loaded, const runtime::Job& job,
                                     const Records& records) {
  if (records.steps().empty()) return {};
  return measure::drift(job, loaded.simulated.plan, records.steps());
}

// All steps that are left, with a checkpoint after every so many and the last. `printer`: of rank 0
// alone, else null.
Records train(const RunOptions& options, runtime::TrainingRun& run, Printer* printer) {
  Records records;
  const std::int64_t done = options.resume ? run.load(options.checkpoint) : 0;
  const auto saves_after = [&](std::int64_t step) {
    const bool due = step == options.steps || (options.every > 0 && step % options.every == 0);
    return due && !options.checkpoint.empty();
  };
  std::int64_t launched = done;
  for (std::int64_t step = done + 1; step <= options.steps; ++step) {
    const bool ahead = run.goes_ahead() && step < options.steps && !saves_after(step);
    while (launched < step + (ahead ? 1 : 0)) run.launch(++launched);
    const runtime::StepReport report = run.finish();
    records.add(report);
    if (printer) printer->step(step, report);
    if (saves_after(step)) run.save(options.checkpoint, step);
  }
  return records;
}

int run_threads(const RunOptions& options, const Caller& caller) {
  const LoadedPlan loaded = load(options);
  const runtime::Job job = job_of(loaded, options);
  IdVector<DeviceId, WorkerOptions> workers;
  const cluster::Cluster& cluster = *loaded.problem->cluster;
  const auto devices = launch::thread_devices(cluster);
  for (const DeviceId rank : cluster.place_ids()) {
    WorkerOptions worker =
        worker_options(options, cluster, rank, static_cast<int>(cluster.place_count()));
    worker.device = devices[rank.value()].device;
    worker.streams = devices[rank.value()].streams;
    workers.push_back(worker);
  }
  runtime::TrainingRun run(runtime::ranks_in_threads(job, loaded.simulated.plan, workers),
                           workers[DeviceId(0)]);
  Printer printer(options, loaded, "threads of one process", caller);
  const Records records = train(options, run, &printer);
  if (!records.steps().empty()) {
    for (const DeviceId rank : loaded.problem->cluster->place_ids()) {
      write_rank_trace(options, loaded, records, rank);
    }
    write_measured(options, loaded, records);
  }
  printer.end(drift_of(loaded, job, records));
  return 0;
}

launch::JobTerms terms_of(const LoadedPlan& loaded, const runtime::Job& job,
                          const RunOptions& options) {
  return runtime::terms_of(job, loaded.simulated.result.peak_bytes,
                           {.seed = options.seed,
                            .any_device = options.any_device,
                            .transport = options.ranks.transport,
                            .others = {fmt::format("{} steps, {}{}save every {} to ", options.steps,
                                                   options.no_measure ? "not measured, " : "",
                                                   options.resume ? "go on, " : "", options.every) +
                                       options.checkpoint}});
}

int run_one_rank(const RunOptions& options, const RankPlace& place, const Caller& caller) {
  const LoadedPlan loaded = load(options);
  const runtime::Job job = job_of(loaded, options);
  const launch::Joined joined =
      join_ranks(job, terms_of(loaded, job, options), place, options.ranks);
  joined.transport->run_until_finished([&] {
    WorkerOptions worker =
        worker_options(options, *loaded.problem->cluster, joined.rank, joined.ranks_here);
    worker.device = joined.device;
    worker.count_memory = !options.no_measure;
    runtime::TrainingRun run(
        runtime::rank_among_processes(job, loaded.simulated.plan,
                                      {joined.rank, joined.transport->get()}, worker),
        worker);
    std::optional<Printer> printer;
    if (place.rank == 0) printer.emplace(options, loaded, "processes", caller);
    const Records records = train(options, run, printer ? &*printer : nullptr);
    if (!records.steps().empty()) write_rank_trace(options, loaded, records, joined.rank);
    if (!printer) return;
    if (!records.steps().empty()) write_measured(options, loaded, records);
    printer->end(drift_of(loaded, job, records));
  });
  return 0;
}

int run_processes(const RunOptions& options) {
  const cluster::Cluster cluster = cluster::load_cluster(options.problem.cluster);
  check_slow(options, cluster);
  // One that cannot be read is said once, here.
  const std::int64_t batch = decide::read_plan_header(options.plan).batch;
  start_ranks(options.ranks, cluster,
              fmt::format("; to go on without it, take it out of {} and: heterog plan --from {} {} "
                          "--batch {} --out new.json",
                          printable(options.problem.cluster, 400), shell_word(options.plan),
                          problem_words(options.problem), batch));
  return 0;
}

int run_run(const RunOptions& options, const Caller& caller) {
  check_processes(options.ranks, caller);
  if (!options.trace.empty()) make_folder(options.trace);
  if (!options.profile_out.empty()) make_folder(options.profile_out);
  if (!options.records_out.empty()) expect_writable(options.records_out);
  if (options.ranks.in_threads) return run_threads(options, caller);
  if (const auto place = own_place(options.ranks, caller))
    return run_one_rank(options, *place, caller);
  return run_processes(options);
}

}  // namespace

void add_run(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<RunOptions>();
  CLI::App& verb =
      *app.add_subcommand("run", "Executes a plan on random data, a process per device");
  add_graph_and_cluster(verb, options->problem);
  verb.add_option("--plan", options->plan, "Plan file")->required();
  add_integer(verb, "--steps", options->steps, kCounts, "Training steps");
  add_integer(verb, "--threads", options->threads, {0, kThreads.most},
              "Threads of one operator of one rank; 0: an equal share of the processors");
  add_processes(verb, options->ranks);
  verb.add_option("--slow", options->slow,
                  "DEVICE=FACTOR: the device repeats its work, to try out unequal devices");
  verb.add_flag(
      "--any-device", options->any_device,
      "Let ranks be other devices than the plan's: any GPU, shared where there are too few, "
      "or the CPU where there is none");
  verb.add_option("--order", options->order,
                  fmt::format("{}, in place of the plan's own", decide::kPlainOrders));
  auto* no_measure = verb.add_flag(
      "--no-measure", options->no_measure,
      "Take the time of whole steps alone, not of their tasks: nothing is recorded or gathered");
  verb.add_option("--trace", options->trace,
                  "Folder for a Chrome trace of the median step, one file per rank")
      ->excludes(no_measure);
  verb.add_option(
          "--profile-out", options->profile_out,
          "Folder for what the operators took, one profile per type of device, and for what links "
          "did (links.profile.json); each a --profile")
      ->excludes(no_measure);
  verb.add_option("--records-out", options->records_out,
                  "File for when every task ran, step by step (docs/formats.md)")
      ->excludes(no_measure);
  auto* checkpoint = verb.add_option(
      "--checkpoint", options->checkpoint,
      "Save parameters, buffers and optimizer state here after the last step (safetensors)");
  add_integer(verb, "--every", options->every, kCounts, "Save after every so many steps too")
      ->needs(checkpoint);
  verb.add_flag("--resume", options->resume, "Go on from the checkpoint, where there is one")
      ->needs(checkpoint);
  add_integer(verb, "--seed", options->seed, kSeeds, "Seed of everything random");
  verb.add_flag("--json", options->json, "One JSON object on stdout instead of lines");
  verb.footer(
      "Example:\n  heterog run --graph models/lenet5-tiny.json.gz "
      "--cluster configs/clusters/local-2cpu.json --plan plan.json --steps 10");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_run(*options, caller); };
  });
}

}  // namespace heterog::cli
