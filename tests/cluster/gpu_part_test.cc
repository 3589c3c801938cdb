// Parts of GPUs: names, figures, which of them are of one GPU, and what cluster files say of them.
#include "cluster/gpu_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/builders.h"
#include "cluster/cluster_io.h"

namespace heterog::cluster {
namespace {

using testing::HasSubstr;

TEST(GpuParts, AreNamedAfterTheirCard) {
  EXPECT_EQ(part_name({"H100-SXM5-80GB", 32}), "H100-SXM5-80GB:32");
  const auto part = part_of("H100-SXM5-80GB:32");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->gpu, "H100-SXM5-80GB");
  EXPECT_EQ(part->multiprocessors, 32);
  for (const char* whole :
       {"H100-SXM5-80GB", "H100:", "H100:x", "H100:8x", "H100:0", "H100:-8", "H100:99999999999"}) {
    EXPECT_FALSE(part_of(whole)) << whole;
  }
}

TEST(GpuParts, HaveWhatTheCardHasInProportion) {
  DeviceType gpu = test_type("big");
  gpu.multiprocessors = 40;
  gpu.cache_bytes = 80;
  gpu.reserve_bytes = 100;
  gpu.bf16_flops_per_second = 8e12;
  gpu.half_efficiency_flop = 4e9;
  gpu.launch_seconds = 5e-6;
  const DeviceType part = part_type(gpu, 10);
  EXPECT_EQ(part.name, "big:10");
  EXPECT_EQ(part.multiprocessors, 10);
  EXPECT_EQ(part.memory_bytes, 250);
  EXPECT_EQ(part.reserve_bytes, 25);
  EXPECT_EQ(part.cache_bytes, 20);
  EXPECT_DOUBLE_EQ(part.fp32_flops_per_second, 2.5e12);
  EXPECT_DOUBLE_EQ(part.half_flops_per_second, 5e12);
  EXPECT_DOUBLE_EQ(part.fp64_flops_per_second, 1.25e12);
  EXPECT_DOUBLE_EQ(*part.bf16_flops_per_second, 2e12);
  EXPECT_DOUBLE_EQ(part.memory_bytes_per_second, 2.5e11);
  EXPECT_DOUBLE_EQ(part.half_efficiency_flop, 1e9);
  EXPECT_DOUBLE_EQ(part.launch_seconds, 5e-6) << "no shorter on a part";
}

TEST(GpuParts, FollowOneAnotherOnAGpuWhileItLasts) {
  OpenGpu open;
  EXPECT_FALSE(open.takes({"A", 64}, 132));
  EXPECT_TRUE(open.takes({"A", 32}, 132));
  EXPECT_TRUE(open.takes({"A", 32}, 132));
  EXPECT_FALSE(open.takes({"A", 8}, 132)) << "four are left";
  EXPECT_FALSE(open.takes({"B", 8}, 132)) << "another card";
  open.close();
  EXPECT_FALSE(open.takes({"B", 8}, 132)) << "a whole device stood between";
}

class PartsInFiles : public testing::Test {
 protected:
  static Cluster read(const std::string& devices) {
    return parse_cluster(
        R"({"format": "heterog-cluster", "version": 1, "name": "c", "machines": [{"name": "m",
            "devices": [)" +
            devices +
            R"(], "fabric": {"kind": "bus", "bandwidth_bytes_per_second": 1e12,
                             "latency_seconds": 1e-5}}]})",
        "c.json", read_devices("configs/devices.json"));
  }
  static std::string refusal(const std::string& devices) {
    try {
      read(devices);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "accepted";
  }
  static std::string part(int multiprocessors, const std::string& more = "") {
    return R"({"model": "H100-SXM5-80GB", "part_of_gpu": {"multiprocessors": )" +
           std::to_string(multiprocessors) + more + "}}";
  }
};

TEST_F(PartsInFiles, AreDevicesOfATypeOfTheirOwn) {
  const Cluster c =
      read(part(64, R"(, "memory_bytes": 40000000000)") + "," + part(32) + "," + part(32));
  ASSERT_EQ(c.device_count(), 3u);
  EXPECT_EQ(c.type_count(), 2u);
  EXPECT_EQ(c.type_of(DeviceId(0)).name, "H100-SXM5-80GB:64");
  EXPECT_EQ(c.device(DeviceId(0)).memory_bytes, 40'000'000'000);
  EXPECT_EQ(c.device(DeviceId(1)).memory_bytes, 85'027'979'264 * 32 / 132);
  EXPECT_NEAR(c.type_of(DeviceId(0)).half_flops_per_second, 9.89e14 * 64 / 132, 1e9);
  EXPECT_NEAR(c.type_of(DeviceId(0)).half_flops_per_second,
              2 * c.type_of(DeviceId(2)).half_flops_per_second, 1e9);
}

// As PyTorch says of an H100 of 80 GB, in MiB; `nvidia-smi` counts 470 more, which no process gets.
TEST_F(PartsInFiles, OfACardWithTheMemoryThatPyTorchSees) {
  const Cluster whole = read(R"({"model": "H100-SXM5-80GB"})");
  EXPECT_EQ(whole.device(DeviceId(0)).memory_bytes, Bytes{81'089} << 20);
  EXPECT_EQ(read(part(132)).device(DeviceId(0)).memory_bytes, Bytes{81'089} << 20);
}

TEST_F(PartsInFiles, AreRefusedWhereTheyCannotBe) {
  EXPECT_THAT(refusal(part(133)), HasSubstr("part_of_gpu.multiprocessors"));
  EXPECT_THAT(refusal(part(0)), HasSubstr("part_of_gpu.multiprocessors"));
  EXPECT_THAT(refusal(part(8, R"(, "memory": 5)")), HasSubstr("memory"));
  EXPECT_THAT(refusal(R"({"model": "CPU", "part_of_gpu": {"multiprocessors": 1}})"),
              HasSubstr("'CPU' has one multiprocessor"));
  EXPECT_THAT(refusal(R"({"model": "H100-SXM5-80GB", "memory_bytes": 5, "part_of_gpu":
                          {"multiprocessors": 8}})"),
              HasSubstr("memory_bytes stands beside part_of_gpu"));
  const std::string half = part(64, R"(, "memory_bytes": 50000000000)");
  EXPECT_THAT(refusal(half + "," + half),
              HasSubstr("parts of one H100-SXM5-80GB have 100000000000 bytes of memory up to "
                        "device 1; it has 85027979264"));
  EXPECT_EQ(read(half + R"(,{"model": "H100-SXM5-80GB"},)" + half).device_count(), 3u)
      << "parts of two";
}

TEST_F(PartsInFiles, NoDeviceOfTheDataBaseIsCalledLikeOne) {
  try {
    parse_devices(R"({"format": "heterog-devices", "version": 1, "efficiencies": [], "devices": [
                      {"name": "H100:8"}]})",
                  "devices.json");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("as a part of a GPU is called"));
  }
}

}  // namespace
}  // namespace heterog::cluster
