// heterog profile: measures what the operators of a graph cost on this machine.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "cluster/cluster_io.h"
#include "cluster/gpu_part.h"
#include "cost/poor_fit.h"
#include "cost/profile_io.h"
#include "graph/graph_io.h"
#include "launch/gpus.h"
#include "loading/one_device.h"
#include "measure/profiler.h"
#include "measure/step_profile.h"
#include "measure/step_time.h"
#include "runtime/kernels/infer.h"
#include "runtime/kernels/operators.h"

namespace heterog::cli {

namespace {

struct ProfileOptions {
  std::string graph;
  std::string out;
  std::string device = "CPU";
  std::vector<std::int64_t> slices = {1, 2, 4, 8, 16};
  int repeat = measure::ProfilerOptions{}.repeat;
  int threads = hardware_threads();
  std::optional<double> limit;
  std::optional<std::int64_t> step;  // samples of the whole step to compare with
  std::uint64_t seed = 0;
  bool json = false;
  bool in_steps = false;
  bool force = false;
  int slow = 1;
};

bool is_gpu(const std::string& device) { return !launch::is_cpu_type(device); }

// A part of a GPU is named "H100-SXM5-80GB:32" (cluster/gpu_part.h).
// A card that the shipped data base lacks may stand in one beside the profile, as beside a cluster.
void check_device(const std::string& device, const std::string& out) {
  const cluster::DeviceDatabase devices = cluster::devices_for(out);
  const auto part = cluster::part_of(device);
  std::string names;
  for (const auto& [name, type] : devices) names += (names.empty() ? "" : ", ") + name;
  VALIDATE(devices.contains(part ? part->gpu : device),
           "--device: unknown device '{}'; it is one of {}", printable(device), names);
  if (!part) return;
  const int whole = devices.at(part->gpu).multiprocessors;
  VALIDATE(whole > 1 && part->multiprocessors <= whole,
           "--device: {} is a part of {} multiprocessors; {} has {}", printable(device),
           part->multiprocessors, part->gpu, whole);
}

measure::ProfilerOptions profiler_options(const ProfileOptions& options) {
  check_device(options.device, options.out);
  VALIDATE(!options.step || !is_gpu(options.device),
           "--step: whole steps run on the CPU alone, and --device is {}", options.device);
  measure::ProfilerOptions profiler{.device = options.device,
                                    .gpu = is_gpu(options.device),
                                    .threads = options.threads,
                                    .repeat = options.repeat,
                                    .slices = options.slices,
                                    .seed = options.seed,
                                    .slow = options.slow};
  if (const auto part = cluster::part_of(options.device)) {
    profiler.multiprocessors = part->multiprocessors;
  }
  std::sort(profiler.slices.begin(), profiler.slices.end());
  VALIDATE(!profiler.slices.empty(), "--slices: none given; give at least two, as in 1,4,16");
  for (std::size_t i = 0; i < profiler.slices.size(); ++i) {
    VALIDATE(i == 0 || profiler.slices[i] != profiler.slices[i - 1],
             "--slices: {} given twice; sizes differ", profiler.slices[i]);
  }
  VALIDATE(profiler.slices.size() >= 2,
           "--slices: only {} given; a line needs at least two sizes, as in 1,4,16",
           profiler.slices[0]);
  return profiler;
}

std::string list_text(const std::vector<std::int64_t>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

// What an interrupted run of the same command left, or nothing yet. One that was refused for its
// fit is finished: it is taken with --force, and measured anew without.
cost::Profile begin_or_go_on(const graph::ModelGraph& graph,
                             const measure::ProfilerOptions& options, const std::string& partial,
                             bool force) {
  cost::Profile begun = measure::begin_profile(graph, options);
  if (!std::filesystem::exists(partial)) return begun;
  cost::Profile found = cost::read_profile(partial);
  const auto expect_same = [&](const char* field, const std::string& theirs,
                               const std::string& ours) {
    VALIDATE(theirs == ours,
             "{}: {}: the interrupted run has {}, this one {}; give the same, or remove the file",
             partial, field, printable(theirs), printable(ours));
  };
  expect_same("graph.hash", fmt::format("{:016x}", found.graph_hash),
              fmt::format("{:016x}", begun.graph_hash));
  expect_same("device", found.device, begun.device);
  expect_same("machine", found.machine, begun.machine);
  expect_same("torch", found.torch, begun.torch);
  expect_same("threads", std::to_string(found.threads), std::to_string(begun.threads));
  expect_same("repeat", std::to_string(found.repeat), std::to_string(begun.repeat));
  expect_same("slices", list_text(found.slices), list_text(begun.slices));
  return found.finished && !force ? begun : found;
}

// Where the machine was measured and not the load on it, or that is wanted.
void expect_fit(const cost::Profile& profile, const ProfileOptions& options) {
  const std::string poor = cost::poor_fit(profile);
  if (poor.empty() || options.force) return;
  throw Error(ErrorKind::kVerification,
              fmt::format("this machine was busy while it was measured: {}; {} is not written. The "
                          "same command measures again; with --force it takes what it has",
                          poor, printable(options.out, 400)));
}

// A whole step as it ran, and as the profile's costs add up.
struct StepCheck {
  std::int64_t samples = 0;
  double measured_seconds = 0;
  double predicted_seconds = 0;
  double relative_error() const { return predicted_seconds / measured_seconds - 1; }
};

std::optional<StepCheck> check_step(const ProfileOptions& options, const graph::ModelGraph& graph,
                                    const cost::Profile& profile) {
  if (!options.step || !profile.finished) return std::nullopt;
  StepCheck check{.samples = *options.step};
  for (const cost::ProfiledOperator& op : profile.operators) {
    check.predicted_seconds +=
        static_cast<double>(op.ops.size()) * cost::CostCurve(op).at(check.samples);
  }
  check.measured_seconds = measure::measure_step(
      graph, {.samples = check.samples, .threads = options.threads, .seed = options.seed});
  return check;
}

// What is printed beside the profile.
struct Summary {
  std::size_t measured_now = 0;
  double seconds = 0;
  std::optional<StepCheck> step;
};

OrderedJson error_json(const cost::FitError& error) {
  OrderedJson json;
  if (error.samples > 0) json["samples"] = error.samples;
  json["predictions"] = error.count;
  json["median_relative_error"] = error.median;
  json["worst_relative_error"] = error.worst;
  json["worst_operator"] = error.worst_form;
  json["sum_relative_error"] = error.total;
  return json;
}

void print_as_json(const ProfileOptions& options, const cost::Profile& profile,
                   const Summary& summary, const Caller& caller) {
  OrderedJson json;
  json["profile"] = profile.finished ? options.out : options.out + ".partial";
  json["finished"] = profile.finished;
  json["operators"] = profile.operators.size();
  json["measured_now"] = summary.measured_now;
  json["profile_seconds"] = summary.seconds;
  json["fit"] = error_json(cost::fit_error(profile));
  json["held_out"] = OrderedJson::array();
  for (const cost::FitError& error : cost::held_out_errors(profile)) {
    json["held_out"].push_back(error_json(error));
  }
  json["links"] = OrderedJson::array();
  for (const cost::ProfiledLink& link : profile.links) {
    json["links"].push_back({{"between", link.between},
                             {"latency_seconds", link.latency_seconds},
                             {"bandwidth_bytes_per_second", link.bytes_per_second},
                             {"r2", link.r2}});
  }
  if (summary.step) {
    json["step"] = {{"samples", summary.step->samples},
                    {"measured_seconds", summary.step->measured_seconds},
                    {"predicted_seconds", summary.step->predicted_seconds},
                    {"relative_error", summary.step->relative_error()}};
  }
  print_json(caller, json);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string errors_text(const cost::Profile& profile) {
  Table table({"predicted", "operators", "median", "worst", "whole step"});
  const auto add = [&](const std::string& what, const cost::FitError& error) {
    table.add_row({what, std::to_string(error.count), percent(error.median), percent(error.worst),
                   fmt::format("{:+.1f} %", 100 * error.total)});
  };
  const cost::FitError fit = cost::fit_error(profile);
  if (fit.count == 0) return "";
  add("sizes of the fit", fit);
  for (const cost::FitError& error : cost::held_out_errors(profile)) {
    add(fmt::format("{} samples, held out", error.samples), error);
  }
  return "\nerror of the line seconds = fixed + per sample * samples on the sizes that it was "
         "fitted to, and of each size by the costs without it, where the batch matters:\n" +
         table.text() + fmt::format("worst: {}\n", printable(fit.worst_form, 160));
}

void print_as_text(const ProfileOptions& options, const cost::Profile& profile,
                   const Summary& summary, const Caller& caller) {
  std::size_t ops = 0;
  for (const cost::ProfiledOperator& op : profile.operators) ops += op.ops.size();
  print(caller,
        "{} on {} ({}, {} threads): {} distinct operators for {} ops, {} measured now in {}\n",
        profile.graph_name, profile.device, profile.machine, profile.threads,
        profile.operators.size(), ops, summary.measured_now, duration_text(summary.seconds));
  for (const cost::ProfiledLink& link : profile.links) {
    print(caller, "{}: {:.1f} us + bytes / {:.2f} GB/s (R2 {:.4f})\n", link.between,
          1e6 * link.latency_seconds, 1e-9 * link.bytes_per_second, link.r2);
  }
  print(caller, "{}", errors_text(profile));
  if (summary.step) {
    print(caller, "\nwhole step of {} samples: {} as run here, {} by the profile ({:+.1f} %)\n",
          summary.step->samples, milliseconds_text(summary.step->measured_seconds),
          milliseconds_text(summary.step->predicted_seconds), 100 * summary.step->relative_error());
  }
  if (profile.finished) {
    print(caller, "\nwritten to {}\n", options.out);
  } else {
    print(caller, "\nnot finished: {}.partial has what was measured; the same command goes on\n",
          options.out);
  }
}

int run_profile(const ProfileOptions& options, const Caller& caller) {
  const Stopwatch watch;
  graph::GraphFile file = graph::read_graph_file(options.graph);
  const auto shared = std::make_shared<const graph::ModelGraph>(std::move(file.graph));
  const graph::ModelGraph& graph = *shared;
  const measure::ProfilerOptions profiler = profiler_options(options);
  runtime::check_operators(graph, options.graph);
  runtime::check_results(graph,
                         runtime::checked_batches(profiler.slices.back(), file.known.smallest()),
                         options.graph);
  const std::string partial = options.out + ".partial";
  cost::Profile profile = begin_or_go_on(graph, profiler, partial, options.force);
  VALIDATE(options.slow == 1 || options.in_steps, "--slow: needs --in-steps");
  const std::size_t known = profile.operators.size();
  write_file(partial, cost::profile_text(profile));  // refuses before the work if it cannot
  {
    Progress progress(caller, "profiling");
    double saved = 0;
    const measure::ProfilerHooks hooks{
        .progress = [&](double done,
                        const std::string& form) { progress.show(done, printable(form, 60)); },
        .save =
            [&](const cost::Profile& so_far) {
              if (watch.seconds() < saved + 1) return;  // a second of work is little to lose
              cost::write_profile(partial, so_far);
              saved = watch.seconds();
            },
        .expired = [&] { return options.limit && watch.seconds() >= *options.limit; }};
    profile =
        options.in_steps
            ? measure::measure_in_steps(
                  graph,
                  [&](std::int64_t samples) {
                    const auto one = loading::one_device_plan(shared, samples);
                    return runtime::make_job(one.problem, one.plan, one.dispatch, {}, graph.name());
                  },
                  profiler, std::move(profile), hooks)
            : measure::measure_profile(graph, profiler, std::move(profile), hooks);
  }
  cost::write_profile(partial, profile);
  if (profile.finished) {
    expect_fit(profile, options);
    cost::write_profile(options.out, profile);
    std::filesystem::remove(partial);
  }
  Summary summary{.measured_now = profile.operators.size() - known, .seconds = watch.seconds()};
  summary.step = check_step(options, graph, profile);
  if (options.json) {
    print_as_json(options, profile, summary, caller);
  } else {
    print_as_text(options, profile, summary, caller);
  }
  return 0;
}

}  // namespace

void add_profile(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ProfileOptions>();
  CLI::App& verb =
      *app.add_subcommand("profile", "Measures the operators of a graph on this machine");
  verb.add_option("--graph", options->graph,
                  "Model graph: a file, or one of the zoo by its name (models/*.json.gz)")
      ->required();
  verb.add_option("--out", options->out, "Profile to write")->required();
  verb.add_option("--device", options->device,
                  "The device type that this machine has, as in configs/devices.json; "
                  "H100-SXM5-80GB:32 is a part of one, of 32 multiprocessors")
      ->capture_default_str();
  add_integers(verb, "--slices", options->slices, kBatches,
               "Numbers of samples to measure, as in 1,4,16");
  add_integer(verb, "--repeat", options->repeat, {1, 10000}, "Samples of each median");
  add_integer(verb, "--threads", options->threads, kThreads, "Threads of one operator, on a CPU");
  add_number(verb, "--limit", options->limit, kDurations,
             "Stop after this many seconds; the same command goes on later");
  add_integer(verb, "--step", options->step, kBatches,
              "Also run whole steps of this many samples (CPU), and compare the profile's sum");
  verb.add_flag("--in-steps", options->in_steps,
                "Measure operators in whole steps of the runtime instead of one by one: with "
                "what the runtime adds, and with the caches as a step leaves them");
  add_integer(verb, "--slow", options->slow, {1, 1000},
              "With --in-steps: of a device that repeats its work so often (run --slow)");
  add_integer(verb, "--seed", options->seed, kSeeds, "Seed of the values that operators run on");
  verb.add_flag("--json", options->json, "One JSON object on stdout instead of tables");
  verb.add_flag("--force", options->force,
                "Write the profile of a busy machine, too, whose times fit no line (exit code 4 "
                "otherwise)");
  verb.footer(
      "Example:\n  heterog profile --graph models/lenet5-tiny.json.gz --out lenet5.profile.json\n"
      "An interrupted run leaves OUT.partial; the same command goes on from there.");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_profile(*options, caller); };
  });
}

}  // namespace heterog::cli
