// Steps of a plan beside steps of one device.
#include "runtime/verify.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "runtime/sources.h"
#include "runtime/team.h"

namespace heterog::runtime {

using graph::TensorRole;

namespace {

constexpr std::array<const char*, 5> kKinds = {"loss", "gradient", "parameter", "buffer",
                                               "optimizer state"};
constexpr double kVanishing = 1e-6;  // of the norm of all of its kind (DESIGN §5.12)

std::size_t kind_of(TensorRole role) {
  switch (role) {
    case TensorRole::kGradient:
      return 1;
    case TensorRole::kParameter:
      return 2;
    case TensorRole::kOptimizerState:
      return 4;
    default:
      return 3;
  }
}

bool stays(const graph::ModelGraph& graph, TensorId id) {
  const graph::Tensor& tensor = graph.tensor(id);
  return !tensor.producer.valid() && tensor.role != TensorRole::kInput;
}

// Of what is finite.
double norm_of(const at::Tensor& value) {
  if (!value.is_floating_point()) return 0;
  return value.to(at::kDouble).nan_to_num(0.0, 0.0, 0.0).norm().item<double>();
}

double share_that_differs(const at::Tensor& found, const at::Tensor& expected) {
  return found.ne(expected).to(at::kDouble).mean().item<double>();
}

// Numbers that operators make without being told a type are of the type of all others.
class DefaultType {
 public:
  explicit DefaultType(Floats floats) : before_(at::get_default_dtype()) {
    if (floats == Floats::kDouble) at::set_default_dtype(caffe2::TypeMeta::Make<double>());
  }
  ~DefaultType() { at::set_default_dtype(before_); }
  DefaultType(const DefaultType&) = delete;
  DefaultType& operator=(const DefaultType&) = delete;

 private:
  caffe2::TypeMeta before_;
};

// Collects the worst of each kind.
class Comparison {
 public:
  explicit Comparison(const graph::ModelGraph& graph) : graph_(graph), worst_(kKinds.size()) {
    for (std::size_t i = 0; i < kKinds.size(); ++i) worst_[i].kind = kKinds[i];
  }

  // The norms of all tensors of a kind that one device has after a step.
  void begin_step(std::int64_t step, const ReferenceStep& reference,
                  const ReferenceStep::Result& result) {
    step_ = step;
    squares_.fill(0);
    for (const auto& [id, value] : result.gradients) add_norm(1, value);
    for (TensorId id : graph_.tensor_ids()) {
      if (stays(graph_, id) && reference.resident(id).defined()) {
        add_norm(kind_of(graph_.tensor(id).role), reference.resident(id));
      }
    }
  }

  void loss(double found, double expected) {
    note(0, "loss", "", std::abs(found - expected) / std::max(std::abs(expected), 1e-300));
  }

  void tensor(TensorId id, const std::string& device, at::Tensor found,
              const at::Tensor& expected) {
    const graph::Tensor& info = graph_.tensor(id);
    const std::size_t kind = kind_of(info.role);
    const std::string& name = info.role == TensorRole::kGradient && info.of.valid()
                                  ? graph_.tensor(info.of).name
                                  : info.name;
    found = found.to(at::kCPU);
    if (found.sizes() != expected.sizes() || found.scalar_type() != expected.scalar_type()) {
      return note(kind, name, device, INFINITY);
    }
    if (!expected.is_floating_point()) {
      return note(kind, name, device, share_that_differs(found, expected));
    }
    const double all = std::sqrt(squares_[kind]);
    const double own = norm_of(expected);
    const double scale = own < kVanishing * all ? all : own;
    // What one device has too is no difference: a variance of one number is not a number.
    const at::Tensor same =
        found.eq(expected).logical_or(found.isnan().logical_and(expected.isnan()));
    const at::Tensor difference =
        at::where(same, 0.0, found.to(at::kDouble) - expected.to(at::kDouble));
    const double length = norm_of(difference);
    double relative = length == 0 ? 0 : length / scale;
    if (difference.isfinite().logical_not().any().item<bool>()) relative = INFINITY;
    note(kind, name, device, relative);
  }

  Verification result() && { return {compared_, std::move(worst_)}; }

