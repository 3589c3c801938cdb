// The variables of each starter.
#include "launch/rank_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/check.h"
#include "cluster/builders.h"

namespace heterog::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

std::optional<RankPlace> read(const Variables& variables) {
  return read_rank_place([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refused(const Variables& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

Variables torchrun() {
  return {{"RANK", "3"},
          {"LOCAL_RANK", "1"},
          {"WORLD_SIZE", "4"},
          {"MASTER_ADDR", "node-0"},
          {"MASTER_PORT", "29500"}};
}

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(RankPlace, IsNoneWhereNobodySaysSo) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}));
  EXPECT_FALSE(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}})) << "a batch script, no srun";
}

TEST(RankPlace, OfEachStarter) {
  const Variables meeting{{"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "29500"}};
  const auto plus = [&](Variables variables) {
    variables.insert(meeting.begin(), meeting.end());
    return variables;
  };
  const std::pair<const char*, Variables> cases[] = {
      {"torchrun", torchrun()},
      {"Slurm", plus({{"SLURM_STEP_ID", "0"},
                      {"SLURM_PROCID", "3"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_NTASKS", "4"}})},
      {"Open MPI", plus({{"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "4"}})},
      {"MPI", plus({{"PMI_RANK", "3"}, {"MPI_LOCALRANKID", "1"}, {"PMI_SIZE", "4"}})},
  };
  for (const auto& [starter, variables] : cases) {
    const auto place = read(variables);
    ASSERT_TRUE(place) << starter;
    EXPECT_EQ(place->starter, starter);
    EXPECT_EQ(place->rank, 3);
    EXPECT_EQ(place->local_rank, 1);
    EXPECT_EQ(place->world_size, 4);
    EXPECT_EQ(place->master_address, "node-0");
    EXPECT_EQ(place->master_port, 29500);
    EXPECT_FALSE(place->starter_serves);
  }
}

TEST(RankPlace, NcclIsTriedOnOneGpuIfToldSo) {
  EXPECT_FALSE(read(torchrun())->nccl_on_one_gpu);
  EXPECT_TRUE(read(with(torchrun(), kNcclOnOneGpu, "1"))->nccl_on_one_gpu);
}

TEST(RankPlace, OfTorchrunWhoseAgentServesTheStore) {
  Variables variables = with(torchrun(), "TORCHELASTIC_USE_AGENT_STORE", "True");
  variables["TORCHELASTIC_RESTART_COUNT"] = "2";
  EXPECT_TRUE(read(variables)->starter_serves);
  EXPECT_EQ(read(variables)->attempt, "2");
}

TEST(RankPlace, OfOneRankNeedsNoMeetingPoint) {
  const auto place = read({{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(place);
  EXPECT_EQ(place->world_size, 1);
}

TEST(RankPlace, SaysWhichVariableIsWrong) {
  EXPECT_THAT(refused(with(torchrun(), "RANK", "4")),
              AllOf(HasSubstr("RANK"), HasSubstr("0 to 3")));
  EXPECT_THAT(refused(with(torchrun(), "RANK", "-1")), HasSubstr("\"-1\""));
  EXPECT_THAT(refused(with(torchrun(), "RANK", "1x")), HasSubstr("\"1x\""));
  EXPECT_THAT(refused(with(torchrun(), "RANK", "")), HasSubstr("RANK"));
  EXPECT_THAT(refused(with(torchrun(), "WORLD_SIZE", "0")), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(refused(without(torchrun(), "WORLD_SIZE")),
              AllOf(HasSubstr("WORLD_SIZE"), HasSubstr("not set"), HasSubstr("torchrun")));
  EXPECT_THAT(refused(without(torchrun(), "LOCAL_RANK")), HasSubstr("LOCAL_RANK"));
  EXPECT_THAT(refused(with(torchrun(), "LOCAL_RANK", "9")), HasSubstr("LOCAL_RANK"));
  EXPECT_THAT(refused(without(torchrun(), "MASTER_ADDR")), HasSubstr("MASTER_ADDR: not set"));
  EXPECT_THAT(refused(without(torchrun(), "MASTER_PORT")), HasSubstr("MASTER_PORT: not set"));
  EXPECT_THAT(refused(with(torchrun(), "MASTER_PORT", "0")), HasSubstr("1 to 65535"));
  EXPECT_THAT(refused(with(torchrun(), "MASTER_PORT", "65536")), HasSubstr("1 to 65535"));
  EXPECT_THAT(refused(with(torchrun(), "MASTER_ADDR", "a b")), HasSubstr("MASTER_ADDR"));
}

// Two machines of two devices, of which the first one's host and the last one's serve.
TEST(RankPlace, StartersNumberHostsThatServeWithTheirMachines) {
  cluster::ClusterBuilder builder("served");
  builder.add_machine(cluster::with_server(cluster::test_machine("a", 2)));
  builder.add_machine(cluster::test_machine("b", 1));
  builder.add_machine(cluster::with_server(cluster::test_machine("c", 2)));
  const cluster::Cluster cluster = std::move(builder).build("served");
  std::vector<std::string> names;
  for (DeviceId rank : started_in_order(cluster)) names.push_back(cluster.device(rank).name);
  EXPECT_THAT(names, testing::ElementsAre("a/gpu0", "a/gpu1", "a/host", "b/gpu0", "c/gpu0",
                                          "c/gpu1", "c/host"));
  const auto rank_of = [&](int started) {
    RankPlace place{.rank = started, .local_rank = 1, .world_size = 7};
    return in_job(cluster, place).rank;
  };
  EXPECT_EQ(rank_of(0), 0);
  EXPECT_EQ(rank_of(2), 5);
  EXPECT_EQ(rank_of(3), 2);
  EXPECT_EQ(rank_of(6), 6);
  EXPECT_EQ(rank_of(7), 7);  // one too many, as it came
}

}  // namespace
}  // namespace heterog::launch
