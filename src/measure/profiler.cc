// Goes through the distinct operators of a graph and times each on slices of several sizes.
#include "measure/profiler.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "launch/gpus.h"
#include "measure/distinct_ops.h"
#include "measure/links.h"
#include "measure/timing.h"
#include "runtime/attention/attention.h"
#include "runtime/kernels/draw.h"
#include "runtime/kernels/execute.h"
#include "runtime/kernels/operands.h"
#include "runtime/program/draws.h"

namespace heterog::measure {
namespace {

// Sets of operands that take turns: enough to be larger than the caches, within reason. The largest
// caches of GPUs in configs/devices.json hold 256 MiB.
constexpr Bytes kCacheBytes = Bytes{32} << 20;
constexpr Bytes kCacheBytesOfGpus = Bytes{256} << 20;
constexpr std::size_t kMostSets = 16;

std::string machine_name(const ProfilerOptions& options) {
  if (options.gpu) return options.device;
  std::ifstream info("/proc/cpuinfo");
  std::string model = "CPU";
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == line.npos) continue;
    model = printable(line.substr(colon + 2));
    break;
  }
  return model;
}

Bytes bytes_of(std::span<const at::Tensor> tensors) {
  Bytes bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<Bytes>(tensor.nbytes());
  return bytes;
}

// What the runtime calls for the op, on these operands: masks of dropout are our own, and attention
// is where a kernel for CPUs is all that PyTorch has.
std::function<void()> call_of(const graph::ModelGraph& graph, OpId op,
                              const std::vector<at::Tensor>& operands, std::int64_t samples,
                              const ProfilerOptions& options, at::Device device) {
  const runtime::ExecuteOptions execution{.device = device};
  const runtime::Samples all{.slice = samples, .whole = samples};
  const runtime::RandomStream stream{.seed = options.seed, .step = 1, .op = op};
  if (runtime::is_attention(graph, op) &&
      (device.is_cuda() || runtime::dropped_share(graph, op) > 0)) {
    return [=, &graph] { runtime::run_attention(graph, op, operands, stream, {}); };
  }
  if (runtime::is_drawn_by_counter(graph, op)) {
    const auto call = std::make_shared<runtime::OperatorCall>(graph, op, all, execution);
    return [=, &graph] {
      runtime::draw(graph, *call, operands, {stream, 0, samples, samples}, {}, execution);
    };
  }
  const auto call = std::make_shared<runtime::PreparedOp>(graph, op, operands, all, execution);
  return [call] { call->call(); };
}

cost::Measurement measure(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                          const ProfilerOptions& options) {
  const at::Device device = options.gpu ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  const Bytes cache = bytes_that_take_turns(options);
  std::vector<std::function<void()>> calls;
  Bytes bytes = 0;
  while (calls.empty() || (bytes < cache && calls.size() < kMostSets)) {
    const std::vector<at::Tensor> operands = runtime::random_operands(graph, op, samples, device);
    calls.push_back(call_of(graph, op, operands, samples, options, device));
    bytes += std::max<Bytes>(bytes_of(operands), 1);
  }
  const Robust time = time_calls(calls, device, options.repeat);
  return {.samples = samples, .seconds = time.median, .spread_seconds = time.spread};
}

cost::ProfiledOperator measure_operator(const graph::ModelGraph& graph, const DistinctOp& distinct,
                                        const ProfilerOptions& options) {
  cost::ProfiledOperator result{.form = distinct.form};
  for (OpId op : distinct.ops) result.ops.push_back(graph.op(op).name);
  const OpId op = distinct.ops.front();
  // The values do not depend on what was measured before: an interrupted run goes on alike.
  at::manual_seed(options.seed + op.value());
  try {
    const c10::InferenceMode no_gradients;
    for (std::int64_t samples : options.slices) {
      result.measured.push_back(measure(graph, op, samples, options));
      if (!distinct.batched) break;
    }
  } catch (const c10::Error& error) {
    throw Error(ErrorKind::kVerification,
                fmt::format("op '{}' ({}) does not run here: {}", graph.op(op).name,
                            graph.type_name(op), printable(error.what_without_backtrace(), 300)));
  }
  result.fit = cost::fit_line(result.measured);
  return result;
}

}  // namespace

Bytes bytes_that_take_turns(const ProfilerOptions& options) {
  return options.gpu ? kCacheBytesOfGpus : kCacheBytes;
}

launch::PartStreams streams_of(const ProfilerOptions& options) {
  if (!options.gpu || options.multiprocessors == 0) return {};
  return launch::streams_of_parts(at::Device(at::kCUDA, 0), {options.multiprocessors}).front();
}

cost::Profile begin_profile(const graph::ModelGraph& graph, const ProfilerOptions& options) {
  VALIDATE(!options.gpu || !launch::visible_gpus().empty(),
           "--device: {} is a GPU, and {}; measure on a machine that has one, or name a CPU",
           options.device, launch::no_gpu_reason());
  return {.graph_name = graph.name(),
          .graph_hash = graph.hash(),
          .device = options.device,
          .machine = machine_name(options),
          .torch = TORCH_VERSION,
          .threads = options.threads,
          .repeat = options.repeat,
          .slices = options.slices};
}

cost::Profile measure_profile(const graph::ModelGraph& graph, const ProfilerOptions& options,
                              cost::Profile begun, const ProfilerHooks& hooks) {
  EXPECT(std::is_sorted(options.slices.begin(), options.slices.end()) && !options.slices.empty());
  if (begun.links.empty()) begun.links.push_back(measure_loopback(options.repeat));
  std::optional<c10::StreamGuard> on_its_part;
  if (const auto streams = streams_of(options)) on_its_part.emplace(streams(false));
  at::set_num_threads(options.threads);
  at::globalContext().setAllowTF32CuBLAS(graph.tf32().products);
  at::globalContext().setAllowTF32CuDNN(graph.tf32().convolutions);
  const std::vector<DistinctOp> distinct = distinct_ops(graph);
  const std::size_t first = begun.operators.size();
  EXPECT(first <= distinct.size());
  for (std::size_t i = first; i < distinct.size(); ++i) {
    if (i > first && hooks.expired && hooks.expired()) return begun;
    if (hooks.progress) {
      hooks.progress(static_cast<double>(i - first) / static_cast<double>(distinct.size() - first),
                     distinct[i].form);
    }
    begun.operators.push_back(measure_operator(graph, distinct[i], options));
    if (hooks.save) hooks.save(begun);
  }
  begun.finished = true;
  return begun;
}

}  // namespace heterog::measure
