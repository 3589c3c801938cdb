// Which device of its host a rank takes, and by what its tensors travel.
#include "runtime/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/fake_device.h"
#include "runtime/jobs.h"
#include "runtime/rank_device.h"
#include "runtime/ranks.h"

namespace heterog::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Gpus, DriversNameThemOtherwise) {
  EXPECT_EQ(gpu_type("Tesla V100-PCIE-16GB"), "V100-PCIE-16GB");
  EXPECT_EQ(gpu_type("NVIDIA A100-SXM4-40GB"), "A100-SXM4-40GB");
  EXPECT_EQ(gpu_type("NVIDIA GeForce GTX 1080 Ti"), "GTX-1080-Ti");
  EXPECT_EQ(gpu_type("GeForce GTX TITAN X"), "TITAN-X-Maxwell");
  EXPECT_EQ(gpu_type("NVIDIA H100 80GB HBM3"), "H100-SXM5-80GB");
  EXPECT_EQ(gpu_type("NVIDIA H200"), "H200-SXM5-141GB");
  EXPECT_EQ(gpu_type("Tesla T4"), "T4");
  EXPECT_EQ(gpu_type("Some Other 5"), "Some-Other-5");
  EXPECT_TRUE(is_cpu_type("CPU-slow"));
  EXPECT_FALSE(is_cpu_type("P4"));
}

const std::vector<Gpu> kTwo = {{"T4", 15'000, "first"}, {"V100-PCIE-16GB", 16'000, "second"}};

RankPlace place(int rank, int local, int ranks) {
  return {.rank = rank, .local_rank = local, .world_size = ranks, .starter = "torchrun"};
}

