// The functions of heterog.h that run a plan, on tensors of the caller.
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/process_settings.h"
#include "base/text.h"
#include "client/guarded.h"
#include "client/heterog.h"
#include "client/ranks.h"
#include "runtime/kernels/execute.h"

struct heterog_runner {
  std::unique_ptr<heterog::client::Ranks> ranks;
  bool failed = false;
};

namespace heterog::client {
namespace {

RanksOptions ranks_options(const heterog_options& given) {
  RanksOptions options;
  options.files.graph = text_of(given.graph, "graph");
  options.files.cluster = text_of(given.cluster, "cluster");
  options.files.collectives = text_of(given.collectives, "collectives");
  options.plan = text_of(given.plan, "plan");
  options.transport = text_of(given.transport, "transport");
  comm::check_transport(options.transport, "transport");
  options.terms = text_of(given.terms, "terms");
  for (std::int32_t i = 0; i < given.profile_count; ++i) {
    options.files.profiles.emplace_back(text_of(given.profiles[i], "profiles"));
  }
  for (std::int32_t i = 0; i < given.more_graph_count; ++i) {
    options.more_graphs.emplace_back(text_of(given.more_graphs[i], "more_graphs"));
  }
  for (std::int32_t i = 0; i < given.slow_count; ++i) {
    options.slow[text_of(given.slow_devices[i], "slow")] = given.slow_factors[i];
  }
  VALIDATE(given.threads >= 0, "threads: {} given; it is a number of threads, or 0 for a share",
           given.threads);
  VALIDATE(std::isfinite(given.timeout_seconds) && given.timeout_seconds >= 0.001 &&
               given.timeout_seconds <= 1e6,
           "timeout: {} given; it is a positive number of seconds", given.timeout_seconds);
  options.threads = given.threads;
  options.seed = given.seed;
  options.earlier = given.earlier;
  options.any_device = given.any_device != 0;
  if (given.tune_process != 0) allow_process_settings();
  options.timeout = std::chrono::milliseconds(std::llround(given.timeout_seconds * 1e3));
  return options;
}

TensorId tensor_id(const Ranks& ranks, std::uint32_t tensor) {
  VALIDATE(tensor < ranks.graph().tensor_count(), "tensor {}: the graph has {}", tensor,
           ranks.graph().tensor_count());
  return TensorId(tensor);
}

// Where the caller's elements lie: on the CPU, or on a device that PyTorch has here.
at::Device device_of(const heterog_tensor& given) {
  const std::string text = given.device ? given.device : "cpu";
  std::optional<at::Device> device;
  try {
    device = at::Device(text);
  } catch (const c10::Error&) {
    device.reset();  // refused below
  }
  const auto is_here = [](at::Device one) {
    return c10::impl::hasDeviceGuardImpl(one.type()) && one.has_index() &&
           one.index() < c10::impl::VirtualGuardImpl(one.type()).deviceCount();
  };
  VALIDATE(device && (device->is_cpu() || is_here(*device)),
           "device: '{}' given; it is cpu, or a device of this process, cuda:0 say",
           printable(text));
  return *device;
}

// The caller's memory as a tensor, once it is what the graph says of it at so many samples.
at::Tensor view_of(const graph::ModelGraph& graph, TensorId id, const heterog_tensor& given,
                   std::int64_t samples) {
  const graph::Tensor& info = graph.tensor(id);
  const auto dtype = graph::find_dtype(text_of(given.dtype, "dtype"));
  VALIDATE(dtype && *dtype == info.dtype, "'{}': {} given; the graph wants {}", info.name,
           printable(given.dtype), graph::dtype_name(info.dtype));
  const std::vector<std::int64_t> wanted = runtime::sizes_at(graph.shape(id), samples);
  const std::vector<std::int64_t> sizes(given.sizes, given.sizes + given.dimensions);
  VALIDATE(sizes == wanted, "'{}': shape [{}] given; it is [{}]", info.name, fmt::join(sizes, ", "),
           fmt::join(wanted, ", "));
  VALIDATE(given.data || c10::multiply_integers(sizes) == 0, "'{}': no data given", info.name);
  const at::Device device = device_of(given);
  const at::ScalarType type = runtime::scalar_type(info.dtype, runtime::Floats::kOwn);
  return at::for_blob(given.data, sizes)
      .options(at::TensorOptions().dtype(type).device(device))
      .target_device(device)
      .make_tensor();
}

// The same of what is copied out or in, which passes through the host anyway.
at::Tensor host_view_of(const graph::ModelGraph& graph, TensorId id, const heterog_tensor& given,
                        std::int64_t samples) {
  const at::Tensor view = view_of(graph, id, given, samples);
  VALIDATE(view.is_cpu(), "'{}': on {} given; inputs of a step alone may lie on a GPU",
           graph.tensor(id).name, view.device().str());
  return view;
}

// A copy, as what a step leaves behind may be a view of its input. On a GPU it is made on the
// calling thread's current stream; ranks are other threads, whose current stream is the default one
// (QueueStreams::copy_in), which therefore waits.
at::Tensor copy_of_input(const at::Tensor& given) {
  at::Tensor copy = given.clone();
  if (copy.is_cpu()) return copy;
  const c10::impl::VirtualGuardImpl device(copy.device().type());
  const c10::Stream made_on = device.getStream(copy.device());
  const c10::Stream of_ranks = device.getDefaultStream(copy.device());
  if (made_on == of_ranks) return copy;
  c10::Event made(copy.device().type());
  made.record(made_on);
  made.block(of_ranks);
  device.recordDataPtrOnStream(copy.storage().data_ptr(), of_ranks);
  return copy;
}

TensorId kept_id(const Ranks& ranks, std::uint32_t tensor) {
  const TensorId id = tensor_id(ranks, tensor);
  VALIDATE(ranks.of_job().keeps(id), "'{}': no rank keeps it between steps",
           ranks.graph().tensor(id).name);
  return id;
}

Ranks& usable(heterog_runner* runner) {
  VALIDATE(runner, "no runner given");
  VALIDATE(!runner->failed, "an earlier step of this runner failed; make another");
  return *runner->ranks;
}

// What can be asked after a failure too.
const Ranks& existing(const heterog_runner* runner) {
  VALIDATE(runner, "no runner given");
  return *runner->ranks;
}

const heterog_tensor& present(const heterog_tensor* tensor) {
  VALIDATE(tensor && (tensor->sizes || tensor->dimensions == 0),
           "no tensor given, or one without sizes");
  return *tensor;
}

}  // namespace
}  // namespace heterog::client

