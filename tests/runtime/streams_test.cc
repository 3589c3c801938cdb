// Ranks on a device with streams: the same bits as on CPUs, and every two accesses to one memory in
// an order that events, waits or messages make.
#include "runtime/exec/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "comm/fake_device.h"
#include "comm/local_transport.h"
#include "comm/routes.h"
#include "comm/staged_transport.h"
#include "runtime/exec/random_data.h"
#include "runtime/kernels/tensor_memory.h"
#include "runtime/ranks/team.h"
#include "runtime/verified.h"
#include "support/graphs.h"
#include "support/rounds.h"

namespace heterog::runtime {
namespace {

using decide::SyncMethod;
using testing::HasSubstr;
using testing::IsEmpty;

// What messages between ranks carry beside their bytes: what the sender knew.
class Post {
 public:
  void give(const std::string& key, const comm::fake::VectorClock& clock) {
    const std::lock_guard lock(mutex_);
    clocks_[key].join(clock);
  }
  comm::fake::VectorClock take(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return clocks_[key];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, comm::fake::VectorClock> clocks_;
};

// A transport of host memory that tells the checker who hears of what. Tensors are handed on as
// copies: in one process, the last to let go of one may be another rank, of which nobody could say
// that it knows what the first has waited for.
class Tap final : public comm::Transport {
 public:
  struct Options {
    DeviceId own;
    bool on_cpu = false;
    comm::DeviceSets sets;
  };
  Tap(comm::Transport& inner, Post& post, Options options)
      : inner_(inner), post_(post), options_(std::move(options)), rounds_(options_.sets.size()) {}

  void send(const at::Tensor& value, DeviceId to, std::uint32_t tag) override {
    comm::fake::host_reads(value, "sending");
    post_.give(key(options_.own, to, tag), known());
    inner_.send(value.clone(), to, tag);
  }
  void receive(at::Tensor& value, DeviceId from, std::uint32_t tag) override {
    inner_.receive(value, from, tag);
    learn(post_.take(key(from, options_.own, tag)));
    comm::fake::host_writes(value, "receiving");
  }
  void all_reduce(at::Tensor& value, std::size_t set) override {
    on_a_copy(value, set, [&](at::Tensor& copy) { inner_.all_reduce(copy, set); });
  }
  void reduce_scatter(at::Tensor& value, const comm::Cuts& cuts, std::size_t set) override {
    on_a_copy(value, set, [&](at::Tensor& copy) { inner_.reduce_scatter(copy, cuts, set); });
  }
  void all_gather_rows(at::Tensor& value, const comm::Cuts& cuts, std::size_t set) override {
    on_a_copy(value, set, [&](at::Tensor& copy) { inner_.all_gather_rows(copy, cuts, set); });
  }
  std::vector<at::Tensor> all_gather(const at::Tensor& own, std::size_t set) override {
    comm::fake::host_reads(own, "gathering");
    const std::string key = arrive(set);
    auto gathered = inner_.all_gather(own.clone(), set);
    learn(post_.take(key));
    return gathered;
  }
  std::vector<at::Tensor> gather_all(const at::Tensor& own) override {
    return inner_.gather_all(own);
  }
  void abort(const std::string& reason) override { inner_.abort(reason); }

 private:
  static std::string key(DeviceId from, DeviceId to, std::uint32_t tag) {
    return fmt::format("{} to {}: {}", from.value(), to.value(), tag);
  }
  template <class Call>
  void on_a_copy(at::Tensor& value, std::size_t set, Call call) {
    comm::fake::host_reads(value, "reducing");
    const std::string key = arrive(set);
    at::Tensor copy = value.clone();
    call(copy);
    learn(post_.take(key));
    value.copy_(copy);
    comm::fake::host_writes(value, "reducing");
  }
  std::string arrive(std::size_t set) {
    std::string key = fmt::format("set {}: {}", set, rounds_[set]++);
    post_.give(key, known());
    return key;
  }
  // A rank on a CPU hands what it learns from thread to thread, unseen: it is taken as one.
  comm::fake::VectorClock known() {
    comm::fake::VectorClock clock = comm::fake::checker().known();
    if (!options_.on_cpu) return clock;
    const std::lock_guard lock(mutex_);
    clock.join(rank_);
    return clock;
  }
  void learn(const comm::fake::VectorClock& clock) {
    comm::fake::checker().learn(clock);
    const std::lock_guard lock(mutex_);
    rank_.join(clock);
  }

