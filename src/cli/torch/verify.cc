// heterog verify: proves that a plan trains as one device does.
#include "runtime/check/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/text.h"
#include "cli/loaded_plan.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planner_table.h"
#include "cli/torch/processes.h"
#include "cli/verbs.h"
#include "cluster/cluster_io.h"
#include "compiler/rescale.h"
#include "decide/micro_batches.h"
#include "launch/gpus.h"
#include "launch/rank_device.h"
#include "launch/terms.h"
#include "oracle/simulated_oracle.h"
#include "runtime/kernels/operators.h"
#include "runtime/program/faults.h"
#include "runtime/program/job_terms.h"

namespace heterog::cli {

namespace {

struct VerifyOptions {
  CommonOptions common;
  ProblemOptions problem;
  std::string plan;
  std::string planner;
  std::int64_t accumulate = 1;
  std::int64_t at_batch = 0;  // 0: the plan's own
  int steps = 3;
  std::string dtype = "float64";
  std::string devices = "cpu";
  bool tf32 = false;
  double tolerance = 0;
  bool lossy = false;
  std::string broken;
  ProcessOptions ranks;
};

// Decision 12. TensorFloat-32 has 10 binary digits behind the point.
double tolerance_of(const VerifyOptions& options, const graph::Tf32& tf32) {
  if (options.tolerance > 0) return options.tolerance;
  if (options.dtype == "float64") return 1e-10;
  return options.tf32 && (tf32.products || tf32.convolutions) ? 1e-2 : 1e-4;
}

struct Verified {
  std::shared_ptr<const cost::Problem> problem;
  std::string planner;
  decide::Strategy strategy;
  graph::KnownBatches known = {};
};

Verified chosen_plan(const VerifyOptions& options, const Caller& caller) {
  VALIDATE(options.plan.empty() != options.planner.empty(),
           "give --plan or --planner, and not both");
  if (!options.plan.empty()) {
    LoadedPlan loaded = load_plan(options.plan, options.problem);
    return {loaded.problem, loaded.record.planner, loaded.record.strategy, std::move(loaded.known)};
  }
  VALIDATE(options.problem.batch > 0, "--planner needs --batch");
  Verified verified;
  loading::LoadedProblem read = loading::load_problem_file(options.problem);
  verified.problem = std::move(read.problem);
  verified.known = std::move(read.known);
  verified.planner = options.planner;
  ThreadPool threads(options.common.threads);
  oracle::SimulatedOracle oracle(*verified.problem, threads, compile_options(options.problem),
                                 caller.stopped);
  search::PlannerContext context{.oracle = oracle, .rng = Rng(options.common.seed)};
  verified.strategy =
      find_planner(options.planner, *verified.problem->cluster)->plan(context).strategy;
  return verified;
}

std::optional<runtime::Fault> fault_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const auto at = std::ranges::find(runtime::kFaultNames, name);
  VALIDATE(at != runtime::kFaultNames.end(), "--break: \"{}\" given; it is {}", printable(name),
           search::list_text(runtime::kFaultNames));
  return static_cast<runtime::Fault>(at - runtime::kFaultNames.begin());
}

void expect_device(DeviceId device, const cluster::Cluster& cluster) {
  const std::string type = launch::rank_type(cluster, device);
  VALIDATE(launch::is_cpu_type(type) || !launch::visible_gpus().empty(),
           "--devices plan: {} is a {}, and {}", cluster.device(device).name, type,
           launch::no_gpu_reason());
}

// Parts of a GPU run on multiprocessors of their own.
void choose_devices(const VerifyOptions& options, const cluster::Cluster& cluster,
                    runtime::VerifyOptions& steps) {
  if (options.devices == "cpu") return;
  for (const DeviceId device : cluster.place_ids()) expect_device(device, cluster);
  for (const launch::ThreadDevice& one : launch::thread_devices(cluster)) {
    steps.devices.push_back(one.device);
    steps.streams.push_back(one.streams);
  }
}

std::string table_text(const runtime::Verification& verification) {
  Table table({"", "worst", "tensor", "device", "step"});
  for (const runtime::Difference& worst : verification.worst) {
    if (worst.tensor.empty()) continue;
    table.add_row({worst.kind, fmt::format("{:.1e}", worst.relative), worst.tensor,
                   worst.device.empty() ? "-" : worst.device, std::to_string(worst.step)});
  }
  return table.text();
}

// Where the one device does not run an operator as it stands on the whole batch.
std::string exceptions_text(const runtime::ReferenceStep::Exceptions& exceptions) {
  std::string text;
  if (exceptions.batch_norms > 0) {
    text += fmt::format("per slice: {} batch norm{}\n", exceptions.batch_norms,
                        exceptions.batch_norms == 1 ? "" : "s");
  }
  if (exceptions.random > 0) {
    text += fmt::format("random by counter: {}\n", exceptions.random);
  }
  return text;
}

OrderedJson verification_json(const runtime::Verification& verification, double tolerance,
                              bool passed) {
  OrderedJson json = {{"passed", passed},
                      {"tolerance", tolerance},
                      {"compared", verification.compared},
                      {"batch_norms_per_slice", verification.exceptions.batch_norms},
                      {"random_by_counter", verification.exceptions.random}};
  json["worst"] = OrderedJson::array();
  for (const runtime::Difference& worst : verification.worst) {
    if (worst.tensor.empty()) continue;
    // A difference that is not finite has no number in JSON.
    OrderedJson relative = nullptr;
    if (std::isfinite(worst.relative)) relative = worst.relative;
    json["worst"].push_back({{"kind", worst.kind},
                             {"relative", relative},
                             {"tensor", worst.tensor},
                             {"device", worst.device},
                             {"step", worst.step}});
  }
  return json;
}

// A plan made ready to be compared with one device.
struct Prepared {
  Verified verified;  // `problem`: at the batch that is run
  sim::Simulated simulated;
  runtime::Job job;
};

// The plan for another number of samples; it keeps the order that was simulated.
void cut_anew(const VerifyOptions& options, Prepared& made) {
  const std::string& graph = options.problem.graph;
  loading::check_batch(options.at_batch, made.verified.known, graph);
  made.verified.problem = compiler::at_batch(*made.verified.problem, options.at_batch);
  made.simulated.plan = compiler::rescaled(*made.verified.problem, made.simulated.plan);
}

Prepared prepare(const VerifyOptions& options, const Caller& caller) {
  Prepared made{.verified = chosen_plan(options, caller)};
  runtime::check_operators(*made.verified.problem->graph, options.problem.graph);
  made.verified.strategy =
      decide::accumulate(*made.verified.problem, made.verified.strategy, options.accumulate);
  made.simulated = simulate_strategy(*made.verified.problem, made.verified.strategy,
                                     compile_options(options.problem));
  if (options.at_batch != 0) cut_anew(options, made);
  const compiler::Plan& plan = made.simulated.plan;
  made.job = runtime::make_job(made.verified.problem, plan, made.simulated.result.dispatch,
                               {.capture_gradients = true}, options.problem.graph);
  if (const auto fault = fault_of(options.broken)) runtime::inject(made.job, plan, *fault);
  return made;
}

runtime::VerifyOptions step_options(const VerifyOptions& options) {
  const bool is_double = options.dtype == "float64";
  return {.steps = options.steps,
          .floats = is_double ? runtime::Floats::kDouble : runtime::Floats::kOwn,
          .tf32 = options.tf32,
          .seed = options.common.seed};
}

// "rank 1 (a/gpu1): ", or nothing for what no rank has alone: the loss.
std::string whose(const runtime::Difference& difference, const cluster::Cluster& cluster) {
  const std::vector<std::string> names = device_names(cluster);
  const auto at = std::find(names.begin(), names.end(), difference.device);
  if (at == names.end()) return "";
  return comm::rank_text(DeviceId(static_cast<std::size_t>(at - names.begin())), names) + ": ";
}

const runtime::Difference& worst_of(const runtime::Verification& verification) {
  return *std::ranges::max_element(verification.worst, {}, &runtime::Difference::relative);
}

// Whether compression is taken for the reason that the plan differs: by as much as it likes, or as
// --tolerance says, but not without end.
bool is_lossy(const VerifyOptions& options, const Verified& verified,
              const runtime::Verification& verification) {
  if (!options.lossy || !verified.problem->compression.any()) return false;
  const double worst = verification.worst_relative();
  return std::isfinite(worst) && (options.tolerance == 0 || worst <= options.tolerance);
}

std::string lossy_text(const Verified& verified, const runtime::Verification& verification) {
  const runtime::Difference& worst = worst_of(verification);
  return fmt::format(
      "not the same as one device: gradients are compressed by {}; {} '{}' is off by "
      "{:.1e} after step {}\n",
      cost::compression_text(verified.problem->compression), worst.kind, worst.tensor,
      worst.relative, worst.step);
}

// Exit code 4 if anything differs by more than the tolerance. `how` the ranks ran.
int judge(const VerifyOptions& options, const Verified& verified,
          const runtime::Verification& verification, const std::string& how, const Caller& caller) {
  const double tolerance = tolerance_of(options, verified.problem->graph->tf32());
  const bool same = verification.worst_relative() <= tolerance;
  const bool lossy = !same && is_lossy(options, verified, verification);
  if (options.common.json) {
    OrderedJson json = verification_json(verification, tolerance, same || lossy);
    json["ranks_are"] = how;
    if (verified.problem->compression.any()) {
      json["compression"] = cost::compression_text(verified.problem->compression);
      json["lossy"] = options.lossy;
    }
    print_json(caller, json);
  } else {
    print(caller, "{} on {}, batch {}, plan of {}: {} steps, {}, {} values compared\n{}{}",
          verified.problem->graph->name(), verified.problem->cluster->name(),
          verified.problem->batch, verified.planner, options.steps, how, verification.compared,
          table_text(verification), exceptions_text(verification.exceptions));
  }
  if (same) {
    if (!options.common.json) print(caller, "the same as one device, to {:.0e}\n", tolerance);
    return 0;
  }
  if (lossy) {
    if (!options.common.json) print(caller, "{}", lossy_text(verified, verification));
    return 0;
  }
  const runtime::Difference& worst = worst_of(verification);
  const bool may_be_lossy = verified.problem->compression.any() && !options.lossy;
  throw Error(
      ErrorKind::kVerification,
      fmt::format(
          "{}the plan does not train as one device: {} '{}' is off by {:.1e} after step {}, "
          "over {:.0e}{}",
          whose(worst, *verified.problem->cluster), worst.kind, worst.tensor, worst.relative,
          worst.step, tolerance,
          may_be_lossy ? fmt::format("; it compresses gradients by {}, and --lossy accepts that",
                                     cost::compression_text(verified.problem->compression))
                       : ""));
}

int verify_in_threads(const VerifyOptions& options, const Caller& caller) {
  const Prepared made = prepare(options, caller);
  runtime::VerifyOptions steps = step_options(options);
  choose_devices(options, *made.verified.problem->cluster, steps);
  steps.stopped = caller.stopped;
  return judge(options, made.verified, runtime::verify(made.job, made.simulated.plan, steps),
               "threads of one process", caller);
}

// Every rank compares; that of rank 0 judges, once all have ended.
int verify_one_rank(const VerifyOptions& options, const launch::RankPlace& place,
                    const Caller& caller) {
  const Prepared made = prepare(options, caller);
  const std::string others =
      fmt::format("verify {} steps in {}", options.steps, options.dtype) + options.broken;
  const std::size_t ranks = made.job.programs.size();
  const bool on_cpus = options.devices == "cpu";
  if (!on_cpus && static_cast<std::size_t>(place.rank) < ranks) {
    expect_device(DeviceId(static_cast<std::size_t>(place.rank)), *made.verified.problem->cluster);
  }
  launch::JobTerms terms = runtime::terms_of(made.job, made.simulated.result.peak_bytes,
                                             {.seed = options.common.seed,
                                              .any_device = true,
                                              .transport = options.ranks.transport,
                                              .others = {others}});
  if (on_cpus) {  // transports too, whatever the plan's devices are
    for (launch::JobTerms::Rank& rank : terms.ranks) rank.type = "CPU";
  }
  const launch::Joined joined = join_ranks(made.job, terms, place, options.ranks);
  runtime::Verification verification;
  runtime::VerifyOptions steps = step_options(options);
  if (!on_cpus) steps.devices.assign(ranks, joined.device);  // its own is what counts
  joined.transport->run_until_finished([&] {
    verification = runtime::verify_among_processes(made.job, made.simulated.plan,
                                                   {joined.rank, joined.transport->get()}, steps);
  });
  if (joined.rank != DeviceId(0)) return 0;
  return judge(options, made.verified, verification, "processes", caller);
}

int run_verify(const VerifyOptions& options, const Caller& caller) {
  VALIDATE(options.dtype == "float64" || options.dtype == "float32",
           "--dtype: \"{}\" given; it is float64 or float32", printable(options.dtype));
  check_processes(options.ranks, caller);
  const std::optional<launch::RankPlace> place = own_place(options.ranks, caller);
  const bool among_processes = place || options.ranks.processes || !options.ranks.hostfile.empty();
  VALIDATE(options.devices == "cpu" || options.devices == "plan",
           "--devices: \"{}\" given; it is cpu or plan", printable(options.devices));
  VALIDATE(among_processes || options.ranks.transport == comm::transport_names().front(),
           "--transport: \"{}\" given; it is of ranks that are processes: give --processes",
           printable(options.ranks.transport));
  if (place) return verify_one_rank(options, *place, caller);
  if (!options.ranks.processes && options.ranks.hostfile.empty())
    return verify_in_threads(options, caller);
  start_ranks(options.ranks, cluster::load_cluster(options.problem.cluster));
  return 0;
}

}  // namespace

