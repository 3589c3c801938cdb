// What callers from C get: a step, codes and messages of errors, and no crash from null pointers.
#include "client/heterog.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <malloc.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "cli/program.h"
#include "comm/fake_device.h"
#include "graph/graph_io.h"

namespace heterog::client {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kGraph = "tests/data/mlp_sgd.json.gz";
constexpr const char* kCluster = "configs/clusters/local-2cpu.json";
constexpr std::int64_t kBatch = 8;

// A tensor of the graph in memory of ours, filled with one value.
struct Owned {
  Owned(const graph::ModelGraph& graph, TensorId id, double value, std::int64_t batch = kBatch)
      : id(id.value()), name(graph::dtype_name(graph.tensor(id).dtype)) {
    std::size_t count = 1;
    for (const graph::Affine& size : graph.shape(id)) {
      sizes.push_back(size.at(batch));
      count *= static_cast<std::size_t>(sizes.back());
    }
    if (name == "float32") {
      fill<float>(count, value);
    } else if (name == "float64") {
      fill<double>(count, value);
    } else {
      bytes.resize(count * 8);  // whole numbers and the like: zeros
    }
  }
  template <class Number>
  void fill(std::size_t count, double value) {
    const std::vector<Number> all(count, static_cast<Number>(value));
    bytes.resize(count * sizeof(Number));
    std::memcpy(bytes.data(), all.data(), bytes.size());
  }
  heterog_tensor view() {
    return {.data = bytes.data(),
            .sizes = sizes.data(),
            .dimensions = static_cast<std::int32_t>(sizes.size()),
            .dtype = name.c_str()};
  }
  float first() const {
    float value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  std::uint32_t id;
  std::string name;
  std::vector<std::int64_t> sizes;
  std::vector<char> bytes;
};

class Interface : public cli::ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    plan_ = path("plan.json");
    const cli::Finished planned =
        run("plan --planner ev-ar --batch " + std::to_string(kBatch) + " --out " + plan_ +
            " --graph " + kGraph + " --cluster " + kCluster);
    ASSERT_EQ(planned.code, 0) << planned.err;
    options_ = {.graph = kGraph,
                .cluster = kCluster,
                .plan = plan_.c_str(),
                .collectives = "per-device",
                .threads = 1,
                .timeout_seconds = 20,
                .transport = "tcp",
                .terms = ""};
  }
  void TearDown() override {
    heterog_close(runner_, 0);
    ProgramTest::TearDown();
  }

  void open() { ASSERT_EQ(heterog_open(&options_, &runner_), 0) << heterog_last_error(); }
  // Every kept tensor at this value.
  void set_all(double value) {
    for (const TensorId id : graph_.tensor_ids()) {
      std::int32_t kept = 0;
      ASSERT_EQ(heterog_is_kept(runner_, id.value(), &kept), 0);
      if (kept == 0) continue;
      Owned owned(graph_, id, value);
      const heterog_tensor view = owned.view();
      ASSERT_EQ(heterog_set(runner_, owned.id, &view), 0) << heterog_last_error();
    }
  }
  std::vector<Owned> inputs(double value, std::int64_t batch = kBatch) const {
    std::vector<Owned> inputs;
    for (const TensorId id : graph_.tensor_ids()) {
      if (graph_.tensor(id).role != graph::TensorRole::kInput) continue;
      inputs.emplace_back(graph_, id, value, batch);
    }
    return inputs;
  }
  std::int32_t step(std::int64_t number, std::vector<Owned> given, std::int64_t batch = kBatch) {
    std::vector<std::uint32_t> ids;
    std::vector<heterog_tensor> views;
    for (Owned& one : given) {
      ids.push_back(one.id);
      views.push_back(one.view());
    }
    return heterog_step(runner_, number, 0, batch, ids.data(), views.data(),
                        static_cast<std::int32_t>(ids.size()), own_rows_, &loss_, &seconds_);
  }
  std::int32_t launch(std::int64_t number, std::vector<Owned> given) {
    std::vector<std::uint32_t> ids;
    std::vector<heterog_tensor> views;
    for (Owned& one : given) {
      ids.push_back(one.id);
      views.push_back(one.view());
    }
    return heterog_launch(runner_, number, 0, kBatch, ids.data(), views.data(),
                          static_cast<std::int32_t>(ids.size()), own_rows_);
  }
  TensorId parameter() const {
    for (const TensorId id : graph_.tensor_ids()) {
      if (graph_.tensor(id).role == graph::TensorRole::kParameter) return id;
    }
    return TensorId();
  }
  // Bad input, with this in the message, which is one line.
  static void expect_refused(std::int32_t code, const std::string& part) {
    EXPECT_EQ(code, 2) << part;
    EXPECT_THAT(heterog_last_error(), HasSubstr(part));
    EXPECT_THAT(heterog_last_error(), Not(HasSubstr("\n")));
  }