  comm::Transport& inner_;
  Post& post_;
  const Options options_;
  std::vector<int> rounds_;
  std::mutex mutex_;
  comm::fake::VectorClock rank_;
};

struct Trained {
  std::vector<at::Tensor> values;  // what is captured in each step, and what stays at the end
  std::vector<std::string> errors;
  StepResult last;  // of rank 0
};

struct TrainOptions {
  std::vector<at::Device> devices;  // one a rank
  int steps = 2;
  bool record = false;
  bool ahead = false;   // each step is given the inputs of the next one too
  bool late = false;    // each step is read once the next one is launched
  bool direct = false;  // ranks on one device do not go by the host, as in a team
  std::function<c10::Stream(bool urgent)> streams = {};
};

Trained train_on(const TestJob& test, const TrainOptions& options) {
  const Job& job = test.job;
  const graph::ModelGraph& graph = *job.problem->graph;
  const std::size_t ranks = job.programs.size();
  comm::LocalHub hub(ranks, job.sets);
  Post post;
  const auto values = random_residents(graph, 1, Floats::kOwn);
  std::vector<StepInputs> inputs;
  for (int step = 1; step <= options.steps; ++step) {
    inputs.push_back(random_inputs(graph, job.problem->batch, 1, step, Floats::kOwn));
  }
  std::vector<Trained> parts(ranks);
  const auto run = [&](std::size_t rank) {
    const at::Device device = options.devices[rank];
    const auto end = hub.end_of(DeviceId(rank));
    Tap tap(*end, post, {.own = DeviceId(rank), .on_cpu = device.is_cpu(), .sets = job.sets});
    comm::StagedTransport staged(tap);
    comm::RoutedTransport routed(
        staged, *end, comm::one_device_routes(DeviceId(rank), job.sets, options.devices));
    comm::Transport& host = device.is_cpu() ? static_cast<comm::Transport&>(tap) : staged;
    comm::Transport& transport = options.direct && !device.is_cpu() ? routed : host;
    Worker worker(job, DeviceId(rank), transport,
                  {.device = device, .streams = options.streams, .record = options.record});
    for (TensorId id : worker.residents()) worker.set_resident(id, values[id]);
    int launched = 0;
    for (int step = 1; step <= options.steps; ++step) {
      const int to_launch = std::min(step + (options.late ? 1 : 0), options.steps);
      for (; launched < to_launch; ++launched) {
        const bool ahead = options.ahead && launched + 1 < options.steps;
        worker.launch(launched + 1, inputs[launched], 0, ahead ? &inputs[launched + 1] : nullptr);
      }
      StepResult result = worker.finish();
      for (const at::Tensor& value : result.captures) parts[rank].values.push_back(value.clone());
      parts[rank].last = std::move(result);
    }
    for (TensorId id : worker.residents()) {
      parts[rank].values.push_back(worker.resident(id).clone());
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run(rank);
      } catch (const std::exception& error) {
        parts[rank].errors.emplace_back(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Trained all{.last = parts[0].last};
  for (Trained& part : parts) {
    all.values.insert(all.values.end(), part.values.begin(), part.values.end());
    all.errors.insert(all.errors.end(), part.errors.begin(), part.errors.end());
  }
  return all;
}

// Also where it is not a number.
bool same_or_both_missing(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

at::Device on(int index) { return index < 0 ? at::Device(at::kCPU) : comm::fake::device(index); }

std::vector<at::Device> places(const std::vector<int>& indices) {
  std::vector<at::Device> devices;
  for (int index : indices) devices.push_back(on(index));
  return devices;
}

// −1: a CPU. Each rank a device of its own; two on one device, one on a CPU; most on CPUs.
const std::vector<std::vector<int>> kPlacements = {{0, 1, 2}, {3, -1, 3}, {-1, 2, -1}};

// Several on one device, which do not go by the host.
const std::vector<std::vector<int>> kOnOne = {{0, 0, 0}, {1, 1, 0}, {2, -1, 2}};

class Streams : public testing::Test {
 protected:
  void SetUp() override {
    comm::fake::install();
    comm::fake::set_faults({});
    comm::fake::reset_counts();
    comm::fake::checker().reset();
  }
  void TearDown() override { comm::fake::set_faults({}); }
};

void expect_as_on_cpus(const TestJob& test, const std::vector<int>& placement,
                       bool direct = false) {
  SCOPED_TRACE(fmt::format("ranks on {}", fmt::join(placement, ", ")));
  const Trained expected = train_on(test, {.devices = places({-1, -1, -1})});
  comm::fake::checker().reset();
  const Trained found = train_on(test, {.devices = places(placement), .direct = direct});
  ASSERT_THAT(found.errors, IsEmpty());
  EXPECT_GT(comm::fake::checker().acts(), 0u);
  EXPECT_THAT(comm::fake::checker().races(), IsEmpty());
  ASSERT_EQ(found.values.size(), expected.values.size());
  std::size_t differing = 0;
  for (std::size_t i = 0; i < found.values.size(); ++i) {
    differing += same_or_both_missing(found.values[i], expected.values[i]) ? 0 : 1;
  }
  EXPECT_EQ(differing, 0u) << "of " << found.values.size();
}

class Graphs : public Streams, public testing::WithParamInterface<std::string> {};

TEST_P(Graphs, TrainAsOnCpusInAnOrderThatHolds) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph(GetParam()), 3, 8);
  const bool large = problem->graph->op_count() > 3000;
  std::vector<decide::Strategy> strategies = {
      weighted(*problem, {1, 1, 1}, SyncMethod::kAllReduce),
      weighted(*problem, {1, 5, 2}, SyncMethod::kParameterServer)};
  for (int seed = 0; seed < (large ? 1 : support::rounds(8)); ++seed) {
    strategies.push_back(random_mix(*problem, static_cast<std::uint64_t>(seed)));
  }
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    SCOPED_TRACE(fmt::format("plan {}", i));
    const TestJob test = make_test_job(problem, strategies[i]);
    expect_as_on_cpus(test, kPlacements[i % kPlacements.size()]);
    if (!large) expect_as_on_cpus(test, kPlacements[(i + 1) % kPlacements.size()]);
    if (!large) expect_as_on_cpus(test, kOnOne[i % kOnOne.size()], true);
  }
  // The allocator did hand memory on that another stream had used.
  EXPECT_GT(comm::fake::counts().reused_after_other_streams, 0u);
  EXPECT_GT(comm::fake::counts().pinned_reused, 0u);
}

// All but NASNet, of 11,000 operators.
std::vector<std::string> stream_graphs() {
  std::vector<std::string> names;
  for (const auto& [folder, ending] :
       {std::pair("tests/data", ".json.gz"), std::pair("models", "-tiny.json.gz")}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(ending) && name.find("nasnet") == name.npos) {
        names.push_back(std::string(folder) + "/" + name);
      }
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Small, Graphs, testing::ValuesIn(stream_graphs()), test_name);

// ---- that it can fail ----

TestJob broken_job(SyncMethod sync) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph("tests/data/mlp_sgd.json.gz"), 3, 8);
  return make_test_job(problem, weighted(*problem, {1, 5, 2}, sync));
}

std::vector<std::string> races_with(const comm::fake::Faults& faults, SyncMethod sync) {
  const TestJob test = broken_job(sync);
  comm::fake::checker().reset();
  comm::fake::set_faults(faults);
  const Trained trained = train_on(test, {.devices = places({0, 1, 2}), .steps = 3});
  comm::fake::set_faults({});
  EXPECT_THAT(trained.errors, IsEmpty());
  return comm::fake::checker().races();
}

TEST_F(Streams, FindsStreamsThatDoNotWaitForEvents) {
  for (SyncMethod sync : {SyncMethod::kAllReduce, SyncMethod::kParameterServer}) {
    EXPECT_THAT(races_with({}, sync), IsEmpty());
    EXPECT_FALSE(races_with({.streams_ignore_events = true}, sync).empty());
  }
}

// Parts of one device: streams of their own, and nothing that they tell each other goes by the
// host.
TEST_F(Streams, RanksOnOneDeviceMeetThere) {
  for (SyncMethod sync : {SyncMethod::kAllReduce, SyncMethod::kParameterServer}) {
    const TestJob test = broken_job(sync);
    const auto copies_of = [&](bool direct) {
      comm::fake::checker().reset();
      comm::fake::reset_counts();
      const Trained trained =
          train_on(test, {.devices = places({1, 1, 1}), .steps = 3, .direct = direct});
      EXPECT_THAT(trained.errors, IsEmpty());
      EXPECT_THAT(comm::fake::checker().races(), IsEmpty());
      return comm::fake::counts().copies;
    };
    const std::uint64_t direct = copies_of(true), by_host = copies_of(false);
    EXPECT_LT(direct, by_host);
    comm::fake::checker().reset();
    comm::fake::set_faults({.streams_ignore_events = true});
    const Trained trained =
        train_on(test, {.devices = places({1, 1, 1}), .steps = 3, .direct = true});
    comm::fake::set_faults({});
    EXPECT_THAT(trained.errors, IsEmpty());
    EXPECT_FALSE(comm::fake::checker().races().empty());
  }
}

TEST_F(Streams, AWorkerTakesTheStreamsThatItIsGiven) {
  const TestJob test = broken_job(SyncMethod::kAllReduce);
  std::mutex mutex;
  int calm = 0, urgent = 0;
  const c10::impl::VirtualGuardImpl device(on(1).type());
  const Trained trained =
      train_on(test, {.devices = places({-1, 1, -1}), .streams = [&](bool is_urgent) {
                        const std::lock_guard lock(mutex);
                        ++(is_urgent ? urgent : calm);
                        return device.getStreamFromGlobalPool(on(1), is_urgent);
                      }});
  EXPECT_THAT(trained.errors, IsEmpty());
  EXPECT_EQ(calm, 2) << "what is computed, and copies for the next step";
  EXPECT_EQ(urgent, 3);
}

// It takes many tensors of one size, some of which have arrived.
TEST_F(Streams, FindsMemoryThatIsHandedOnTooEarly) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph("tests/data/transformer_tied.json.gz"), 3, 8);
  const TestJob test =
      make_test_job(problem, weighted(*problem, {1, 5, 2}, SyncMethod::kParameterServer));
  const auto races_where = [&](bool ignores) {
    comm::fake::checker().reset();
    comm::fake::set_faults({.memory_ignores_streams = ignores});
    const Trained trained = train_on(test, {.devices = places({0, 1, 2}), .steps = 3});
    comm::fake::set_faults({});
    EXPECT_THAT(trained.errors, IsEmpty());
    return comm::fake::checker().races();
  };
  EXPECT_THAT(races_where(false), IsEmpty());
  EXPECT_FALSE(races_where(true).empty());
}