void add_verify(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App& verb = *app.add_subcommand("verify", "Proves that a plan trains as one device does");
  add_graph_and_cluster(verb, options->problem);
  add_integer(verb, "--batch", options->problem.batch, kBatches,
              "Samples of a step (default: the plan's)");
  verb.add_option("--plan", options->plan, "Plan file");
  verb.add_option("--planner", options->planner,
                  "Or: the plan of this planner (see `heterog planners`)");
  add_compress(verb, options->problem);
  add_accumulate(verb, options->accumulate);
  add_integer(verb, "--at-batch", options->at_batch, kBatches,
              "Run the plan at this number of samples (default: that it was made for)");
  add_integer(verb, "--steps", options->steps, {1, 1000}, "Steps to train");
  verb.add_option("--dtype", options->dtype, "float64, or float32: the graph's own types")
      ->capture_default_str();
  verb.add_option(
          "--devices", options->devices,
          "cpu: all ranks on the CPU; plan: each on the kind of device that the plan names, "
          "GPUs in turn, parts of a GPU on multiprocessors of their own")
      ->capture_default_str();
  verb.add_flag(
      "--tf32", options->tf32,
      "In float32 on a GPU, by TensorFloat-32 where the graph lets it, as `run` computes");
  add_number(verb, "--tolerance", options->tolerance, {1e-18, 1},
             "Largest relative difference (default: 1e-10 in float64, 1e-4 in float32, 1e-2 with "
             "--tf32)");
  verb.add_flag("--lossy", options->lossy,
                "Of a plan that compresses gradients: accept that it differs, and say by how much; "
                "with --tolerance up to that");
  verb.add_option("--break", options->broken,
                  "See it fail: " + search::list_text(runtime::kFaultNames));
  add_processes(verb, options->ranks);
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog verify --graph models/bert_large24-tiny.json.gz "
      "--cluster configs/clusters/heterog-4gpu.json --batch 16 --planner cp-ar\n"
      "Runs the plan, a thread per device, beside the same steps on one CPU from the "
      "same weights and data, and compares loss, gradients, parameters, buffers and optimizer "
      "state. With --processes, or started by torchrun, Slurm or mpirun, a process per device. "
      "Exit code 4 if they differ.");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_verify(*options, caller); };
  });
}

}  // namespace heterog::cli
