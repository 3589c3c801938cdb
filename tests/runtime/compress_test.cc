// Compressed gradients: what an exchange of three ranks adds up, beside the same arithmetic written
// out, and how far plans that compress are from one device.
#include "runtime/exec/compress.h"

#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/check.h"
#include "comm/local_transport.h"
#include "runtime/check/verify.h"
#include "runtime/exec/exchange.h"
#include "runtime/jobs.h"
#include "runtime/ranks/training_run.h"

namespace heterog::runtime {
namespace {

using cost::Compression;
using cost::Compressor;

constexpr std::size_t kRanks = 3;

at::Tensor random_tensor(const std::vector<std::int64_t>& sizes, Rng& rng, double scale = 1) {
  at::Tensor made = at::empty(sizes, at::kDouble);
  double* numbers = made.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < made.numel(); ++i) numbers[i] = scale * (2 * rng.uniform() - 1);
  return made;
}

// Three ranks that exchange, step after step, with a state each.
class Ring {
 public:
  Ring() : hub_(kRanks, {{DeviceId(0), DeviceId(1), DeviceId(2)}}) {
    job_.problem = decide::toy_problem(support::tiny_mlp_graph(), kRanks, 6);
    job_.sets = {{DeviceId(0), DeviceId(1), DeviceId(2)}};
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      states_.push_back(std::make_unique<CompressionState>(5));
      job_.programs.push_back({.device = DeviceId(rank)});
      job_.programs[DeviceId(rank)].slots.resize(4);
      ends_.push_back(hub_.end_of(DeviceId(rank)));
    }
  }
  CompressionState& state(std::size_t rank) { return *states_[rank]; }

  // What each rank has in its slots once it has done the instruction on what it is given.
  using Values = std::vector<at::Tensor>;
  std::vector<Values> act(const std::function<Instruction(std::size_t rank)>& instruction,
                          const std::vector<Values>& given) {
    std::vector<Values> found(kRanks);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const c10::InferenceMode no_gradients;
        IdVector<SlotId, at::Tensor> slots(4);
        Exchange exchange(job_, job_.programs[DeviceId(rank)], *ends_[rank], slots, *states_[rank],
                          {});
        Values own;
        for (const at::Tensor& value : given[rank]) own.push_back(value.clone());
        exchange.act(instruction(rank), own);
        for (std::size_t v = 0; v < given[rank].size(); ++v)
          found[rank].push_back(slots[SlotId(v)]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return found;
  }

 private:
  comm::LocalHub hub_;
  Job job_;
  std::vector<std::unique_ptr<CompressionState>> states_;
  std::vector<std::unique_ptr<comm::Transport>> ends_;
};

Instruction all_reduce_of(const std::vector<Compression>& compressions, bool in_place = false) {
  Instruction instruction;
  instruction.action = Action::kAllReduce;
  instruction.in_place = in_place;
  for (std::size_t v = 0; v < compressions.size(); ++v) {
    instruction.slots.emplace_back(v);
    instruction.compressed.push_back({.tensor = TensorId(v), .compression = compressions[v]});
  }
  return instruction;
}

// Each addend in the type, added up in that type in the order of ranks.
at::Tensor sum_in(at::ScalarType type, const std::vector<at::Tensor>& addends) {
  at::Tensor sum = addends[0].to(type);
  for (std::size_t i = 1; i < addends.size(); ++i) sum = sum + addends[i].to(type);
  return sum.to(addends[0].scalar_type());
}

TEST(CompressedExchange, CastsAddUpInTheirType) {
  Rng rng(1);
  for (const auto& [compressor, type] :
       {std::pair(Compressor::kHalf, at::kHalf), std::pair(Compressor::kBfloat16, at::kBFloat16)}) {
    for (const at::ScalarType own : {at::kFloat, at::kDouble}) {
      for (const bool in_place : {false, true}) {
        Ring ring;
        std::vector<Ring::Values> given;
        std::vector<at::Tensor> addends;
        for (std::size_t rank = 0; rank < kRanks; ++rank) {
          addends.push_back(random_tensor({5, 7}, rng).to(own));
          given.push_back({addends.back()});
        }
        const auto found =
            ring.act([&](std::size_t) { return all_reduce_of({{compressor}}, in_place); }, given);
        for (const Ring::Values& values : found) {
          EXPECT_EQ(values[0].scalar_type(), own);
          EXPECT_TRUE(values[0].equal(sum_in(type, addends)));
          EXPECT_FALSE(values[0].equal(sum_in(own, addends)));  // some of it is lost
        }
      }
    }
  }
}

// In one bucket: a gradient that is cast, one that is factored, one as it is, integers.
TEST(CompressedExchange, ABucketOfAllKinds) {
  Rng rng(2);
  Ring ring;
  std::vector<Ring::Values> given;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    // All ranks' matrices of one column space of dimension 1: rank 2 is exact.
    const at::Tensor column = at::arange(1, 7, at::kDouble).view({6, 1});
    given.push_back({random_tensor({4, 3}, rng), at::mm(column, random_tensor({1, 5}, rng)),
                     random_tensor({3}, rng), at::full({2}, static_cast<double>(rank), at::kLong)});
  }
  const auto found = ring.act(
      [&](std::size_t) {
        return all_reduce_of({{Compressor::kHalf}, {Compressor::kPowerSgd, 2, true}, {}, {}});
      },
      given);
  const auto addends = [&](std::size_t v) {
    std::vector<at::Tensor> all;
    for (const Ring::Values& values : given) all.push_back(values[v]);
    return all;
  };
  for (const Ring::Values& values : found) {
    EXPECT_TRUE(values[0].equal(sum_in(at::kHalf, addends(0))));
    EXPECT_TRUE(values[1].allclose(sum_in(at::kDouble, addends(1)), 1e-12, 1e-12));
    EXPECT_TRUE(values[2].equal(sum_in(at::kDouble, addends(2))));
    EXPECT_TRUE(values[3].equal(sum_in(at::kLong, addends(3))));
  }
}