TEST_F(Streams, FindsMessagesThatAreSentBeforeTheyAreCopied) {
  EXPECT_FALSE(
      races_with({.synchronize_returns_at_once = true}, SyncMethod::kParameterServer).empty());
}

TEST_F(Streams, FindsPinnedMemoryThatIsUsedAgainTooEarly) {
  EXPECT_FALSE(races_with({.events_are_always_done = true}, SyncMethod::kParameterServer).empty());
}

// ---- the checker itself ----

TEST_F(Streams, TwoStreamsAreInOrderOnlyByAnEvent) {
  const c10::impl::VirtualGuardImpl device(comm::fake::device(0).type());
  const c10::Stream first = device.getStreamFromGlobalPool(comm::fake::device(0));
  const c10::Stream second = device.getStreamFromGlobalPool(comm::fake::device(0));
  const auto add_on_both = [&](bool waits) {
    comm::fake::checker().reset();
    at::Tensor value;
    {
      const c10::StreamGuard guard(first);
      value = at::zeros({4}, at::TensorOptions().device(comm::fake::device(0)));
    }
    c10::Event event(comm::fake::device(0).type());
    event.record(first);
    if (waits) event.block(second);
    const c10::StreamGuard guard(second);
    value.add_(1);
    return comm::fake::checker().races();
  };
  EXPECT_THAT(add_on_both(true), IsEmpty());
  const auto races = add_on_both(false);
  ASSERT_FALSE(races.empty());
  EXPECT_THAT(races[0], HasSubstr("neither waits for the other"));
}