  const graph::ModelGraph graph_ = graph::read_graph(kGraph);
  std::string plan_;
  heterog_options options_ = {};
  heterog_runner* runner_ = nullptr;
  std::int32_t own_rows_ = 0;
  double loss_ = 0;
  double seconds_ = 0;
};

TEST_F(Interface, RunsAStep) {
  EXPECT_EQ(heterog_api_version(), HETEROG_API_VERSION);
  EXPECT_EQ(heterog_xxh3("", 0), 0x2d06800538d394c2u);
  open();
  heterog_info info = {};
  ASSERT_EQ(heterog_get_info(runner_, &info), 0);
  EXPECT_EQ(info.batch, kBatch);
  EXPECT_EQ(info.ranks, 2);
  EXPECT_EQ(info.rank, 0);
  EXPECT_GT(info.predicted_step_seconds, 0);
  set_all(0.25);
  ASSERT_EQ(step(1, inputs(1.0)), 0) << heterog_last_error();
  EXPECT_TRUE(std::isfinite(loss_));
  EXPECT_GT(seconds_, 0);
  // All weights are alike, so the gradient of the first layer is zero, but not that of the last.
  bool updated = false;
  for (const TensorId id : graph_.tensor_ids()) {
    if (graph_.tensor(id).role != graph::TensorRole::kParameter) continue;
    Owned owned(graph_, id, 0);
    heterog_tensor view = owned.view();
    ASSERT_EQ(heterog_get(runner_, owned.id, &view), 0) << heterog_last_error();
    EXPECT_TRUE(std::isfinite(owned.first()));
    EXPECT_NE(owned.first(), 0.0f) << "nothing was written";
    updated |= owned.first() != 0.25f;
  }
  EXPECT_TRUE(updated);
  std::int32_t worst = 0;
  ASSERT_EQ(heterog_meet(runner_, 3, &worst), 0);
  EXPECT_EQ(worst, 3);
  ASSERT_EQ(heterog_close(runner_, 1), 0);
  runner_ = nullptr;
}

TEST_F(Interface, StepsAreFinishedInTheOrderOfTheirLaunch) {
  open();
  set_all(0.25);
  std::vector<double> losses;
  for (const std::int64_t number : {1, 2, 3}) {
    ASSERT_EQ(step(number, inputs(0.5 * static_cast<double>(number))), 0) << heterog_last_error();
    losses.push_back(loss_);
  }
  EXPECT_NE(losses[1], losses[2]);
  set_all(0.25);
  expect_refused(heterog_finish(runner_, &loss_, &seconds_), "no step has been launched");
  ASSERT_EQ(launch(1, inputs(0.5)), 0) << heterog_last_error();
  expect_refused(step(2, inputs(1.0)), "a step has been launched; finish it first");
  ASSERT_EQ(launch(2, inputs(1.0)), 0) << heterog_last_error();
  expect_refused(launch(3, inputs(1.5)), "two steps have been launched; finish one");
  ASSERT_EQ(heterog_finish(runner_, &loss_, &seconds_), 0) << heterog_last_error();
  EXPECT_EQ(loss_, losses[0]);
  ASSERT_EQ(launch(3, inputs(1.5)), 0) << heterog_last_error();
  expect_refused(heterog_finish(runner_, nullptr, &seconds_), "loss and seconds: not given");
  for (const std::size_t i : {1, 2}) {
    ASSERT_EQ(heterog_finish(runner_, &loss_, &seconds_), 0) << heterog_last_error();
    EXPECT_EQ(loss_, losses[i]);
  }
}