TEST(CompressedExchange, PartsAreCastOnTheirWay) {
  Rng rng(3);
  for (const bool several : {false, true}) {
    Ring ring;
    std::vector<Ring::Values> given;
    std::vector<at::Tensor> addends;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      addends.push_back(random_tensor({7, 2}, rng).to(at::kFloat));
      given.push_back({addends.back()});
      if (several) given.back().push_back(at::ones({7}, at::kFloat));
    }
    const comm::Cuts cuts = {0, 3, 3, 7};
    const auto found = ring.act(
        [&](std::size_t rank) {
          Instruction one = all_reduce_of({{Compressor::kBfloat16}});
          one.action = Action::kReduceScatter;
          one.part = rank;
          one.cuts.push_back(cuts);
          if (several) {
            one.slots.emplace_back(1);
            one.cuts.push_back(cuts);
            one.compressed.push_back({.tensor = TensorId(1)});
          }
          return one;
        },
        given);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(found[rank][0].equal(comm::part_of(sum_in(at::kBFloat16, addends), cuts, rank)));
      if (!several) continue;
      EXPECT_TRUE(found[rank][1].equal(at::full({cuts[rank + 1] - cuts[rank]}, 3.0, at::kFloat)));
    }
  }
}

// What is lost is what the cast took; over steps what was sent is what was to be sent, but for what
// is still lost.
TEST(CompressedExchange, FeedbackKeepsWhatWasLost) {
  Rng rng(4);
  CompressionState state(0);
  const CompressedValue value{.tensor = TensorId(3), .compression = {Compressor::kHalf, 0, true}};
  at::Tensor all = at::zeros({4, 4}, at::kDouble), sent = all.clone(), lost = all.clone();
  for (int step = 0; step < 5; ++step) {
    const at::Tensor gradient = random_tensor({4, 4}, rng);
    const at::Tensor made = cast(value, gradient, state);
    EXPECT_EQ(made.scalar_type(), at::kHalf);
    EXPECT_TRUE(made.equal((gradient + lost).to(at::kHalf)));
    lost = gradient + lost - made.to(at::kDouble);
    EXPECT_TRUE(state.of(value).lost.equal(lost));
    all += gradient;
    sent += made.to(at::kDouble);
  }
  EXPECT_GT(lost.norm().item<double>(), 0);
  EXPECT_LT((all - sent - lost).norm().item<double>(), 1e-12);
  EXPECT_EQ(state.bytes(), 4 * 4 * 8);
  // Other rows of the tensor have what they lost by themselves.
  CompressedValue other = value;
  other.first_row = 2;
  EXPECT_FALSE(state.of(other).lost.defined());
  // An overflow is sent, and not kept.
  const at::Tensor inf = cast(value, at::full({4, 4}, 1e30, at::kDouble), state);
  EXPECT_TRUE(inf.isinf().all().item<bool>());
  EXPECT_TRUE(state.of(value).lost.equal(at::zeros({4, 4}, at::kDouble)));
}

