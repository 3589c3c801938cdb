// What a rank asks of the CUDA runtime on a machine with two GPUs, one, a broken one or none.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "cluster/builders.h"
#include "cluster/gpu_part.h"
#include "launch/gpus.h"
#include "launch/rank_device.h"

namespace {

struct Machine {
  cudaError_t error = cudaSuccess;  // of the count
  int gpus = 2;
  int broken = -1;  // this GPU cannot be gone to
  std::vector<int> gone_to;
  bool queues_were_set = false;  // before anything was asked
  bool has_green_contexts = true;
  std::string failing;  // this function of the driver fails
};
Machine g_machine;

// What the driver's handles stand for: multiprocessors by number, and whose stream one is.
std::map<const void*, std::vector<unsigned>> g_described;
std::map<const void*, std::vector<unsigned>> g_contexts;
struct MadeStream {
  std::vector<unsigned> multiprocessors;
  int priority = 0;
};
std::map<const void*, MadeStream> g_streams;

template <class Handle>
Handle* new_handle() {
  static std::uintptr_t next = 0x1000;
  return reinterpret_cast<Handle*>(next += 0x10);
}
CUresult result_of(const char* name) {
  return g_machine.failing == name ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// A group of this split begins at this multiprocessor. As documented: an output of a split cannot
// be split again.
constexpr unsigned kFirst = 1000;

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
  properties->multiProcessorCount = device == 0 ? 40 : 132;
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

CUresult cuDeviceGet(CUdevice* device, int index) {
  *device = index;
  return result_of("cuDeviceGet");
}
CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType) {
  *resource = {};
  resource->sm.smCount = device == 0 ? 40 : 132;
  resource->sm.minSmPartitionSize = device == 0 ? 2 : 8;
  return result_of("cuDeviceGetDevResource");
}
CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned* groups,
                                     const CUdevResource* input, CUdevResource*, unsigned,
                                     unsigned least) {
  if (input->sm.smCount >= kFirst) return CUDA_ERROR_INVALID_VALUE;
  const unsigned made = input->sm.smCount / least;
  *groups = result == nullptr ? made : std::min(*groups, made);
  for (unsigned i = 0; result != nullptr && i < *groups; ++i) {
    result[i].sm.smCount = kFirst + i * least;
    result[i].sm.minSmPartitionSize = least;
  }
  return result_of("cuDevSmResourceSplitByCount");
}
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* resources,
                                   unsigned count) {
  *description = new_handle<CUdevResourceDesc_st>();
  for (unsigned i = 0; i < count; ++i) {
    for (unsigned j = 0; j < resources[i].sm.minSmPartitionSize; ++j) {
      g_described[*description].push_back(resources[i].sm.smCount - kFirst + j);
    }
  }
  return result_of("cuDevResourceGenerateDesc");
}
CUresult cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc description, CUdevice,
                          unsigned flags) {
  if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  *context = new_handle<CUgreenCtx_st>();
  g_contexts[*context] = g_described.at(description);
  return result_of("cuGreenCtxCreate");
}
CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx context, unsigned flags,
                                int priority) {
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = new_handle<CUstream_st>();
  g_streams[*stream] = {g_contexts.at(context), priority};
  return result_of("cuGreenCtxStreamCreate");
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  static const std::map<std::string, void*> functions = {
      {"cuDeviceGet", reinterpret_cast<void*>(&cuDeviceGet)},
      {"cuDeviceGetDevResource", reinterpret_cast<void*>(&cuDeviceGetDevResource)},
      {"cuDevSmResourceSplitByCount", reinterpret_cast<void*>(&cuDevSmResourceSplitByCount)},
      {"cuDevResourceGenerateDesc", reinterpret_cast<void*>(&cuDevResourceGenerateDesc)},
      {"cuGreenCtxCreate", reinterpret_cast<void*>(&cuGreenCtxCreate)},
      {"cuGreenCtxStreamCreate", reinterpret_cast<void*>(&cuGreenCtxStreamCreate)}};
  const auto found = functions.find(name);
  const bool is_known =
      found != functions.end() && version >= 12'050 && g_machine.has_green_contexts;
  *function = is_known ? found->second : nullptr;
  *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
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

const MadeStream& made(const c10::Stream& stream) {
  return g_streams.at(reinterpret_cast<const void*>(stream.id()));
}

// Groups of eight, of which a part has as many as it needs, and none is in two.
TEST(CudaGpuParts, HaveMultiprocessorsOfTheirOwn) {
  const c10::Device gpu(c10::kCUDA, 1);
  const std::vector<int> wanted = {64, 32, 24, 8};
  std::set<unsigned> seen;
  const std::vector<PartStreams> parts = streams_of_parts(gpu, wanted);
  ASSERT_EQ(parts.size(), 4u);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const c10::Stream stream = parts[i](false), other = parts[i](true);
    EXPECT_EQ(stream.device(), gpu);
    EXPECT_NE(stream, other);
    EXPECT_EQ(made(stream).multiprocessors.size(), static_cast<std::size_t>(wanted[i]));
    EXPECT_EQ(made(stream).multiprocessors, made(other).multiprocessors);
    EXPECT_LT(made(other).priority, made(stream).priority) << "less is more urgent";
    for (const unsigned one : made(stream).multiprocessors) {
      EXPECT_TRUE(seen.insert(one).second) << one << " is in two parts";
    }
  }
  // Asked for again: the same contexts, and other streams until the pool is used up.
  const std::size_t contexts = g_contexts.size();
  std::set<c10::StreamId> ids;
  for (int i = 0; i < 100; ++i) ids.insert(streams_of_parts(gpu, wanted)[3](false).id());
  EXPECT_EQ(g_contexts.size(), contexts);
  EXPECT_EQ(ids.size(), 32u);
}