// Written on another stream than the default one, on which ranks read it.
TEST_F(Interface, TakesInputsFromADeviceBehindTheCallersStream) {
  comm::fake::install();
  open();
  set_all(0.25);
  ASSERT_EQ(step(1, inputs(1.5)), 0) << heterog_last_error();
  const double expected = loss_;
  set_all(0.25);
  const at::Device device = comm::fake::device(1);
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::StreamGuard on_its_stream(guard.getStreamFromGlobalPool(device));
  std::vector<Owned> given = inputs(1.5);
  std::vector<at::Tensor> there;
  std::vector<std::uint32_t> ids;
  std::vector<heterog_tensor> views;
  for (Owned& one : given) {
    const at::ScalarType type = one.name == "float32" ? at::kFloat : at::kLong;
    there.push_back(at::from_blob(one.bytes.data(), one.sizes, type).to(device).add(0));
    ids.push_back(one.id);
    views.push_back(one.view());
    views.back().data = there.back().data_ptr();
    views.back().device = "fake:1";
  }
  const auto count = static_cast<std::int32_t>(ids.size());
  ASSERT_EQ(
      heterog_step(runner_, 2, 0, kBatch, ids.data(), views.data(), count, 0, &loss_, &seconds_), 0)
      << heterog_last_error();
  EXPECT_EQ(loss_, expected);
  EXPECT_THAT(comm::fake::checker().races(), testing::IsEmpty());
  for (const char* wrong : {"fake:9", "fake", "cuda:70", "nothing", "cpu:x"}) {
    views.back().device = wrong;
    expect_refused(
        heterog_step(runner_, 3, 0, kBatch, ids.data(), views.data(), count, 0, &loss_, &seconds_),
        std::string("device: '") + wrong + "' given; it is cpu");
  }
  // What stays between steps passes through the host anyway.
  Owned parameter_value(graph_, parameter(), 0.25);
  heterog_tensor kept = parameter_value.view();
  kept.device = "fake:1";
  expect_refused(heterog_set(runner_, parameter_value.id, &kept), "on fake:1 given");
}

TEST_F(Interface, SaysWhatRunsWhere) {
  open();
  heterog_device device = {};
  for (const std::int32_t rank : {0, 1}) {
    ASSERT_EQ(heterog_get_device(runner_, rank, &device), 0) << heterog_last_error();
    EXPECT_EQ(device.name, "local/gpu" + std::to_string(rank));
    EXPECT_STREQ(device.model, "CPU");
    EXPECT_STREQ(device.runs_on, "cpu");
  }
  expect_refused(heterog_get_device(runner_, 2, &device), "rank 2: there are 2");
  expect_refused(heterog_get_device(runner_, 0, nullptr), "not given");
}

// What glibc has mapped for large blocks, one of 64 MB among them.
std::size_t mapped_with_a_large_block() {
  void* block = std::malloc(64 << 20);
  *static_cast<volatile char*>(block) = 1;  // else the compiler leaves it out
  const auto mapped = static_cast<std::size_t>(mallinfo2().hblkhd);
  std::free(block);
  return mapped;
}

TEST_F(Interface, SetsNothingForTheWholeProcessUnlessAsked) {
  const auto run_a_step = [&] {
    open();
    set_all(0.25);
    ASSERT_EQ(step(1, inputs(1.0)), 0) << heterog_last_error();
    heterog_close(runner_, 1);
    runner_ = nullptr;
  };
  run_a_step();
  EXPECT_GE(mapped_with_a_large_block(), 64u << 20);
  options_.tune_process = 1;
  run_a_step();
  EXPECT_LT(mapped_with_a_large_block(), 64u << 20);
}

