// heterog hand-over: a plan in what an engine takes that people have, and what the difference
// costs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "cli/engines/hand_over.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/engines/engines.h"
#include "cli/engines/schedule_csv.h"
#include "cli/engines/shares_file.h"
#include "cli/loaded_plan.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/stopping.h"
#include "decide/decisions.h"
#include "explain/work.h"
#include "oracle/simulated_oracle.h"
#include "search/answers/ddp_plan.h"
#include "search/answers/fsdp2_plan.h"
#include "search/pipeline/module_rounding.h"

namespace heterog::cli {

namespace {

using search::LayerChain;
using search::ModuleChain;
using search::ModuleStage;
using search::RoundedPlan;

struct HandOverOptions {
  CommonOptions common;
  ProblemOptions problem;
  std::string plan;
  std::string to;
  std::string out;
  std::string schedule_csv;
};

// What is handed over, with the plan that it is of.
struct HandedOver {
  const cost::Problem& problem;
  const ModuleChain& modules;
  const RoundedPlan& rounded;
  const sim::Simulated& simulated;  // the rounded plan
  const sim::Simulated& free;       // the plan
  std::int64_t micro_batch() const { return problem.batch / rounded.plan.pipeline.micro_batches; }
  // "GPipe", "1F1B" or "zero bubble"
  std::string_view turns() const {
    switch (rounded.plan.pipeline.pattern) {
      case decide::Pattern::kForwardFirst:
        return "GPipe";
      case decide::Pattern::kZeroBubble:
        return "zero bubble";
      default:
        return "1F1B";
    }
  }
  // Of the file: a class of torch.distributed.pipelining, or "csv" where it has none.
  std::string schedule() const {
    if (rounded.plan.pipeline.pattern == decide::Pattern::kZeroBubble) return "csv";
    return fmt::format("Schedule{}", turns());
  }
};

OrderedJson handed_over_json(const HandedOver& handed, const std::string& to) {
  const cost::Problem& problem = handed.problem;
  OrderedJson json = {
      {"format", "heterog-hand-over"},
      {"version", 2},
      {"to", to},
      {"graph", {{"name", problem.graph->name()}, {"hash", hash_text(problem.graph->hash())}}},
      {"cluster",
       {{"name", problem.cluster->name()}, {"hash", hash_text(problem.cluster->hash())}}},
      {"batch", problem.batch},
      {"micro_batches", handed.rounded.plan.pipeline.micro_batches},
      {"samples", handed.rounded.plan.pipeline.samples},
      {"schedule", handed.schedule()},
      {"stages", OrderedJson::array()},
      {"step_seconds", to_seconds(handed.simulated.result.step)},
      {"feasible", handed.simulated.result.feasible()},
      {"free_step_seconds", to_seconds(handed.free.result.step)},
      {"changes", handed.rounded.changes}};
  for (const ModuleStage& stage : handed.rounded.plan.pipeline.stages) {
    const std::string& begins = handed.modules.links[stage.begin].entered;
    OrderedJson devices = OrderedJson::array();
    for (DeviceId device : stage.devices) {
      devices.push_back({{"name", problem.cluster->device(device).name},
                         {"type", problem.cluster->type_of(device).name}});
    }
    OrderedJson item = {
        {"devices", std::move(devices)},
        {"begins", nullptr},
        {"modules", search::modules_of(*problem.graph, handed.modules, stage.begin, stage.end)}};
    if (!begins.empty()) item["begins"] = begins;
    json["stages"].push_back(std::move(item));
  }
  return json;
}

// Of each stage, the first layer that it has and the first that it has not: numbers of the modules
// that links of such a chain begin with. The first stage has what is in front of them, the last
// what is behind.
struct Layers {
  std::size_t begin = 0, end = 0;
};
std::vector<Layers> layers_of_stages(const HandedOver& handed) {
  const auto layer = [&](std::size_t link) -> std::size_t {
    const std::string& module = handed.modules.links[link].entered;
    return link == 0 ? 0 : std::stoul(module.substr(module.rfind('.') + 1));
  };
  std::vector<Layers> layers;
  for (const ModuleStage& stage : handed.rounded.plan.pipeline.stages) {
    const bool last = stage.end == handed.modules.size();
    layers.push_back({layer(stage.begin), last ? layer(stage.end - 1) + 1 : layer(stage.end)});
  }
  return layers;
}

// [parallelism] of a torchtitan config, by the names of its own language models.
std::string torchtitan_text(const HandedOver& handed) {
  std::string parts;
  const std::vector<Layers> layers = layers_of_stages(handed);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::vector<std::string> names;
    if (i == 0) names.emplace_back("\"tok_embeddings\"");
    for (std::size_t l = layers[i].begin; l < layers[i].end; ++l) {
      names.push_back(fmt::format("\"layers.{}\"", l));
    }
    if (i + 1 == layers.size()) names.insert(names.end(), {"\"norm\"", "\"output\""});
    parts += fmt::format("  [{}],\n", fmt::join(names, ", "));
  }
  return fmt::format(
      "[training]\nlocal_batch_size = {}\n\n[parallelism]\npipeline_parallel_degree = {}\n"
      "pipeline_parallel_schedule = \"{}\"\npipeline_parallel_microbatch_size = {}\n"
      "module_fqns_per_model_part = [\n{}]\n",
      handed.problem.batch, layers.size(), handed.turns(), handed.micro_batch(), parts);
}

// Arguments of Megatron-LM: E the embedding, t a layer, L the loss, | between stages.
std::string megatron_text(const HandedOver& handed) {
  std::vector<std::string> stages;
  for (const Layers& layers : layers_of_stages(handed)) {
    const std::size_t count = layers.end - layers.begin;
    stages.push_back(count > 1 ? fmt::format("t*{}", count) : std::string(count, 't'));
  }
  stages.front() = "E" + stages.front();
  stages.back() += "L";
  return fmt::format(
      "--pipeline-model-parallel-size {}\n--pipeline-model-parallel-layout {}\n"
      "--micro-batch-size {}\n--global-batch-size {}\n",
      stages.size(), fmt::join(stages, "|"), handed.micro_batch(), handed.problem.batch);
}

// Whose plan, and what both take: the first lines for a person.
std::string steps_text(const cost::Problem& problem, const HandOverOptions& options,
                       const sim::Simulated& handed, const sim::Simulated& free,
                       const std::vector<std::string>& changes) {
  const double step = to_seconds(handed.result.step), before = to_seconds(free.result.step);
  std::string text = fmt::format("{} on {}, batch {}, for {}: step {}\n\n", problem.graph->name(),
                                 problem.cluster->name(), problem.batch, options.to,
                                 explain::step_text(problem.batch, handed.result.step));
  text += fmt::format("the plan itself  {}; handed over, a step takes {:+.1f} %\n",
                      milliseconds_text(before), 100 * (step - before) / before);
  for (const std::string& change : changes) text += fmt::format("rounded          {}\n", change);
  return text + "\n";
}

std::string stages_text(const HandedOver& handed) {
  const cost::Problem& problem = handed.problem;
  const sim::SimResult& result = handed.simulated.result;
  const search::ModulePipeline& pipeline = handed.rounded.plan.pipeline;
  Table table(
      {"rank", "stage", "device", "type", "samples", "begins with", "modules", "busy", "memory"});
  std::size_t number = 0, rank = 0;
  for (const ModuleStage& stage : pipeline.stages) {
    const std::string& begins = handed.modules.links[stage.begin].entered;
    const auto modules = search::modules_of(*problem.graph, handed.modules, stage.begin, stage.end);
    for (std::size_t i = 0; i < stage.devices.size(); ++i) {
      const DeviceId device = stage.devices[i];
      table.add_row({std::to_string(rank++), std::to_string(number),
                     problem.cluster->device(device).name, problem.cluster->type_of(device).name,
                     std::to_string(pipeline.samples[i]), begins.empty() ? "-" : begins,
                     std::to_string(modules.size()),
                     fmt::format("{:.0f} %", 100 * to_seconds(result.device_busy[device]) /
                                                 to_seconds(result.step)),
                     gigabytes_text(result.peak_bytes[device])});
    }
    ++number;
  }
  return table.text() + fmt::format("\n{} micro-batches of {}, {}\n", pipeline.micro_batches,
                                    handed.micro_batch(), handed.turns());
}

// What `shares` writes, of the samples that each device has of the plan's work: for ddp, or fsdp2.
int hand_over_shares(const HandOverOptions& options, const LoadedPlan& loaded,
                     const Caller& caller) {
  const cost::Problem& problem = *loaded.problem;
  const decide::Strategy& plan = loaded.record.strategy;
  const bool to_shards = options.to == "fsdp2";
  if (to_shards) search::check_for_fsdp2(problem);
  search::DdpPlan shares;
  if (const auto exact = search::exact_ddp(problem, plan, to_shards)) {
    shares = *exact;
  } else {
    shares.samples = search::samples_by_work(problem, plan);
    shares.strategy = to_shards ? search::fsdp2_strategy(problem, shares.samples, 1)
                                : search::ddp_strategy(problem, shares.samples, 1);
  }
  const search::Samples& samples = shares.samples;
  const decide::Strategy& strategy = shares.strategy;
  const sim::Simulated simulated =
      simulate_strategy(problem, strategy, compile_options(options.problem));
  expect_fit(problem, simulated);
  if (to_shards) {
    oracle::Measured measured{{.step = simulated.result.step}, simulated.result.peak_bytes, {}};
    expect_fsdp2_fits(
        search::with_parameter_rows(problem, strategy, std::move(measured)).evaluation);
  }
  std::vector<std::string> changes;
  const bool uniform = std::ranges::all_of(plan.units, [&](const decide::UnitDecision& unit) {
    return unit.replicas == plan.units.raw().front().replicas;
  });
  if (!uniform) {
    changes.emplace_back("operators on different devices: every device has the whole model");
  }
  const auto in_rows = [](const decide::UnitDecision& unit) {
    return unit.replicas.size() > 1 && unit.sync == decide::SyncMethod::kGathered;
  };
  const auto in_shards = [&](const decide::UnitDecision& unit) {
    return in_rows(unit) || (unit.replicas.size() > 1 && unit.sync == decide::SyncMethod::kSharded);
  };
  if (to_shards && !plan.row_weights.empty()) {
    changes.emplace_back("rows of unequal numbers: as even as can be");
  }
  if (!to_shards && std::ranges::any_of(plan.units, in_shards)) {
    changes.emplace_back(
        "optimizer state in shards: whole on every device; heterog.zero_by_memory deals it out");
  }
  if (!to_shards && std::ranges::any_of(plan.units, in_rows)) {
    changes.emplace_back("frozen parameters in rows: whole on every device");
  }
  if (plan.micro_batches > shares.micro_batches) {
    changes.push_back(fmt::format("{} micro-batches: one", plan.micro_batches));
  }
  OrderedJson json = shares_file_json(problem, loaded.record.planner, samples, strategy, simulated);
  if (to_shards) {
    json["parameter_row_bytes"] =
        search::parameter_rows(problem, static_cast<std::size_t>(std::ranges::count_if(
                                            samples, [](std::int64_t n) { return n > 0; })));
  }
  json["free_step_seconds"] = to_seconds(loaded.simulated.result.step);
  json["changes"] = changes;
  Table table({"rank", "device", "type", "samples"});
  int rank = 0;
  for (DeviceId device : problem.cluster->device_ids()) {
    if (samples[device] == 0) continue;
    table.add_row({std::to_string(rank++), problem.cluster->device(device).name,
                   problem.cluster->type_of(device).name, std::to_string(samples[device])});
  }
  write_file(options.out, json.dump(2) + "\n");
  if (options.common.json) {
    print_json(caller, json);
  } else {
    print(caller, "{}{}{}", steps_text(problem, options, simulated, loaded.simulated, changes),
          table.text(), micro_batches_text(shares.micro_batches));
  }
  return 0;
}

int run_hand_over(const HandOverOptions& options, const Caller& caller) {
  expect_engine("--to", options.to);
  VALIDATE(options.schedule_csv.empty() || options.to == "torch-pipelining",
           "--schedule-csv: given with --to {}; it is for torch-pipelining alone", options.to);
  expect_writable(options.out);
  if (!options.schedule_csv.empty()) expect_writable(options.schedule_csv);
  const LoadedPlan loaded = load_plan(options.plan, options.problem);
  VALIDATE(!loaded.problem->compression.any(),
           "{}: compression: {}, which is not handed over: engines compress by hooks of their own; "
           "plan without --compress",
           printable(options.plan, 400), cost::compression_text(loaded.problem->compression));
  if (options.to == "ddp" || options.to == "fsdp2") {
    return hand_over_shares(options, loaded, caller);
  }
  const cost::Problem& problem = *loaded.problem;
  const ModuleChain modules = modules_for(options.to, *problem.graph);
  ThreadPool threads(options.common.threads);
  oracle::SimulatedOracle oracle(problem, threads, compile_options(options.problem),
                                 caller.stopped);
  oracle::BatchEvaluator evaluator(oracle);
  const RoundedPlan rounded = search::round_to_modules(
      evaluator, loaded.record.strategy, modules,
      {.put_off = !options.schedule_csv.empty(), .replicas = runs_replicas(options.to)});
  const sim::Simulated simulated =
      simulate_strategy(problem, rounded.plan.strategy, compile_options(options.problem));
  expect_fit(problem, simulated);
  const HandedOver handed{.problem = problem,
                          .modules = modules,
                          .rounded = rounded,
                          .simulated = simulated,
                          .free = loaded.simulated};
  const OrderedJson json = handed_over_json(handed, options.to);
  write_file(options.out, options.to == "torchtitan" ? torchtitan_text(handed)
                          : options.to == "megatron" ? megatron_text(handed)
                                                     : json.dump(2) + "\n");
  if (!options.schedule_csv.empty()) {
    write_file(options.schedule_csv,
               schedule_csv(problem, rounded.plan.pipeline, rounded.plan.strategy, simulated));
  }
  if (options.common.json) {
    print_json(caller, json);
  } else {
    print(caller, "{}{}",
          steps_text(problem, options, simulated, loaded.simulated, rounded.changes),
          stages_text(handed));
  }
  return 0;
}

}  // namespace