 private:
  void add_norm(std::size_t kind, const at::Tensor& value) {
    const double norm = norm_of(value);
    squares_[kind] += norm * norm;
  }

  void note(std::size_t kind, const std::string& tensor, const std::string& device,
            double relative) {
    ++compared_;
    Difference& worst = worst_[kind];
    if (!worst.tensor.empty() && !(relative > worst.relative)) return;
    worst = {kKinds[kind], tensor, device, step_, relative};
  }

  const graph::ModelGraph& graph_;
  std::vector<Difference> worst_;
  std::array<double, kKinds.size()> squares_{};
  std::int64_t compared_ = 0;
  std::int64_t step_ = 0;
};

void compare_rank(const Job& job, DeviceId device, const Worker& worker, const StepResult& result,
                  const ReferenceStep& reference, const ReferenceStep::Result& expected,
                  Comparison& comparison) {
  const Program& program = job.programs[device];
  const std::string& name = job.problem->cluster->device(device).name;
  for (std::size_t i = 0; i < program.captures.size(); ++i) {
    for (const auto& [id, value] : expected.gradients) {
      if (id == program.captures[i].tensor) comparison.tensor(id, name, result.captures[i], value);
    }
  }
  for (TensorId id : worker.residents()) {
    comparison.tensor(id, name, worker.resident(id), reference.resident(id));
  }
}

IdVector<DeviceId, WorkerOptions> worker_options(const VerifyOptions& options, std::size_t ranks) {
  ENSURE(options.devices.empty() || options.devices.size() == ranks);
  IdVector<DeviceId, WorkerOptions> workers;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    workers.push_back({.device = options.devices.empty() ? at::kCPU : options.devices[rank],
                       .floats = options.floats,
                       .seed = options.seed,
                       .threads = options.threads});
  }
  return workers;
}

}  // namespace

double Verification::worst_relative() const {
  double most = 0;
  for (const Difference& difference : worst) most = std::max(most, difference.relative);
  return most;
}

IdVector<TensorId, at::Tensor> random_residents(const graph::ModelGraph& graph, std::uint64_t seed,
                                                Floats floats) {
  at::manual_seed(seed);
  IdVector<TensorId, at::Tensor> values(graph.tensor_count());
  for (TensorId id : graph.tensor_ids()) {
    if (stays(graph, id)) values[id] = random_source(graph, id, 1, floats);
  }
  return values;
}

StepInputs random_inputs(const graph::ModelGraph& graph, std::int64_t batch, std::uint64_t seed,
                         std::int64_t step, Floats floats) {
  at::manual_seed(seed * 1000003 + static_cast<std::uint64_t>(step));
  StepInputs inputs;
  for (TensorId id : graph.tensor_ids()) {
    if (graph.tensor(id).role != TensorRole::kInput) continue;
    at::Tensor value = random_source(graph, id, batch, floats);
    if (graph.tensor(id).name == "step") value.fill_(static_cast<double>(step));
    inputs.emplace_back(id, value);
  }
  return inputs;
}

Verification verify(const Job& job, const compiler::Plan& plan, const VerifyOptions& options) {
  at::set_num_threads(options.threads);
  const DefaultType default_type(options.floats);
  const graph::ModelGraph& graph = *job.problem->graph;
  Team team(job, worker_options(options, job.programs.size()));
  ReferenceStep reference(*job.problem, plan, {options.floats, options.seed});
  const auto values = random_residents(graph, options.seed, options.floats);
  for (TensorId id : graph.tensor_ids()) {
    if (!values[id].defined()) continue;
    team.set_resident(id, values[id]);
    reference.set_resident(id, values[id]);
  }
  Comparison comparison(graph);
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    const StepInputs inputs =
        random_inputs(graph, job.problem->batch, options.seed, step, options.floats);
    const auto results = team.step(step, inputs);
    const ReferenceStep::Result expected = reference.step(step, inputs);
    comparison.begin_step(step, reference, expected);
    comparison.loss(combined_loss(job, results), expected.loss);
    for (DeviceId device : id_range<DeviceId>(job.programs.size())) {
      compare_rank(job, device, team.worker(device), results[device], reference, expected,
                   comparison);
    }
  }
  return std::move(comparison).result();
}

}  // namespace heterog::runtime
