// Steps of a plan beside steps of one device.
#include "runtime/check/verify.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "runtime/exec/own_part.h"
#include "runtime/exec/random_data.h"
#include "runtime/kernels/numbers.h"

namespace heterog::runtime {

using graph::TensorRole;

namespace {

constexpr std::array<const char*, 5> kKinds = {"loss", "gradient", "parameter", "buffer",
                                               "optimizer state"};
constexpr double kVanishing = 1e-6;  // of the norm of all of its kind (decision 12)

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

// Of what is finite.
double norm_of(const at::Tensor& value) {
  if (!value.is_floating_point()) return 0;
  return value.to(at::kDouble).nan_to_num(0.0, 0.0, 0.0).norm().item<double>();
}

double share_that_differs(const at::Tensor& found, const at::Tensor& expected) {
  if (expected.numel() == 0) return 0;
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

// The worst of a kind, by ids: what processes tell each other.
struct Worst {
  double relative = 0;
  TensorId tensor;
  DeviceId device;
  std::int64_t step = 0;

  // Of two alike, the one that comes first in one process.
  bool is_before(const Worst& other) const {
    if (!tensor.valid() || !other.tensor.valid()) return tensor.valid();
    if (relative != other.relative) return relative > other.relative;
    if (step != other.step) return step < other.step;
    return device < other.device;
  }
};

// Collects the worst of each kind.
class Comparison {
 public:
  explicit Comparison(const cost::Problem& problem) : problem_(problem), graph_(*problem.graph) {}

  // The norms of all tensors of a kind that one device has after a step.
  void begin_step(std::int64_t step, const ReferenceStep& reference,
                  const ReferenceStep::Result& result) {
    step_ = step;
    squares_.fill(0);
    for (const auto& [id, value] : result.gradients) add_norm(1, value);
    for (TensorId id : graph_.tensor_ids()) {
      if (stays_between_steps(graph_, id) && reference.resident(id).defined()) {
        add_norm(kind_of(graph_.tensor(id).role), reference.resident(id));
      }
    }
  }

  void loss(double found, double expected) {
    note(0, graph_.loss(), DeviceId(),
         std::abs(found - expected) / std::max(std::abs(expected), 1e-300));
  }

  // What the step replaces has to be somewhere.
  void held_by_nobody(TensorId id) {
    note(kind_of(graph_.tensor(id).role), id, DeviceId(), INFINITY);
  }

  void tensor(TensorId id, DeviceId device, at::Tensor found, const at::Tensor& expected) {
    const std::size_t kind = kind_of(graph_.tensor(id).role);
    found = found.to(at::kCPU);
    if (found.sizes() != expected.sizes() || found.scalar_type() != expected.scalar_type()) {
      return note(kind, id, device, INFINITY);
    }
    if (!expected.is_floating_point()) {
      return note(kind, id, device, share_that_differs(found, expected));
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
    note(kind, id, device, relative);
  }

  // With what the other processes found.
  Verification result(Ranks& ranks) const {
    std::array<Worst, kKinds.size()> worst{};
    Verification verification;
    for (const at::Tensor& found : ranks.gather(packed())) {
      const double* numbers = numbers_of<double>(found);
      for (Worst& one : worst) {
        Worst other;
        other.relative = numbers[0];
        if (numbers[1] >= 0) other.tensor = TensorId(static_cast<std::size_t>(numbers[1]));
        if (numbers[2] >= 0) other.device = DeviceId(static_cast<std::size_t>(numbers[2]));
        other.step = static_cast<std::int64_t>(numbers[3]);
        if (other.is_before(one)) one = other;
        numbers += kNumbers;
      }
      verification.compared += static_cast<std::int64_t>(*numbers);
    }
    for (std::size_t kind = 0; kind < worst.size(); ++kind) {
      verification.worst.push_back(
          {.kind = kKinds[kind],
           .tensor = name_of(worst[kind].tensor),
           .device =
               worst[kind].device.valid() ? problem_.cluster->device(worst[kind].device).name : "",
           .step = worst[kind].step,
           .relative = worst[kind].relative});
    }
    return verification;
  }

 private:
  static constexpr std::size_t kNumbers = 4;  // of a Worst

  // Four numbers a kind, and how many tensors were compared.
  at::Tensor packed() const {
    std::vector<double> numbers;
    for (const Worst& one : worst_) {
      numbers.push_back(one.relative);
      numbers.push_back(one.tensor.valid() ? static_cast<double>(one.tensor.value()) : -1);
      numbers.push_back(one.device.valid() ? static_cast<double>(one.device.value()) : -1);
      numbers.push_back(static_cast<double>(one.step));
    }
    numbers.push_back(static_cast<double>(compared_));
    return at::tensor(numbers, at::kDouble);
  }

  // A gradient by the name of its parameter.
  std::string name_of(TensorId id) const {
    if (!id.valid()) return "";
    if (id == graph_.loss()) return "loss";
    const graph::Tensor& info = graph_.tensor(id);
    const bool has_parameter = info.role == TensorRole::kGradient && info.of.valid();
    return has_parameter ? graph_.tensor(info.of).name : info.name;
  }

  void add_norm(std::size_t kind, const at::Tensor& value) {
    const double norm = norm_of(value);
    squares_[kind] += norm * norm;
  }

  void note(std::size_t kind, TensorId tensor, DeviceId device, double relative) {
    ++compared_;
    // Nothing is greater than what is not a number.
    const Worst found{std::isnan(relative) ? INFINITY : relative, tensor, device, step_};
    Worst& worst = worst_[kind];
    if (!worst.tensor.valid() || found.relative > worst.relative) worst = found;
  }

  const cost::Problem& problem_;
  const graph::ModelGraph& graph_;
  std::array<Worst, kKinds.size()> worst_{};
  std::array<double, kKinds.size()> squares_{};
  std::int64_t compared_ = 0;
  std::int64_t step_ = 0;
};

void compare_rank(Ranks& ranks, DeviceId rank, const ReferenceStep& reference,
                  const ReferenceStep::Result& expected, Comparison& comparison) {
  const Program& program = ranks.job().programs[rank];
  const StepResult& result = ranks.result(rank);
  for (std::size_t i = 0; i < program.captures.size(); ++i) {
    for (const auto& [id, value] : expected.gradients) {
      const Capture& capture = program.captures[i];
      if (id != capture.tensor) continue;
      const at::Tensor due =
          capture.rows > 0 ? value.narrow(0, capture.first_row, capture.rows) : value;
      comparison.tensor(id, rank, result.captures[i], due);
    }
  }
  const Worker& worker = ranks.worker(rank);
  for (TensorId id : worker.residents()) {
    comparison.tensor(id, rank, worker.resident(id), own_part(program, id, reference.resident(id)));
  }
}

void compare_replaced(Ranks& ranks, const graph::ModelGraph& graph, Comparison& comparison) {
  for (TensorId id : graph.tensor_ids()) {
    const TensorId old = graph.tensor(id).replaces;
    if (old.valid() && !ranks.keeps(old)) comparison.held_by_nobody(old);
  }
}

WorkerOptions worker_options(const VerifyOptions& options, DeviceId rank) {
  const bool chosen = !options.devices.empty();
  const bool in_parts = !options.streams.empty();
  return {.device = chosen ? options.devices[rank.value()] : at::kCPU,
          .streams = in_parts ? options.streams[rank.value()] : nullptr,
          .floats = options.floats,
          .tf32 = options.tf32,
          .seed = options.seed,
          .threads = options.threads};
}

Verification compare_steps(Ranks& ranks, const compiler::Plan& plan, const VerifyOptions& options) {
  at::set_num_threads(options.threads);
  const cost::Problem& problem = *ranks.job().problem;
  const graph::ModelGraph& graph = *problem.graph;
  ReferenceStep reference(graph, normalised_slices(problem, plan),
                          {problem.batch, options.floats, options.seed});
  const auto values = random_residents(graph, options.seed, options.floats);
  for (TensorId id : graph.tensor_ids()) {
    if (values[id].defined()) reference.set_resident(id, values[id]);
  }
  for (const DeviceId rank : ranks.here()) {
    Worker& worker = ranks.worker(rank);
    for (TensorId id : worker.residents()) worker.set_resident(id, values[id]);
  }
  Comparison comparison(problem);
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    expect_not_stopped(options.stopped);
    const StepInputs inputs =
        random_inputs(graph, problem.batch, options.seed, step, options.floats);
    const double loss = ranks.step(step, inputs).loss;
    const ReferenceStep::Result expected = reference.step(step, inputs);
    comparison.begin_step(step, reference, expected);
    if (ranks.speaks()) comparison.loss(loss, expected.loss);
    for (const DeviceId rank : ranks.here()) {
      compare_rank(ranks, rank, reference, expected, comparison);
    }
    if (ranks.speaks()) compare_replaced(ranks, graph, comparison);
  }
  Verification verification = comparison.result(ranks);
  verification.exceptions = reference.exceptions();
  return verification;
}

}  // namespace

double Verification::worst_relative() const {
  double most = 0;
  for (const Difference& difference : worst) most = std::max(most, difference.relative);
  return most;
}

Verification verify(const Job& job, const compiler::Plan& plan, const VerifyOptions& options) {
  const DefaultType default_type(options.floats);
  ENSURE(options.devices.empty() || options.devices.size() == job.programs.size());
  ENSURE(options.streams.empty() || options.streams.size() == options.devices.size());
  IdVector<DeviceId, WorkerOptions> workers;
  for (const DeviceId rank : id_range<DeviceId>(job.programs.size())) {
    workers.push_back(worker_options(options, rank));
  }
  const auto ranks = ranks_in_threads(job, plan, workers);
  return compare_steps(*ranks, plan, options);
}

Verification verify_among_processes(const Job& job, const compiler::Plan& plan, const OwnRank& own,
                                    const VerifyOptions& options) {
  const DefaultType default_type(options.floats);
  const auto ranks = rank_among_processes(job, plan, own, worker_options(options, own.rank));
  return compare_steps(*ranks, plan, options);
}

}  // namespace heterog::runtime