TEST_F(Interface, RefusesBadInput) {
  heterog_options options = options_;
  options.plan = "no/such/plan.json";
  expect_refused(heterog_open(&options, &runner_), "no/such/plan.json");
  EXPECT_EQ(runner_, nullptr);
  options = options_;
  options.collectives = "sometimes";
  expect_refused(heterog_open(&options, &runner_), "sometimes");
  options = options_;
  options.transport = "pigeon";
  expect_refused(heterog_open(&options, &runner_),
                 "transport: \"pigeon\" given; this build of heterog has tcp");
  options = options_;
  options.timeout_seconds = 0;
  expect_refused(heterog_open(&options, &runner_), "timeout");
  options = options_;
  const char* slow_device = "local/gpu9";
  const std::int32_t factor = 2;
  options.slow_devices = &slow_device;
  options.slow_factors = &factor;
  options.slow_count = 1;
  expect_refused(heterog_open(&options, &runner_), "local/gpu9");

  open();
  std::int32_t kept = 0;
  expect_refused(heterog_is_kept(runner_, 1 << 30, &kept), "the graph has");
  Owned wrong(graph_, parameter(), 1);
  heterog_tensor view = wrong.view();
  view.dtype = "float64";
  expect_refused(heterog_set(runner_, wrong.id, &view), "float64 given; the graph wants float32");
  wrong.sizes[0] += 1;
  view = wrong.view();
  expect_refused(heterog_set(runner_, wrong.id, &view), "shape");
  expect_refused(step(1, inputs(1)), "was not given a value");
}

TEST_F(Interface, RefusesWhatIsNoOutput) {
  open();
  Owned value(graph_, parameter(), 1);
  heterog_tensor view = value.view();
  expect_refused(heterog_get_output(runner_, value.id, &view), "no step has been done");
  set_all(0.25);
  ASSERT_EQ(step(1, inputs(1.0)), 0) << heterog_last_error();
  expect_refused(heterog_get_output(runner_, value.id, &view), "is no output");
  Owned loss(graph_, graph_.loss(), 1);
  view = loss.view();
  expect_refused(heterog_get_output(runner_, loss.id, &view), "beside the loss");
  expect_refused(heterog_add_up(runner_, nullptr, 1), "not given");
  double numbers[] = {1.5, -2};  // of one process
  ASSERT_EQ(heterog_add_up(runner_, numbers, 2), 0) << heterog_last_error();
  EXPECT_EQ(numbers[0], 1.5);
  EXPECT_EQ(numbers[1], -2);
}

// Of inputs that are all alike the loss is the same at any number of samples, as long as the
// parameters are.
TEST_F(Interface, StepsOfOtherBatches) {
  open();
  const auto first_loss = [&](std::int64_t batch) {
    set_all(0.25);
    EXPECT_EQ(step(1, inputs(1.0, batch), batch), 0) << heterog_last_error();
    return loss_;
  };
  const double loss = first_loss(kBatch);
  EXPECT_GT(loss, 0);
  for (std::int64_t batch : {5, 2, 30, 5, 8}) EXPECT_NEAR(first_loss(batch), loss, 1e-6 * loss);
  expect_refused(step(2, inputs(1.0, 1), 1), "is known to hold from 2 samples on");
  expect_refused(step(2, inputs(1.0, 5), 6), "shape");
  expect_refused(step(2, inputs(1.0, 5), 1 << 30), "batch 1073741824: expected 1 to");
  EXPECT_EQ(step(2, inputs(1.0, 5), 5), 0) << heterog_last_error();
}

// Inputs that do not fit leave the runner as it was; a step that fails ends it.
TEST_F(Interface, ALossThatIsNoNumberLeavesTheRunnerUsable) {
  open();
  set_all(0.25);
  std::vector<Owned> unfit = inputs(1);
  unfit[0].sizes[0] += 1;
  expect_refused(step(1, unfit), "shape");
  ASSERT_EQ(step(1, inputs(1)), 0) << heterog_last_error();
  EXPECT_STREQ(heterog_last_error(), "");
  EXPECT_EQ(step(2, inputs(NAN)), 4);
  EXPECT_THAT(heterog_last_error(), HasSubstr("rank 0 (local/gpu0): the loss is not a finite"));
  EXPECT_EQ(step(3, inputs(1)), 4) << "its parameters are no numbers";
  set_all(0.25);
  EXPECT_EQ(step(4, inputs(1)), 0) << heterog_last_error();
  heterog_info info = {};
  EXPECT_EQ(heterog_get_info(runner_, &info), 0) << "it can still be asked";
}

