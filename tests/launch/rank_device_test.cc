// Which GPU is whose.
#include "launch/rank_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/builders.h"

namespace heterog::launch {
namespace {

using testing::ElementsAre;

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

const std::vector<Gpu> kTwo = {{"T4", 15'000, "first", 40},
                               {"V100-PCIE-16GB", 16'000, "second", 80}};

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

// Whatever their processor is called. Of two machines of two GPUs, those of the second come after
// those of the first, and the hosts last.
TEST(RankDevice, HostsThatServeAreProcessors) {
  cluster::ClusterBuilder builder("served");
  for (const char* name : {"a", "b"}) {
    builder.add_machine(
        cluster::with_server(cluster::test_machine(name, 2, cluster::test_type("T4")), "Xeon"));
  }
  const cluster::Cluster cluster = std::move(builder).build("served");
  const std::vector<std::string> types = device_types(cluster);
  EXPECT_THAT(types, ElementsAre("T4", "T4", "T4", "T4", "CPU", "CPU"));
  for (int started = 0; started < 6; ++started) {
    const RankPlace own = in_job(cluster, place(started, started % 3, 6));
    const RankDevice device = rank_device(types, own, kTwo);
    if (started % 3 == 2) {
      EXPECT_TRUE(device.device.is_cpu());
      EXPECT_EQ(device.facts.type, "CPU");
    } else {
      EXPECT_EQ(device.device.index(), started % 3);
    }
  }
}

// Hosts take turns where all are GPUs; a rank that sees one GPU alone takes it.
TEST(RankDevice, IsByThePlaceOnTheHostWhereAllAreGpus) {
  const std::vector<std::string> types(4, "T4");
  EXPECT_EQ(rank_device(types, place(2, 1, 4), kTwo).device.index(), 1);
  EXPECT_EQ(rank_device(types, place(3, 1, 4), {kTwo[0]}).device.index(), 0);
}

// Ranks of equal `gpu` do not talk by NCCL; the memory is shared all the same.
TEST(RankDevice, HasAGpuOfItsOwnByNameWhereNcclIsTriedOnOne) {
  const std::vector<std::string> types(2, "T4");
  RankPlace own = place(1, 1, 2);
  EXPECT_EQ(rank_device(types, own, {kTwo[0]}).facts.gpu, "first");
  own.nccl_on_one_gpu = true;
  EXPECT_EQ(rank_device(types, own, {kTwo[0]}).facts.gpu, "first/1");
  EXPECT_EQ(rank_device(types, own, {kTwo[0]}).facts.shares, "first");
}

TEST(RankDevice, IsACpuThatSaysWhyWhereThereIsNoGpu) {
  const RankDevice own = rank_device({"T4", "T4"}, place(1, 1, 2), {});
  EXPECT_TRUE(own.device.is_cpu());
  EXPECT_EQ(own.facts.type, "CPU");
  EXPECT_EQ(own.facts.note, no_gpu_reason());
  EXPECT_EQ(rank_device({"T4", "CPU"}, place(1, 1, 2), {}).facts.note, "");
}

// −1: a CPU.
std::vector<int> indices(const std::vector<std::string>& types, const std::vector<Gpu>& gpus) {
  std::vector<int> found;
  for (const ThreadDevice& one : thread_devices(types, gpus)) {
    found.push_back(one.device.is_cpu() ? -1 : static_cast<int>(one.device.index()));
  }
  return found;
}

TEST(RankDevice, ThreadsTakeTurns) {
  EXPECT_THAT(indices({"T4", "CPU", "T4", "P4"}, kTwo), ElementsAre(0, -1, 1, 0));
  EXPECT_THAT(indices({"T4"}, {}), ElementsAre(-1));
}

// Parts of one GPU, one after another while its multiprocessors last.
TEST(RankDevice, PartsShareAGpuWhileItLasts) {
  const std::vector<Gpu> two = {{"A", 1, "first", 40}, {"A", 1, "second", 40}};
  EXPECT_THAT(indices({"A:32", "A:8", "A:8", "CPU", "A:16"}, two), ElementsAre(0, 0, 1, -1, 1));
  EXPECT_THAT(indices({"A:8", "A", "A:8"}, two), ElementsAre(0, 1, 0)) << "round again";
  const auto on_cpus = thread_devices({"A:32", "A:8"}, {});
  EXPECT_TRUE(on_cpus[1].device.is_cpu());
  EXPECT_EQ(on_cpus[1].multiprocessors, 8);
  EXPECT_EQ(operator_threads(0, 2, "A:8"), 8);
  EXPECT_EQ(operator_threads(3, 2, "A:8"), 3);
}

// A process has its own context, of which nobody else has a part.
TEST(RankDevice, APartIsNoProcess) {
  try {
    rank_device({"T4:8", "T4:32"}, place(1, 1, 2), kTwo);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "rank 1 is a part of a GPU (T4:32); ranks on parts are threads of one process: "
                 "give --in-threads");
  }
  EXPECT_TRUE(rank_device({"T4:8", "T4:32"}, place(1, 1, 2), {}).device.is_cpu());
}

}  // namespace
}  // namespace heterog::launch
