// By what the tensors of a rank travel.
#include "comm/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/fake_device.h"
#include "comm/threads.h"

namespace heterog::comm {
namespace {

using testing::ElementsAre;

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

// Threads of one process: ranks 0 and 2 share a device, 1 has the next one, 3 and 4 the CPU.
TEST(Routes, OfThreadsAreDirectOnOneDevice) {
  const at::Device first = fake::device(0), second = fake::device(1), cpu = at::kCPU;
  const std::vector<at::Device> on = {first, second, first, cpu, cpu};
  const DeviceSets sets = {devices({0, 2}), devices({0, 1, 2}), devices({2, 3}), devices({3, 4})};
  const Routes shares = one_device_routes(DeviceId(0), sets, on);
  EXPECT_THAT(shares.sets, ElementsAre(true, false, false, false));
  EXPECT_THAT(shares.peers, ElementsAre(false, false, true, false, false));
  const Routes alone = one_device_routes(DeviceId(1), sets, on);
  EXPECT_THAT(alone.sets, ElementsAre(false, false, false, false));
  EXPECT_THAT(alone.peers, ElementsAre(false, false, false, false, false));
  // Memory of the host needs no route of its own.
  const Routes host = one_device_routes(DeviceId(3), sets, on);
  EXPECT_THAT(host.sets, ElementsAre(false, false, false, false));
  EXPECT_THAT(host.peers, ElementsAre(false, false, false, false, false));
  for (std::size_t a = 0; a < on.size(); ++a) {
    for (std::size_t b = 0; b < on.size(); ++b) {
      EXPECT_EQ(one_device_routes(DeviceId(a), sets, on).peers[b],
                one_device_routes(DeviceId(b), sets, on).peers[a]);
    }
  }
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
}  // namespace heterog::comm