std::string refusal(const std::vector<int>& parts) {
  try {
    streams_of_parts(c10::Device(c10::kCUDA, 1), parts);
  } catch (const Error& error) {
    return error.what();
  }
  return "made";
}

TEST(CudaGpuParts, AreRefusedWhereTheGpuCannotBeCutSo) {
  EXPECT_EQ(refusal({64, 12}),
            "GPU 1: a part of 12 multiprocessors; this GPU gives them in groups of 8");
  EXPECT_EQ(refusal({64, 64, 8}),
            "GPU 1: parts of 136 multiprocessors in all; this GPU gives 128, in groups of 8");
  g_machine.failing = "cuGreenCtxCreate";
  EXPECT_EQ(refusal({16}), "GPU 1: cannot make a part (CUDA driver error 1)");
  g_machine.failing = "";
  EXPECT_EQ(refusal({16}), "made");
}

TEST(CudaGpuParts, RanksOfAClusterGetTheStreamsOfTheirs) {
  cluster::ClusterBuilder builder("parts");
  cluster::MachineSpec machine = cluster::test_machine("m", 1, cluster::test_type("T4"));
  for (const int part : {48, 16}) {
    cluster::DeviceType type = cluster::test_type("H100-SXM5-80GB");
    type.multiprocessors = 132;
    machine.devices.push_back(cluster::part_type(type, part));
  }
  builder.add_machine(machine);
  const std::vector<ThreadDevice> ranks = thread_devices(std::move(builder).build("parts"));
  EXPECT_FALSE(ranks[0].streams) << "all of the T4";
  EXPECT_EQ(ranks[1].device, c10::Device(c10::kCUDA, 1));
  EXPECT_EQ(made(ranks[1].streams(false)).multiprocessors.size(), 48u);
  EXPECT_EQ(made(ranks[2].streams(true)).multiprocessors.size(), 16u);
}

TEST(CudaGpuParts, GoToTheNextGpuWhereTheFirstIsUsedUp) {
  const std::vector<Gpu> gpus = visible_gpus();
  EXPECT_EQ(gpus[1].multiprocessors, 132);
  std::vector<int> indices;
  for (const ThreadDevice& own :
       thread_devices({"H100-SXM5-80GB:64", "H100-SXM5-80GB:64", "H100-SXM5-80GB:8", "T4", "CPU"},
                      {gpus[1], gpus[1], gpus[0]})) {
    indices.push_back(own.device.is_cpu() ? -1 : own.device.index());
  }
  EXPECT_THAT(indices, ElementsAre(0, 0, 1, 2, -1)) << "four of the first are left";
}

TEST(CudaGpuPartsDeathTest, ADriverThatIsTooOldIsNamed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto say = [] {
    g_machine.has_green_contexts = false;
    std::fprintf(stderr, "%s\n", refusal({8}).c_str());
    std::exit(0);
  };
  EXPECT_EXIT(say(), testing::ExitedWithCode(0), "its driver has no cuDeviceGet; they need CUDA");
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
