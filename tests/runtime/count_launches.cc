// Counts what one step on a GPU launches, moves and waits for: runs it on the fake device, with
// stand-ins for the kernels that GPUs alone have.
//   count_launches GRAPH SAMPLES → {"launches": …, "bytes": …, …}
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "comm/fake_device.h"
#include "graph/graph_io.h"
#include "loading/one_device.h"
#include "runtime/exec/random_data.h"
#include "runtime/gpu/gpu_kernels.h"
#include "runtime/host_kernels.h"
#include "runtime/ranks/team.h"

namespace heterog::runtime {

namespace {

std::uint64_t bytes_of(const at::Tensor& value) { return value.defined() ? value.nbytes() : 0; }

// [N, H, L, E], of which a sample's queries lie side by side, as PyTorch's kernels make it.
at::Tensor zeros(const at::Tensor& like) {
  const at::Tensor made =
      at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options());
  std::memset(made.data_ptr(), 0, made.nbytes());
  return made.transpose(1, 2);
}

// One kernel each way, whose values nobody looks at.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& bias, bool, double, bool, std::optional<double>) {
  const at::Tensor result = zeros(query);
  const at::Tensor sums = at::empty({query.size(0), query.size(1), (query.size(2) + 31) / 32 * 32},
                                    query.options().dtype(at::kFloat));
  std::memset(sums.data_ptr(), 0, sums.nbytes());
  comm::fake::count_launch("attention", 2 * query.nbytes() + key.nbytes() + value.nbytes() +
                                            sums.nbytes() + (bias ? bias->nbytes() : 0));
  const at::Tensor seed = at::empty({}, query.options().dtype(at::kLong));
  return {result, sums, seed, seed};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& bias, const at::Tensor& result,
    const at::Tensor& sums, const at::Tensor&, const at::Tensor&, double, std::array<bool, 4>, bool,
    std::optional<double>) {
  comm::fake::count_launch("attention_backward",
                           2 * (query.nbytes() + key.nbytes() + value.nbytes()) +
                               gradient.nbytes() + result.nbytes() + sums.nbytes() +
                               bytes_of(bias));
  return {zeros(query), zeros(key), zeros(value), at::Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_dot_product_efficient_attention", &attention);
  m.impl("_scaled_dot_product_efficient_attention_backward", &attention_backward);
}

void count(const std::string& path, std::int64_t samples) {
  comm::fake::install();
  const on_gpu::HostKernels kernels;
  const at::Device device = comm::fake::device(1);
  gpu_stand_in = device.type();
  const loading::OneDevicePlan one = loading::one_device_plan(
      std::make_shared<const graph::ModelGraph>(graph::read_graph(path)), samples);
  const Job job = make_job(one.problem, one.plan, one.dispatch, {}, "counted");
  const graph::ModelGraph& graph = *one.problem->graph;
  Team team(job, IdVector<DeviceId, WorkerOptions>(std::vector<WorkerOptions>{{.device = device}}));
  const auto residents = random_residents(graph, 1, Floats::kOwn);
  for (TensorId id : team.worker(DeviceId(0)).residents()) team.set_resident(id, residents[id]);
  const StepInputs inputs = random_inputs(graph, samples, 1, 1, Floats::kOwn);
  team.step(1, inputs, 0, &inputs);  // what is made once is not counted
  comm::fake::reset_counts();
  team.step(2, inputs, 0, &inputs);
  const comm::fake::Counts counts = comm::fake::counts();
  std::vector<std::string> operators;
  for (const auto& [name, launches] : counts.operators) {
    operators.push_back(fmt::format("\"{}\": {}", name, launches));
  }
  std::printf("%s\n",
              fmt::format("{{\"launches\": {}, \"bytes\": {}, \"copies\": {}, \"events\": {}, "
                          "\"event_waits\": {}, \"syncs\": {}, \"operators\": {{{}}}}}",
                          counts.launches, counts.launched_bytes, counts.copies, counts.events,
                          counts.waits, counts.syncs, fmt::join(operators, ", "))
                  .c_str());
}

}  // namespace
}  // namespace heterog::runtime

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::invalid_argument("expected: count_launches GRAPH SAMPLES");
    heterog::runtime::count(argv[1], std::stoll(argv[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "count_launches: %s\n", error.what());
    return 2;
  }
}