TEST_F(Streams, OperatorsOfTheFakeDeviceAreThoseOfTheCpu) {
  const at::Tensor a = at::randn({5, 7}), b = at::randn({7, 3});
  const auto there = [](const at::Tensor& value) { return value.to(comm::fake::device(1)); };
  const at::Tensor product = at::mm(there(a), there(b)).t().slice(0, 1).add(2.5);
  EXPECT_EQ(product.device(), comm::fake::device(1));
  EXPECT_TRUE(product.cpu().equal(at::mm(a, b).t().slice(0, 1).add(2.5)));
  const auto kept = std::get<0>(there(a).flatten().topk(3));
  EXPECT_TRUE(kept.cpu().equal(std::get<0>(a.flatten().topk(3))));
  EXPECT_TRUE(
      at::arange(5, at::TensorOptions().device(comm::fake::device(1))).cpu().equal(at::arange(5)));
}

// ---- times ----

TEST_F(Streams, SpansComeFromEventsAndKeepTheOrderOfQueues) {
  const TestJob test = broken_job(SyncMethod::kParameterServer);
  const Trained trained =
      train_on(test, {.devices = places({0, 1, 2}), .steps = 2, .record = true});
  ASSERT_THAT(trained.errors, IsEmpty());
  const Program& program = test.job.programs[DeviceId(0)];
  ASSERT_EQ(trained.last.spans.size(), program.instructions.size());
  for (const auto& queue : program.queues) {
    Nanoseconds before = 0;
    for (InstructionId id : queue) {
      const Span& span = trained.last.spans[id];
      EXPECT_LE(before, span.begin);
      EXPECT_LE(span.begin, span.end);
      EXPECT_LE(span.end, trained.last.duration);
      before = span.end;
    }
  }
  for (InstructionId id : id_range<InstructionId>(program.instructions.size())) {
    for (InstructionId woken : program.instructions[id].wakes) {
      EXPECT_LE(trained.last.spans[id].end, trained.last.spans[woken].begin);
    }
  }
}

// ---- inputs ----

// A chain of products on one device: one queue, for which nobody else waits.
TestJob chain_job(int length) {
  support::GraphMaker maker;
  const TensorId w = maker.parameter("w", {support::n(4)});
  TensorId x = maker.input("x", {support::kB, support::n(4)});
  for (int i = 0; i < length; ++i) {
    x = maker.op("aten.mul.Tensor", {graph::tensor_value(x), graph::tensor_value(w)},
                 {support::kB, support::n(4)});
  }
  maker.loss(maker.op("aten.sum.default", {graph::tensor_value(x)}, {},
                      {.role = graph::TensorRole::kOutput}));
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(std::move(maker).build(), 1, 8);
  return make_test_job(problem, weighted(*problem, {1}, SyncMethod::kAllReduce));
}