// ---- PowerSGD, beside loops ----

using Matrix = std::vector<std::vector<double>>;

Matrix zeros(std::size_t rows, std::size_t columns) {
  return Matrix(rows, std::vector<double>(columns, 0));
}
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c = zeros(a.size(), b[0].size());
  for (std::size_t i = 0; i < c.size(); ++i) {
    for (std::size_t j = 0; j < c[0].size(); ++j) {
      for (std::size_t k = 0; k < b.size(); ++k) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}
Matrix transposed(const Matrix& a) {
  Matrix b = zeros(a[0].size(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[0].size(); ++j) b[j][i] = a[i][j];
  }
  return b;
}
Matrix added(const Matrix& a, const Matrix& b, double times = 1) {
  Matrix c = a;
  for (std::size_t i = 0; i < c.size(); ++i) {
    for (std::size_t j = 0; j < c[0].size(); ++j) c[i][j] += times * b[i][j];
  }
  return c;
}
// Gram and Schmidt, a column after another.
Matrix orthonormal(Matrix a) {
  for (std::size_t k = 0; k < a[0].size(); ++k) {
    for (std::size_t before = 0; before < k; ++before) {
      double along = 0;
      for (const auto& row : a) along += row[k] * row[before];
      for (auto& row : a) row[k] -= along * row[before];
    }
    double square = 0;
    for (const auto& row : a) square += row[k] * row[k];
    for (auto& row : a) row[k] /= std::sqrt(square);
  }
  return a;
}
Matrix matrix_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).reshape({tensor.size(0), -1}).contiguous();
  Matrix a = zeros(static_cast<std::size_t>(flat.size(0)), static_cast<std::size_t>(flat.size(1)));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[0].size(); ++j) {
      a[i][j] = flat.const_data_ptr<double>()[i * a[0].size() + j];
    }
  }
  return a;
}
double distance(const Matrix& a, const Matrix& b) {
  double square = 0;
  for (const auto& row : added(a, b, -1)) {
    for (double one : row) square += one * one;
  }
  return std::sqrt(square);
}

// Algorithm 1 and 2 of Vogels et al. 2019 over three ranks, as sums: the first factor of the next
// step is the second of this one, and each rank adds what it lost.
TEST(PowerSgd, IsItsAlgorithm) {
  Rng rng(6);
  Ring ring;
  const Compression low{Compressor::kPowerSgd, 2, true};
  Matrix factor;
  std::vector<Matrix> lost(kRanks, zeros(6, 10));
  for (int step = 0; step < 4; ++step) {
    std::vector<Ring::Values> given;
    std::vector<Matrix> gradients;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      given.push_back({random_tensor({6, 5, 2}, rng)});
      gradients.push_back(added(matrix_of(given.back()[0]), lost[rank]));
    }
    const auto found = ring.act([&](std::size_t) { return all_reduce_of({low}); }, given);
    if (step == 0) {  // that a step begins with the seed's, nobody sees from outside
      CompressionState fresh(5);
      LowRank begins({.tensor = TensorId(0), .compression = low}, given[0][0], fresh);
      factor = matrix_of(fresh.of({.tensor = TensorId(0)}).factor);
    }
    Matrix p = zeros(6, 2), q = zeros(10, 2);
    for (const Matrix& gradient : gradients) p = added(p, product(gradient, factor));
    p = orthonormal(p);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const Matrix own = product(transposed(gradients[rank]), p);
      q = added(q, own);
      lost[rank] = added(gradients[rank], product(p, transposed(own)), -1);
    }
    factor = q;
    const Matrix sum = product(p, transposed(q));
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(found[rank][0].sizes(), (std::vector<std::int64_t>{6, 5, 2}));
      EXPECT_LT(distance(matrix_of(found[rank][0]), sum), 1e-10) << step;
      EXPECT_LT(distance(matrix_of(ring.state(rank).of({.tensor = TensorId(0)}).lost), lost[rank]),
                1e-10);
      EXPECT_TRUE(found[rank][0].equal(found[0][0]));
    }
    EXPECT_GT(distance(lost[0], zeros(6, 10)), 0.1);
  }
}