using namespace heterog;          // NOLINT: the functions below have no namespace
using namespace heterog::client;  // NOLINT

extern "C" {

int32_t heterog_open(const heterog_options* options, heterog_runner** runner) {
  return guarded([&] {
    VALIDATE(options && runner, "options or the place of the runner: not given");
    *runner = nullptr;
    auto made = std::make_unique<heterog_runner>();
    const RanksOptions wanted = ranks_options(*options);
    made->ranks = std::make_unique<Ranks>(wanted, options->one_rank != 0);
    *runner = made.release();
  });
}

int32_t heterog_close(heterog_runner* runner, int32_t finished) {
  return guarded([&] {
    const std::unique_ptr<heterog_runner> owned(runner);
    if (owned && finished != 0 && !owned->failed) owned->ranks->finish();
  });
}

int32_t heterog_get_info(const heterog_runner* runner, heterog_info* info) {
  return guarded([&] {
    const Ranks& ranks = existing(runner);
    VALIDATE(info, "the place of the info: not given");
    const loading::LoadedPlan& loaded = ranks.loaded();
    *info = {.batch = loaded.problem->batch,
             .ranks = static_cast<std::int32_t>(loaded.problem->cluster->place_count()),
             .rank = ranks.rank(),
             .predicted_step_seconds = loaded.record.step_seconds};
  });
}

int32_t heterog_get_device(const heterog_runner* runner, int32_t rank, heterog_device* device) {
  return guarded([&] {
    const Ranks& ranks = existing(runner);
    VALIDATE(device, "the place of the device: not given");
    const auto count = static_cast<std::int32_t>(ranks.devices().size());
    VALIDATE(rank >= 0 && rank < count, "rank {}: there are {}", rank, count);
    const PlannedDevice& found = ranks.devices()[static_cast<std::size_t>(rank)];
    *device = {found.name.c_str(), found.model.c_str(), found.runs_on.c_str()};
  });
}

int32_t heterog_is_kept(const heterog_runner* runner, uint32_t tensor, int32_t* kept) {
  return guarded([&] {
    const Ranks& ranks = existing(runner);
    VALIDATE(kept, "the place of the result: not given");
    *kept = ranks.of_job().keeps(tensor_id(ranks, tensor)) ? 1 : 0;
  });
}

int32_t heterog_set(heterog_runner* runner, uint32_t tensor, const heterog_tensor* value) {
  return guarded([&] {
    Ranks& ranks = usable(runner);
    const c10::InferenceMode no_gradients;
    const TensorId id = kept_id(ranks, tensor);
    const std::int64_t batch = ranks.loaded().problem->batch;
    ranks.of_job().set(id, host_view_of(ranks.graph(), id, present(value), batch));
  });
}

int32_t heterog_get(heterog_runner* runner, uint32_t tensor, heterog_tensor* value) {
  return guarded([&] {
    Ranks& ranks = usable(runner);
    const c10::InferenceMode no_gradients;
    const TensorId id = kept_id(ranks, tensor);
    const std::int64_t batch = ranks.loaded().problem->batch;
    at::Tensor place = host_view_of(ranks.graph(), id, present(value), batch);
    const at::Tensor found = ranks.of_job().get(id);
    VALIDATE(found.defined(), "'{}' was not given a value", ranks.graph().tensor(id).name);
    place.copy_(found);
  });
}

int32_t heterog_get_rows(heterog_runner* runner, int32_t graph, int64_t samples,
                         heterog_range* ranges, int32_t capacity, int32_t* count) {
  return guarded([&] {
    Ranks& ranks = usable(runner);
    VALIDATE(count && (ranges || capacity == 0), "the places of the ranges: not given");
    ranks.prepare({graph, samples});
    const std::vector<runtime::SampleRange> read = ranks.samples_read({graph, samples});
    *count = static_cast<int32_t>(read.size());
    for (std::size_t i = 0; i < read.size() && static_cast<int32_t>(i) < capacity; ++i) {
      ranges[i] = {read[i].begin, read[i].end};
    }
  });
}

int32_t heterog_launch(heterog_runner* runner, int64_t number, int32_t graph, int64_t samples,
                       const uint32_t* tensors, const heterog_tensor* values, int32_t count,
                       int32_t own_rows) {
  // Inputs that do not fit leave the runner as it was.
  std::optional<runtime::StepInputs> inputs;
  const int32_t code = guarded([&] {
    Ranks& ranks = usable(runner);
    const c10::InferenceMode no_gradients;
    VALIDATE(ranks.launched() < 2, "two steps have been launched; finish one before the next");
    VALIDATE((tensors && values) || count == 0, "inputs: not given");
    const graph::ModelGraph& of_inputs = ranks.prepare({graph, samples});
    runtime::StepInputs made;
    for (int32_t i = 0; i < count; ++i) {
      const TensorId id = tensor_id(ranks, tensors[i]);
      made.emplace_back(id, copy_of_input(view_of(of_inputs, id, present(&values[i]), samples)));
    }
    inputs = std::move(made);
  });
  if (code != 0) return code;
  const int32_t failure = guarded([&] {
    const c10::InferenceMode no_gradients;
    runner->ranks->launch(
        number, *inputs, {graph, samples},
        own_rows != 0 ? runtime::Ranks::Given::kOwnRows : runtime::Ranks::Given::kWhole);
  });
  // The workers of a job cannot go on together.
  if (failure != 0) runner->failed = true;
  return failure;
}

int32_t heterog_finish(heterog_runner* runner, double* loss, double* seconds) {
  const int32_t refused = guarded([&] {
    const Ranks& ranks = usable(runner);
    VALIDATE(loss && seconds, "the places of loss and seconds: not given");
    VALIDATE(ranks.launched() > 0, "no step has been launched");
  });
  if (refused != 0) return refused;
  bool done = false;
  const int32_t failure = guarded([&] {
    const c10::InferenceMode no_gradients;
    try {
      const runtime::StepReport report = runner->ranks->finish_step();
      *loss = report.loss;
      *seconds = report.seconds;
    } catch (const runtime::LossNotFinite&) {
      *loss = std::numeric_limits<double>::quiet_NaN();
      done = true;
      throw;
    }
  });
  // After any other failure the workers cannot go on.
  if (failure != 0 && !done) runner->failed = true;
  return failure;
}

int32_t heterog_step(heterog_runner* runner, int64_t number, int32_t graph, int64_t samples,
                     const uint32_t* tensors, const heterog_tensor* values, int32_t count,
                     int32_t own_rows, double* loss, double* seconds) {
  const int32_t refused = guarded([&] {
    VALIDATE(loss && seconds, "the places of loss and seconds: not given");
    VALIDATE(usable(runner).launched() == 0, "a step has been launched; finish it first");
  });
  if (refused != 0) return refused;
  const int32_t code =
      heterog_launch(runner, number, graph, samples, tensors, values, count, own_rows);
  return code != 0 ? code : heterog_finish(runner, loss, seconds);
}

int32_t heterog_get_output(heterog_runner* runner, uint32_t tensor, heterog_tensor* value) {
  return guarded([&] {
    Ranks& ranks = usable(runner);
    const c10::InferenceMode no_gradients;
    const TensorId id = tensor_id(ranks, tensor);
    VALIDATE(ranks.last_step(), "outputs: no step has been done yet");
    const Ranks::Form form = *ranks.last_step();
    const graph::ModelGraph& graph = ranks.graph_of(form);
    VALIDATE(runtime::is_looked_at(graph, id) && id != graph.loss(),
             "'{}' is no output of the step beside the loss", graph.tensor(id).name);
    at::Tensor place = host_view_of(graph, id, present(value), form.samples);
    place.copy_(ranks.output(id));
  });
}

int32_t heterog_add_up(heterog_runner* runner, double* numbers, int32_t count) {
  return guarded([&] {
    Ranks& ranks = usable(runner);
    VALIDATE(count >= 0 && (numbers || count == 0), "numbers: not given");
    const c10::InferenceMode no_gradients;
    at::Tensor place = at::from_blob(numbers, {count}, at::kDouble);
    at::Tensor sum = at::zeros({count}, at::kDouble);
    for (const at::Tensor& one : ranks.of_job().gather(place.clone())) sum += one;
    place.copy_(sum);
  });
}

int32_t heterog_meet(heterog_runner* runner, int32_t own, int32_t* worst) {
  return guarded([&] {
    Ranks& ranks = usable(runner);
    VALIDATE(worst, "the place of the result: not given");
    *worst = ranks.of_job().meet(own);
  });
}

}  // extern "C"