TEST_F(Streams, InputsThatAreCopiedAheadAreTheSame) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph("tests/data/transformer_dropout.json.gz"), 3, 8);
  const TestJob test =
      make_test_job(problem, weighted(*problem, {1, 5, 2}, SyncMethod::kParameterServer));
  const Trained expected = train_on(test, {.devices = places({-1, -1, -1}), .steps = 4});
  EXPECT_EQ(expected.last.copied_ahead, 0);
  for (const std::vector<int>& placement : {std::vector<int>{-1, -1, -1}, {0, 1, 2}, {3, -1, 3}}) {
    SCOPED_TRACE(placement[0]);
    comm::fake::checker().reset();
    const Trained found = train_on(test, {.devices = places(placement), .steps = 4, .ahead = true});
    ASSERT_THAT(found.errors, IsEmpty());
    EXPECT_THAT(comm::fake::checker().races(), IsEmpty());
    EXPECT_GT(found.last.copied_ahead, 0);
    ASSERT_EQ(found.values.size(), expected.values.size());
    for (std::size_t i = 0; i < found.values.size(); ++i) {
      EXPECT_TRUE(same_or_both_missing(found.values[i], expected.values[i]));
    }
  }
}

// What a step leaves behind is read while the next one runs, which writes over what stays.
TEST_F(Streams, StepsThatAreReadLateAreTheSame) {
  for (const char* path :
       {"tests/data/transformer_dropout.json.gz", "models/resnet50-tiny.json.gz"}) {
    const std::shared_ptr<const cost::Problem> problem =
        decide::toy_problem(graph::read_graph(path), 3, 8);
    const TestJob test =
        make_test_job(problem, weighted(*problem, {1, 5, 2}, SyncMethod::kParameterServer));
    const Trained expected = train_on(test, {.devices = places({-1, -1, -1}), .steps = 4});
    for (const std::vector<int>& placement :
         {std::vector<int>{-1, -1, -1}, {0, 1, 2}, {3, -1, 3}}) {
      for (const bool ahead : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, ranks on {}, {}", path, fmt::join(placement, ", "), ahead));
        comm::fake::checker().reset();
        const Trained found = train_on(
            test, {.devices = places(placement), .steps = 4, .ahead = ahead, .late = true});
        ASSERT_THAT(found.errors, IsEmpty());
        EXPECT_THAT(comm::fake::checker().races(), IsEmpty());
        EXPECT_EQ(found.last.copied_ahead > 0, ahead);
        ASSERT_EQ(found.values.size(), expected.values.size());
        std::size_t differing = 0;
        for (std::size_t i = 0; i < found.values.size(); ++i) {
          differing += same_or_both_missing(found.values[i], expected.values[i]) ? 0 : 1;
        }
        EXPECT_EQ(differing, 0u) << "of " << found.values.size();
      }
    }
  }
}

TEST_F(Streams, FindsAStepThatBeginsBeforeTheLastHasEnded) {
  const TestJob test = broken_job(SyncMethod::kParameterServer);
  const auto races_with_faults = [&](const comm::fake::Faults& faults) {
    comm::fake::checker().reset();
    comm::fake::set_faults(faults);
    const Trained trained =
        train_on(test, {.devices = places({0, 1, 2}), .steps = 3, .late = true});
    comm::fake::set_faults({});
    EXPECT_THAT(trained.errors, IsEmpty());
    return comm::fake::checker().races();
  };
  EXPECT_THAT(races_with_faults({}), IsEmpty());
  EXPECT_FALSE(races_with_faults({.streams_ignore_events = true}).empty());
}

// One rank of chain_job, which has one input.
class OneInput : public Streams {
 protected:
  StepResult step(const at::Tensor& value, const at::Tensor* next = nullptr) {
    const StepInputs inputs = {{input_, value}};
    const StepInputs then = {{input_, next != nullptr ? *next : value}};
    return team_->step(++steps_, inputs, 0, next != nullptr ? &then : nullptr)[DeviceId(0)];
  }
  double loss(const StepResult& result) { return result.captures.at(0).item<double>(); }
  // A team whose streams are known.
  std::vector<c10::Stream> take_known_streams() {
    std::vector<c10::Stream> streams;
    const c10::impl::VirtualGuardImpl device(on(1).type());
    WorkerOptions options{.device = on(1)};
    options.streams = [&](bool urgent) {
      streams.push_back(device.getStreamFromGlobalPool(on(1), urgent));
      return streams.back();
    };
    team_ = std::make_unique<Team>(
        test_.job, IdVector<DeviceId, WorkerOptions>(std::vector<WorkerOptions>{options}));
    team_->set_resident(team_->worker(DeviceId(0)).residents().at(0), at::ones({4}));
    return streams;
  }