// Where the ranks' gradients together have no more dimensions than it has columns, nothing is lost:
// also where there are fewer, so that some columns depend on others.
TEST(PowerSgd, OfEnoughColumnsIsExact) {
  Rng rng(7);
  for (const std::int32_t rank : {3, 4, 6}) {
    Ring ring;
    for (int step = 0; step < 3; ++step) {
      std::vector<Ring::Values> given;
      at::Tensor sum = at::zeros({20, 30}, at::kDouble);
      for (std::size_t i = 0; i < kRanks; ++i) {
        given.push_back({at::mm(random_tensor({20, 1}, rng), random_tensor({1, 30}, rng))});
        sum += given.back()[0];
      }
      const auto found = ring.act(
          [&](std::size_t) {
            return all_reduce_of({{Compressor::kPowerSgd, rank, true}});
          },
          given);
      for (std::size_t i = 0; i < kRanks; ++i) {
        EXPECT_LT((found[i][0] - sum).norm().item<double>(), 1e-9) << rank << " " << step;
        EXPECT_LT(ring.state(i).of({.tensor = TensorId(0)}).lost.norm().item<double>(), 1e-9);
      }
    }
  }
}

// Columns that depend on others are zero, not noise of their own.
TEST(PowerSgd, OrthogonalColumns) {
  Rng rng(8);
  const at::Tensor one = random_tensor({9, 2}, rng);
  const at::Tensor all = at::cat({one, one.sum(1, true), random_tensor({9, 1}, rng)}, 1);
  const at::Tensor made = orthogonal(all);
  const at::Tensor products = at::mm(made.t(), made);
  const at::Tensor expected = at::diag(at::tensor({1.0, 1.0, 0.0, 1.0}, at::kDouble));
  EXPECT_TRUE(products.allclose(expected, 0, 1e-14));
  EXPECT_TRUE(made.select(1, 2).equal(at::zeros({9}, at::kDouble)));
  // What is not finite does not become a number.
  EXPECT_TRUE(orthogonal(at::full({4, 1}, INFINITY, at::kDouble)).isnan().any().item<bool>());
}

// An overflow or a gradient of zeros does not end it: the step after is as good as the first.
TEST(PowerSgd, GoesOnAfterWhatIsNotFinite) {
  Rng rng(9);
  Ring ring;
  const auto step = [&](const at::Tensor& gradient) {
    return ring.act(
        [&](std::size_t) {
          return all_reduce_of({{Compressor::kPowerSgd, 2, true}});
        },
        std::vector<Ring::Values>(kRanks, {gradient}))[0][0];
  };
  const at::Tensor good = at::mm(random_tensor({8, 1}, rng), random_tensor({1, 9}, rng));
  EXPECT_FALSE(step(at::full({8, 9}, INFINITY, at::kDouble)).isfinite().all().item<bool>());
  EXPECT_TRUE(step(good).allclose(3 * good, 1e-9, 1e-9));
  EXPECT_TRUE(
      step(at::zeros({8, 9}, at::kDouble)).allclose(at::zeros({8, 9}, at::kDouble), 0, 1e-9));
  EXPECT_TRUE(step(good).allclose(3 * good, 1e-9, 1e-9));
}

// ---- whole plans ----

std::size_t compressed_tasks(const compiler::Plan& plan) {
  std::size_t count = 0;
  for (TaskId task : plan.task_ids()) count += plan.is_compressed(task) ? 1 : 0;
  return count;
}

double worst_of(const Verification& verification, const std::string& kind) {
  for (const Difference& one : verification.worst) {
    if (one.kind == kind) return one.relative;
  }
  return -1;
}