// Two hosts: a processor and two GPUs each.
TEST(RankDevice, IsTheNextGpuOfItsHost) {
  const std::vector<std::string> types = {"T4", "CPU", "V100", "CPU", "T4", "V100"};
  const auto index = [&](int rank) {
    const RankDevice own = rank_device(types, place(rank, rank % 3, 6), kTwo);
    return own.device.is_cpu() ? -1 : static_cast<int>(own.device.index());
  };
  EXPECT_EQ(index(0), 0);
  EXPECT_EQ(index(1), -1);
  EXPECT_EQ(index(2), 1);
  EXPECT_EQ(index(3), -1);
  EXPECT_EQ(index(4), 0);
  EXPECT_EQ(index(5), 1);
  const RankDevice last = rank_device(types, place(5, 2, 6), kTwo);
  EXPECT_EQ(last.facts.type, "V100-PCIE-16GB");
  EXPECT_EQ(last.facts.memory_bytes, 16'000);
  EXPECT_EQ(last.facts.gpu, "second");
  EXPECT_EQ(last.facts.shares, "second");
  EXPECT_EQ(rank_device(types, place(1, 1, 6), kTwo).facts.gpu, "");
}

// Hosts take turns where all are GPUs; a rank that sees one GPU alone takes it.
TEST(RankDevice, IsByThePlaceOnTheHostWhereAllAreGpus) {
  const std::vector<std::string> types(4, "T4");
  EXPECT_EQ(rank_device(types, place(2, 1, 4), kTwo).device.index(), 1);
  EXPECT_EQ(rank_device(types, place(3, 1, 4), {kTwo[0]}).device.index(), 0);
}

TEST(RankDevice, IsACpuThatSaysWhyWhereThereIsNoGpu) {
  const RankDevice own = rank_device({"T4", "T4"}, place(1, 1, 2), {});
  EXPECT_TRUE(own.device.is_cpu());
  EXPECT_EQ(own.facts.type, "CPU");
  EXPECT_EQ(own.facts.note, no_gpu_reason());
  EXPECT_EQ(rank_device({"T4", "CPU"}, place(1, 1, 2), {}).facts.note, "");
}

TEST(RankDevice, ThreadsTakeTurns) {
  const auto devices = thread_devices({"T4", "CPU", "T4", "P4"}, kTwo);
  const auto cuda = [](int index) {
    return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
  };
  EXPECT_THAT(devices, ElementsAre(cuda(0), c10::Device(c10::kCPU), cuda(1), cuda(0)));
  EXPECT_THAT(thread_devices({"T4"}, {}), ElementsAre(c10::Device(c10::kCPU)));
}

// Ranks 0 and 1 have a GPU each, 2 a CPU, 3 shares rank 0's.
const RankGpus kGpus = {"a", "b", "", "a"};

TEST(Routes, AreDirectBetweenGpusOfTheirOwn) {
  EXPECT_TRUE(talk_directly(devices({0, 1}), kGpus));
  EXPECT_TRUE(talk_directly(devices({1, 3}), kGpus));
  EXPECT_FALSE(talk_directly(devices({0, 3}), kGpus));
  EXPECT_FALSE(talk_directly(devices({0, 1, 3}), kGpus));
  EXPECT_FALSE(talk_directly(devices({0, 2}), kGpus));
  const Routes routes = direct_routes(DeviceId(0), {devices({0, 1}), devices({0, 1, 2})}, kGpus);
  EXPECT_THAT(routes.sets, ElementsAre(true, false));
  EXPECT_THAT(routes.peers, ElementsAre(false, true, false, false));
  const Routes none = direct_routes(DeviceId(2), {devices({0, 1, 2})}, kGpus);
  EXPECT_THAT(none.peers, ElementsAre(false, false, false, false));
}

// Both ends of a pair, and all members of a set, choose alike.
TEST(Routes, AreTheSameSeenFromAllSides) {
  for (std::size_t a = 0; a < kGpus.size(); ++a) {
    for (std::size_t b = 0; b < kGpus.size(); ++b) {
      if (a == b) continue;
      EXPECT_EQ(direct_routes(DeviceId(a), {}, kGpus).peers[b],
                direct_routes(DeviceId(b), {}, kGpus).peers[a]);
    }
  }
}

TEST(Routes, KnowWhoSendsToWhom) {
  const std::shared_ptr<const cost::Problem> problem =
      compiler::model_problem("lenet5-tiny", 3, 12);
  const auto reduced = weighted(*problem, {1, 1, 1}, compiler::SyncMethod::kAllReduce);
  EXPECT_TRUE(sending_pairs(make_test_job(problem, reduced).job).empty());
  const TestJob test = make_test_job(problem, random_mix(*problem, 1));
  const auto pairs = sending_pairs(test.job);
  EXPECT_FALSE(pairs.empty());
  EXPECT_TRUE(std::is_sorted(pairs.begin(), pairs.end()));
  for (const Program& program : test.job.programs) {
    for (const Instruction& instruction : program.instructions) {
      if (instruction.queue != Queue::kSend) continue;
      EXPECT_TRUE(std::binary_search(pairs.begin(), pairs.end(),
                                     std::pair(program.device, instruction.peer)));
    }
  }
}

// Notes the calls that it gets.
class Noting final : public Transport {
 public:
  void send(const at::Tensor&, DeviceId, std::uint32_t) override { calls.emplace_back("send"); }
  void receive(at::Tensor&, DeviceId, std::uint32_t) override { calls.emplace_back("receive"); }
  void all_reduce(at::Tensor&, std::size_t) override { calls.emplace_back("reduce"); }
  void reduce_scatter(at::Tensor&, const Cuts&, std::size_t) override {
    calls.emplace_back("scatter");
  }
  void all_gather_rows(at::Tensor&, const Cuts&, std::size_t) override {
    calls.emplace_back("gather rows");
  }
  std::vector<at::Tensor> all_gather(const at::Tensor&, std::size_t) override {
    calls.emplace_back("gather");
    return {};
  }
  std::vector<at::Tensor> gather_all(const at::Tensor&) override {
    calls.emplace_back("gather all");
    return {};
  }
  void check() override { calls.emplace_back("check"); }
  void abort(const std::string&) override { calls.emplace_back("abort"); }

  std::vector<std::string> calls;
};

TEST(Routes, TakeEachCallToItsTransport) {
  fake::install();
  Noting host, direct;
  RoutedTransport transport(
      host, direct, direct_routes(DeviceId(0), {devices({0, 1}), devices({0, 1, 2})}, kGpus));
  at::Tensor there = at::ones({3}).to(fake::device(0));
  at::Tensor here = at::ones({3});
  const auto calls = [&] {
    std::vector<std::string> all;
    for (const std::string& call : direct.calls) all.push_back("direct " + call);
    for (const std::string& call : host.calls) all.push_back("host " + call);
    direct.calls.clear();
    host.calls.clear();
    return all;
  };
  transport.send(there, DeviceId(1), 0);
  transport.receive(there, DeviceId(1), 0);
  transport.all_reduce(there, 0);
  transport.all_gather(there, 0);
  EXPECT_THAT(calls(),
              ElementsAre("direct send", "direct receive", "direct reduce", "direct gather"));
  transport.send(there, DeviceId(2), 0);     // a CPU
  transport.receive(there, DeviceId(3), 0);  // on the same GPU
  transport.all_reduce(there, 1);
  transport.all_gather(there, 1);
  EXPECT_THAT(calls(), ElementsAre("host send", "host receive", "host reduce", "host gather"));
  transport.send(here, DeviceId(1), 0);  // a checkpoint
  transport.gather_all(here);
  at::Tensor shorts = at::ones({3}, at::kShort).to(fake::device(0));
  transport.all_reduce(shorts, 0);
  EXPECT_THAT(calls(), ElementsAre("host send", "host gather all", "host reduce"));
  transport.check();
  transport.abort("why");
  EXPECT_THAT(calls(), ElementsAre("direct check", "direct abort", "host check", "host abort"));
}

}  // namespace
}  // namespace heterog::runtime