  void SetUp() override {
    Streams::SetUp();
    for (const auto& [id, value] : random_inputs(graph_, 8, 1, 1, Floats::kOwn)) input_ = id;
    team_ = std::make_unique<Team>(
        test_.job, IdVector<DeviceId, WorkerOptions>(
                       std::vector<WorkerOptions>{{.device = comm::fake::device(1)}}));
    team_->set_resident(team_->worker(DeviceId(0)).residents().at(0), at::ones({4}));
  }

  const TestJob test_ = chain_job(3);
  const graph::ModelGraph& graph_ = *test_.job.problem->graph;
  std::unique_ptr<Team> team_;
  TensorId input_;
  std::int64_t steps_ = 0;
};

TEST_F(OneInput, WhatWasCopiedAheadServesItsOwnTensorAlone) {
  const at::Tensor ones = at::ones({8, 4}), twos = at::full({8, 4}, 2.0);
  EXPECT_EQ(loss(step(ones, &twos)), 32);
  const StepResult other = step(ones, &twos);  // not what had been said
  EXPECT_EQ(loss(other), 32);
  EXPECT_EQ(other.copied_ahead, 0);
  const StepResult said = step(twos);
  EXPECT_EQ(loss(said), 64);
  EXPECT_EQ(said.copied_ahead, 1);
  EXPECT_EQ(step(twos).copied_ahead, 0);  // serves one step
  EXPECT_THAT(comm::fake::checker().races(), IsEmpty());
}

TEST_F(OneInput, ATensorOnTheDeviceIsTakenAsItIs) {
  const at::Tensor host = at::full({8, 4}, 3.0);
  const at::Tensor there = host.to(comm::fake::device(1)).add(0);  // the host waits for no sum
  const auto copies_with = [&](const at::Tensor& value) {
    comm::fake::reset_counts();
    EXPECT_EQ(loss(step(value)), 96);
    return comm::fake::counts().copies;
  };
  EXPECT_EQ(copies_with(host), 2u);  // the input, and the loss
  EXPECT_EQ(copies_with(there), 1u);
  EXPECT_TRUE(there.cpu().equal(host));
  EXPECT_THAT(comm::fake::checker().races(), IsEmpty());
}

// Ranks on the CPU and on another device take it too.
TEST_F(OneInput, ATensorOnAnotherDeviceIsCopied) {
  const at::Tensor there = at::full({8, 4}, 3.0).to(comm::fake::device(2)).add(0);
  EXPECT_EQ(loss(step(there, &there)), 96);
  team_ = std::make_unique<Team>(test_.job,
                                 IdVector<DeviceId, WorkerOptions>(std::vector<WorkerOptions>{{}}));
  team_->set_resident(team_->worker(DeviceId(0)).residents().at(0), at::ones({4}));
  EXPECT_EQ(loss(step(there, &there)), 96);
  const StepResult ahead = step(there);
  EXPECT_EQ(ahead.copied_ahead, 1);
  EXPECT_EQ(loss(ahead), 96);
  EXPECT_THAT(comm::fake::checker().races(), IsEmpty());
}

// ---- a step on the way ----

// A device that does not come to an end, as long as a test wants; by itself after a while, so that
// who waits for it goes on and the test fails.
class BusyDevice {
 public:
  explicit BusyDevice(const std::vector<c10::Stream>& streams) {
    for (const c10::Stream& stream : streams) {
      kernels_.push_back(comm::fake::launch_kernel(stream.native_handle()));
    }
    guard_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, std::chrono::seconds(20), [&] { return ended_; })) return;
      came_too_late_ = true;
      end_kernels();
    });
  }
  ~BusyDevice() { end(); }
  // Whether it was still at work.
  bool end() {
    if (!guard_.joinable()) return !came_too_late_;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      if (!came_too_late_) end_kernels();
    }
    changed_.notify_all();
    guard_.join();
    return !came_too_late_;
  }

 private:
  void end_kernels() {
    for (const auto& kernel : kernels_) kernel->end();
  }
  std::vector<std::shared_ptr<comm::fake::Kernel>> kernels_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false, came_too_late_ = false;
  std::thread guard_;
};