TEST_F(Interface, MessagesAreOfTheCallingThread) {
  heterog_options options = options_;
  options.plan = "none";
  expect_refused(heterog_open(&options, &runner_), "none");
  std::thread([] { EXPECT_STREQ(heterog_last_error(), ""); }).join();
  EXPECT_STRNE(heterog_last_error(), "");
}

TEST_F(Interface, NullPointersAreBadInput) {
  heterog_info info = {};
  std::int32_t number = 0;
  double loss = 0;
  heterog_tensor tensor = {};
  expect_refused(heterog_open(nullptr, &runner_), "not given");
  expect_refused(heterog_open(&options_, nullptr), "not given");
  heterog_options nothing = {};
  expect_refused(heterog_open(&nothing, &runner_), "graph: not given");
  expect_refused(heterog_get_info(nullptr, &info), "no runner");
  expect_refused(heterog_is_kept(nullptr, 0, &number), "no runner");
  expect_refused(heterog_set(nullptr, 0, &tensor), "no runner");
  expect_refused(heterog_get(nullptr, 0, &tensor), "no runner");
  expect_refused(heterog_step(nullptr, 1, 0, kBatch, nullptr, nullptr, 0, 0, &loss, &loss),
                 "no runner");
  expect_refused(heterog_meet(nullptr, 0, &number), "no runner");
  EXPECT_EQ(heterog_close(nullptr, 0), 0) << "as free()";
  EXPECT_EQ(heterog_close(nullptr, 1), 0);
  expect_refused(heterog_get_rows(nullptr, 0, kBatch, nullptr, 0, &number), "no runner");
  open();
  expect_refused(heterog_get_rows(runner_, 0, kBatch, nullptr, 1, &number), "not given");
  expect_refused(heterog_get_rows(runner_, 0, kBatch, nullptr, 0, nullptr), "not given");
  expect_refused(heterog_get_info(runner_, nullptr), "not given");
  expect_refused(heterog_is_kept(runner_, 0, nullptr), "not given");
  expect_refused(heterog_meet(runner_, 0, nullptr), "not given");
  expect_refused(heterog_set(runner_, parameter().value(), nullptr), "no tensor");
  expect_refused(heterog_set(runner_, parameter().value(), &tensor), "dtype: not given");
  Owned owned(graph_, parameter(), 1);
  tensor = owned.view();
  tensor.data = nullptr;
  expect_refused(heterog_set(runner_, owned.id, &tensor), "no data given");
  tensor.sizes = nullptr;
  expect_refused(heterog_set(runner_, owned.id, &tensor), "without sizes");
  expect_refused(heterog_get(runner_, parameter().value(), nullptr), "no tensor");
  expect_refused(heterog_step(runner_, 1, 0, kBatch, nullptr, nullptr, 2, 0, &loss, &loss),
                 "inputs");
  expect_refused(heterog_step(runner_, 1, 0, kBatch, nullptr, nullptr, 0, 0, nullptr, &loss),
                 "loss");
}

TEST_F(Interface, RowsOfAllRanksAreTheBatch) {
  open();
  for (const std::int64_t samples : {kBatch, kBatch - 3}) {
    heterog_range ranges[4] = {};
    std::int32_t count = 0;
    ASSERT_EQ(heterog_get_rows(runner_, 0, samples, ranges, 4, &count), 0) << heterog_last_error();
    ASSERT_EQ(count, 1);
    EXPECT_EQ(ranges[0].begin, 0);
    EXPECT_EQ(ranges[0].end, samples);
  }
  own_rows_ = 1;
  set_all(0.5);
  EXPECT_EQ(step(1, inputs(1)), 0) << heterog_last_error();
}

}  // namespace
}  // namespace heterog::client