// Every way of a gradient, in threads: within what the type rounds by, and not exact.
TEST(CompressedPlans, RandomMixesAreOffByRoundingAlone) {
  std::size_t tasks = 0;
  for (const char* model : {"models/lenet5-tiny.json.gz", "models/bert_large24-tiny.json.gz",
                            "tests/data/masters_bfloat16.json.gz"}) {
    const auto plain = decide::toy_problem(graph::read_graph(model), 3, 17);
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const std::shared_ptr<const cost::Problem> problem =
          decide::with_compression(*plain, seed % 2 == 0 ? "bf16" : "bf16,feedback");
      const TestJob test = make_test_job(problem, random_mix(*problem, seed));
      const Verification found = verify(test.job, test.plan, {.steps = 1});
      SCOPED_TRACE(std::string(model) + " " + std::to_string(seed));
      // Half an ulp of 8 bits each of cast and two sums, and what cancels.
      EXPECT_LE(worst_of(found, "gradient"), 0.1);
      if (compressed_tasks(test.plan) == 0) {
        EXPECT_LE(found.worst_relative(), 1e-10);
      } else {
        EXPECT_GT(worst_of(found, "gradient"), 1e-10);
      }
      tasks += compressed_tasks(test.plan);
    }
  }
  EXPECT_GT(tasks, 100u);
}

// Of a batch of three samples the gradient of a layer has three dimensions: three columns are
// enough, step after step.
TEST(CompressedPlans, PowerSgdOfEnoughColumnsTrainsAsOneDevice) {
  const auto plain = decide::toy_problem(graph::read_graph("tests/data/mlp_sgd.json.gz"), 3, 3);
  for (Bytes bucket : {Bytes{0}, Bytes{1} << 20}) {
    const std::shared_ptr<const cost::Problem> problem =
        decide::with_compression(*plain, "powersgd:rank=3");
    decide::Strategy strategy = weighted(*problem, {1, 1, 1}, decide::SyncMethod::kAllReduce);
    strategy.bucket_bytes = bucket;
    const TestJob test = make_test_job(problem, strategy);
    EXPECT_GT(compressed_tasks(test.plan), 0u);
    EXPECT_LE(verify(test.job, test.plan, {.steps = 3}).worst_relative(), 1e-9);
    const std::shared_ptr<const cost::Problem> less =
        decide::with_compression(*plain, "powersgd:rank=1");
    const TestJob lossy = make_test_job(less, strategy);
    EXPECT_GT(verify(lossy.job, lossy.plan, {.steps = 3}).worst_relative(), 1e-3);
  }
}

// What the plan says of state is what ranks keep after a step.
TEST(CompressedPlans, StateIsWhatThePlanSays) {
  const auto plain = decide::model_problem("bert_large24-tiny", 3, 17);
  for (const char* text : {"fp16", "bf16,feedback", "powersgd:rank=1"}) {
    for (decide::SyncMethod sync : decide::kSyncMethods) {
      const std::shared_ptr<const cost::Problem> problem = decide::with_compression(*plain, text);
      const TestJob test = make_test_job(problem, weighted(*problem, {2, 1, 3}, sync));
      IdVector<DeviceId, WorkerOptions> options(3);
      for (WorkerOptions& one : options) one.count_memory = true;
      TrainingRun run(ranks_in_threads(test.job, test.plan, options), options[DeviceId(0)]);
      run.step(1);
      const StepReport report = run.step(2);
      for (std::size_t device = 0; device < 3; ++device) {
        EXPECT_EQ(report.memory[device].optimizer_state,
                  test.plan.static_memory[DeviceId(device)].optimizer_state)
            << text << " " << decide::sync_method_name(sync) << " " << device;
      }
    }
  }
}

// The same seed gives the same bits, run for run.
TEST(CompressedPlans, AreTheSameRunForRun) {
  const auto plain = decide::model_problem("lenet5-tiny", 3, 12);
  const std::shared_ptr<const cost::Problem> problem =
      decide::with_compression(*plain, "powersgd:rank=1");
  const TestJob test =
      make_test_job(problem, weighted(*problem, {1, 1, 1}, decide::SyncMethod::kAllReduce));
  const auto losses = [&] {
    TrainingRun run(ranks_in_threads(test.job, test.plan, IdVector<DeviceId, WorkerOptions>(3)),
                    {});
    return std::vector<double>{run.step(1).loss, run.step(2).loss, run.step(3).loss};
  };
  EXPECT_EQ(losses(), losses());
}

}  // namespace
}  // namespace heterog::runtime