TEST_F(OneInput, TheNextStepIsLaunchedWhileTheDeviceIsBusy) {
  const std::vector<c10::Stream> streams = take_known_streams();
  const auto inputs = [&](double value) { return StepInputs{{input_, at::full({8, 4}, value)}}; };
  comm::fake::reset_counts();
  {
    BusyDevice busy(streams);
    team_->launch(1, inputs(1));
    team_->launch(2, inputs(2));
    EXPECT_TRUE(busy.end()) << "the host has waited";
    EXPECT_EQ(comm::fake::counts().waits + comm::fake::counts().syncs, 0u);
  }
  EXPECT_EQ(loss(team_->finish()[DeviceId(0)]), 32);
  // The first one's loss is there while the second step runs.
  BusyDevice busy(streams);
  team_->launch(3, inputs(3));
  EXPECT_EQ(loss(team_->finish()[DeviceId(0)]), 64);
  EXPECT_TRUE(busy.end()) << "the second loss has waited for the third step";
  EXPECT_EQ(loss(team_->finish()[DeviceId(0)]), 96);
  // Nobody waits for more than the end of a step: three in all.
  EXPECT_EQ(comm::fake::counts().waits, 3u);
  EXPECT_EQ(comm::fake::counts().syncs, 0u);
  // One that nobody asks for.
  team_->launch(4, inputs(4));
  team_.reset();
  EXPECT_THAT(comm::fake::checker().races(), IsEmpty());
}

