// What a rank asks of the CUDA runtime on a machine with two GPUs, one, a broken one or none.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "launch/gpus.h"
#include "launch/rank_device.h"

namespace {

struct Machine {
  cudaError_t error = cudaSuccess;  // of the count
  int gpus = 2;
  int broken = -1;  // this GPU cannot be gone to
  std::vector<int> gone_to;
  bool queues_were_set = false;  // before anything was asked
};
Machine g_machine;

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  const char* queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  g_machine.queues_were_set = queues != nullptr && std::string(queues) == "32";
  *count = g_machine.gpus;
  return g_machine.error;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::strcpy(properties->name, device == 0 ? "Tesla T4" : "NVIDIA H100 80GB HBM3");
  properties->totalGlobalMem = device == 0 ? 15'000 : 81'000;
  for (char& byte : properties->uuid.bytes) byte = static_cast<char>(0xa0 + device);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  g_machine.gone_to.push_back(device);
  return device == g_machine.broken ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = g_machine.gone_to.back() == 0 ? 15'000 : 81'000;
  *free = *total - 1'000;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory"
                                            : "CUDA driver version is insufficient";
}

namespace heterog::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RankDevice device_of(int rank) {
  JobTerms terms;
  terms.ranks = {{.device = "a/gpu0", .type = "T4"},
                 {.device = "a/gpu1", .type = "H100-SXM5-80GB"},
                 {.device = "a/cpu0", .type = "CPU"}};
  return rank_device(terms,
                     {.rank = rank, .local_rank = rank, .world_size = 3, .starter = "torchrun"});
}

// A GPU is told apart by its own id, and only to count them opens none.
TEST(CudaGpus, AreThoseThatTheDriverNames) {
  g_machine.gone_to.clear();
  const std::vector<Gpu> gpus = visible_gpus();
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].type, "T4");
  EXPECT_EQ(gpus[1].type, "H100-SXM5-80GB");
  EXPECT_EQ(gpus[1].memory_bytes, 81'000);
  EXPECT_EQ(gpus[0].id, "a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0");
  EXPECT_NE(gpus[0].id, gpus[1].id);
  EXPECT_TRUE(g_machine.queues_were_set);
  EXPECT_THAT(g_machine.gone_to, IsEmpty());
}

TEST(CudaGpus, ARankGoesToItsOwnGpuAlone) {
  g_machine.gone_to.clear();
  const RankDevice second = device_of(1);
  EXPECT_EQ(second.device, c10::Device(c10::kCUDA, 1));
  EXPECT_EQ(second.facts.type, "H100-SXM5-80GB");
  EXPECT_EQ(second.facts.memory_bytes, 80'000);  // what is free
  EXPECT_THAT(g_machine.gone_to, ElementsAre(1));
  EXPECT_TRUE(device_of(2).device.is_cpu());
  EXPECT_THAT(g_machine.gone_to, ElementsAre(1));
}

TEST(CudaGpus, OneThatCannotBeUsedIsNamed) {
  g_machine.broken = 0;
  try {
    device_of(0);
    ADD_FAILURE() << "used it";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "GPU 0: cannot be used (out of memory)");
  }
  g_machine.broken = -1;
}

// Counted once a process: each in one of its own.
TEST(CudaGpusDeathTest, WithoutADriverTheReasonIsSaid) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto say = [](cudaError_t error) {
    g_machine.error = error;
    std::fprintf(stderr, "%zu %s %s\n", visible_gpus().size(), no_gpu_reason().c_str(),
                 device_of(0).facts.note.c_str());
    std::exit(0);
  };
  EXPECT_EXIT(say(cudaErrorNoDevice), testing::ExitedWithCode(0),
              "0 there is no GPU here there is no GPU here");
  EXPECT_EXIT(say(cudaErrorInsufficientDriver), testing::ExitedWithCode(0),
              "0 no GPU can be used here .CUDA driver version is insufficient. no GPU can be");
}

}  // namespace
}  // namespace heterog::launch