void add_hand_over(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<HandOverOptions>();
  CLI::App& verb = *app.add_subcommand(
      "hand-over", "Writes a plan in the form that another training engine takes");
  add_graph_and_cluster(verb, options->problem);
  add_batch_of_plan(verb, options->problem);
  verb.add_option("--plan", options->plan, "Plan file")->required();
  verb.add_option("--to", options->to, fmt::format("The engine: {}", fmt::join(kEngines, ", ")))
      ->required();
  verb.add_option("--out", options->out, "What to write")->required();
  verb.add_option(
      "--schedule-csv", options->schedule_csv,
      "Also write the order of passes as torch.distributed.pipelining loads it; gradients "
      "of parameters that the plan puts off (zero bubble) then stay so");
  add_common(verb, options->common);
  verb.footer(
      "Example:\n  heterog hand-over --graph models/bert_large24.json.gz "
      "--cluster configs/clusters/heterog-8gpu.json --plan plan.json --to torch-pipelining "
      "--out stages.json\n"
      "What the engine cannot say is rounded, and both steps are printed. docs/engines.md says how "
      "to train with the result.\nExit code 3: the rounded plan does not fit in memory (then "
      "nothing is written).");
  verb.callback([options, &chosen] {
    chosen = [options](const Caller& caller) { return run_hand_over(*options, caller); };
  });
}

}  // namespace heterog::cli