// The host may take long to lay out and pin a batch. The step's end must be marked meanwhile, or it
// counts that too: all events of a step are recorded while the copy waits for them.
TEST_F(OneInput, AStepEndsWhileTheNextInputsAreCopied) {
  const at::Tensor ones = at::ones({8, 4}), twos = at::full({8, 4}, 2.0);
  const auto events = [] { return comm::fake::counts().events; };
  step(ones, &twos);
  const std::uint64_t before = events();
  EXPECT_EQ(step(twos).copied_ahead, 1);
  const std::uint64_t of_a_step = events() - before;
  step(ones, &twos);
  const std::uint64_t start = events();
  std::atomic<int> copied = 0, alone = 0;
  comm::fake::before_pinned_memory([&](std::size_t bytes) {
    if (bytes != ones.nbytes()) return;
    ++copied;
    for (int i = 0; events() < start + of_a_step; ++i) {
      if (i == 5'000) {
        ++alone;
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_EQ(loss(step(twos, &ones)), 64);
  comm::fake::before_pinned_memory({});
  EXPECT_EQ(copied, 1);
  EXPECT_EQ(alone, 0) << "the end of the step has waited";
  EXPECT_EQ(step(ones).copied_ahead, 1);
  EXPECT_THAT(comm::fake::checker().races(), IsEmpty());
}

TEST_F(OneInput, AStepIsReadOnceItHasEnded) {
  const std::vector<c10::Stream> streams = take_known_streams();
  BusyDevice busy(streams);
  team_->launch(1, {{input_, at::ones({8, 4})}});
  std::atomic<bool> ended = false, read = false, read_too_early = false;
  std::thread reader([&] {
    EXPECT_EQ(loss(team_->finish()[DeviceId(0)]), 32);
    read_too_early = !ended;
    read = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ended = true;
  EXPECT_TRUE(busy.end());
  reader.join();
  EXPECT_TRUE(read);
  EXPECT_FALSE(read_too_early);
}

// ---- how far a thread goes ahead ----

TEST_F(Streams, EventsAreRecordedWhereSomebodyWaits) {
  for (const int length : {40, 3000}) {
    SCOPED_TRACE(length);
    const TestJob test = chain_job(length);
    const Program& program = test.job.programs[DeviceId(0)];
    std::uint64_t steps = 0;
    for (const Instruction& instruction : program.instructions) steps += instruction.body.size();
    comm::fake::reset_counts();
    const Trained trained = train_on(test, {.devices = places({0}), .steps = 1});
    ASSERT_THAT(trained.errors, IsEmpty());
    const comm::fake::Counts counts = comm::fake::counts();
    // Some of the step's own, and one for every 64 steps of bodies, of which the thread waits for
    // all but the last four.
    EXPECT_LE(counts.events, 8 + steps / 64);
    EXPECT_LE(counts.events, program.instructions.size() / 4);
    EXPECT_GE(counts.waits + 8, steps / 64);
  }
}

// What a process opens on a device that none of its ranks has takes memory from whoever has it.
TEST_F(Streams, RanksOpenNoDeviceButTheirOwn) {
  const TestJob test = broken_job(SyncMethod::kParameterServer);
  const auto residents = random_residents(*test.job.problem->graph, 1, Floats::kOwn);
  const StepInputs inputs = random_inputs(*test.job.problem->graph, 8, 1, 1, Floats::kOwn);
  comm::fake::reset_counts();
  // Threads begin on device 0.
  std::thread([&] {
    IdVector<DeviceId, WorkerOptions> options;
    for (int rank = 0; rank < 3; ++rank) {
      options.push_back({.device = comm::fake::device(2 + rank % 2), .count_memory = true});
    }
    Team team(test.job, options);
    for (int rank = 0; rank < 3; ++rank) {
      for (TensorId id : team.worker(DeviceId(rank)).residents()) {
        team.set_resident(id, residents[id]);
      }
    }
    for (int step = 1; step <= 2; ++step) team.step(step, inputs);
    team.worker(DeviceId(0)).resident(team.worker(DeviceId(0)).residents().front());
  }).join();
  EXPECT_EQ(comm::fake::counts().contexts, 0b1100u);
}

// What libraries keep by thread is not made anew in every step.
TEST_F(Streams, ARankOfATeamKeepsItsThread) {
  const TestJob test = broken_job(SyncMethod::kAllReduce);
  const auto residents = random_residents(*test.job.problem->graph, 1, Floats::kOwn);
  std::vector<std::set<std::thread::id>> threads(3);
  IdVector<DeviceId, WorkerOptions> options;
  for (std::set<std::thread::id>& seen : threads) {
    options.push_back({.before_each = [&seen](const Instruction& instruction) {
      if (instruction.queue == Queue::kCompute) seen.insert(std::this_thread::get_id());
    }});
  }
  Team team(test.job, options);
  for (TensorId id : team.worker(DeviceId(0)).residents()) team.set_resident(id, residents[id]);
  for (int step = 1; step <= 30; ++step) {
    team.step(step, random_inputs(*test.job.problem->graph, 8, 1, step, Floats::kOwn));
  }
  for (const std::set<std::thread::id>& seen : threads) EXPECT_EQ(seen.size(), 1u);
}

TEST_F(Streams, MemoryIsCountedFromTheFirstAllocationOn) {
  const at::Device device = comm::fake::device(1);
  comm::fake::forget_allocator();
  begin_most(device);
  EXPECT_EQ(tensor_memory(device).most, 0);
  at::Tensor held = at::empty({1000}, at::TensorOptions().device(device));
  const TensorMemory with_one = tensor_memory(device);
  begin_most(device);
  {
    const at::Tensor two = at::empty({2, 1000}, at::TensorOptions().device(device));
    EXPECT_EQ(tensor_memory(device).now, with_one.now + 8000);
  }
  held.reset();
  begin_most(device);
  EXPECT_EQ(tensor_memory(device).now, with_one.now - 4032);
  EXPECT_EQ(tensor_memory(device).most, tensor_memory(device).now);
  EXPECT_GE(tensor_memory(device).reserved, tensor_memory(device).now + 4032 + 8000);
}

TEST_F(Streams, AWorkerSaysWhatItsAllocatorReserves) {
  const TestJob test = chain_job(40);
  const auto residents = random_residents(*test.job.problem->graph, 1, Floats::kOwn);
  Team team(test.job, IdVector<DeviceId, WorkerOptions>(std::vector<WorkerOptions>{
                          {.device = comm::fake::device(1), .count_memory = true}}));
  for (TensorId id : team.worker(DeviceId(0)).residents()) team.set_resident(id, residents[id]);
  const StepInputs inputs = random_inputs(*test.job.problem->graph, 8, 1, 1, Floats::kOwn);
  const RankMemory memory = team.step(1, inputs)[DeviceId(0)].memory;
  EXPECT_GT(memory.most, 0);
  EXPECT_GE(memory.reserved, memory.most);
}

// The same through the runtime's own team, as `verify` runs it.
TEST_F(Streams, ATeamOnDevicesTrainsAsOneDevice) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph("tests/data/transformer_dropout.json.gz"), 3, 8);
  const TestJob test = make_test_job(problem, random_mix(*problem, 5));
  VerifyOptions options{.steps = 2};
  options.devices = places({0, -1, 1});
  const Verification verification = verify(test.job, test.plan, options);
  EXPECT_GT(verification.compared, 2);
  EXPECT_LE(verification.worst_relative(), 1e-10);
}

// Two parts of one device beside a CPU: each part on streams of its own.
TEST_F(Streams, VerificationRunsPartsOnTheirStreams) {
  const std::shared_ptr<const cost::Problem> problem =
      decide::toy_problem(graph::read_graph("tests/data/transformer_dropout.json.gz"), 3, 8);
  const TestJob test = make_test_job(problem, random_mix(*problem, 5));
  std::array<std::atomic<int>, 3> taken{};
  const c10::impl::VirtualGuardImpl device(on(1).type());
  VerifyOptions options{.steps = 1};
  options.devices = places({1, -1, 1});
  for (const std::size_t rank : {0, 1, 2}) {
    options.streams.emplace_back([&, rank](bool urgent) {
      ++taken[rank];
      return device.getStreamFromGlobalPool(on(1), urgent);
    });
  }
  options.streams[1] = nullptr;
  EXPECT_LE(verify(test.job, test.plan, options).worst_relative(), 1e-10);
  EXPECT_GT(taken[0], 0);
  EXPECT_EQ(taken[1], 0);
  EXPECT_EQ(taken[2], taken[0]);
}

}  // namespace
}  // namespace heterog::runtime
