// The feature table: pinned to its version, finite on real problems, blind to device numbers.
#include "learn/network/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/hash.h"
#include "learn/network/problems.h"
#include "space/summary.h"

namespace heterog::learn {
namespace {

// Weights trained on one table mean nothing on another: whoever changes what a row computes raises
// the version and writes the new hash here. Another wording alone leaves the version.
TEST(Features, TableIsPinnedToItsVersion) {
  Hasher hasher;
  for (const FeatureInfo& info : feature_table()) {
    hasher.add(subject_name(info.subject));
    hasher.add(info.name);
    hasher.add(info.unit);
    hasher.add(normalizer_name(info.normalizer));
  }
  EXPECT_EQ(kFeatureVersion, 3);
  EXPECT_EQ(hash_text(hasher.value()), "4773c8b852e742b2");
}

// So does whoever adds an action, or puts the actions in another order. (The sets of devices follow
// from costs, with which the second hash changes too.)
TEST(Features, ActionsArePinnedToTheVersion) {
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 64, 16);
  Hasher hasher;
  for (const auto table : {space::ActionTable::kHeterog, space::ActionTable::kSets}) {
    const space::ActionSpace actions(*problem, table);
    const Features features = make_features(*problem, table);
    for (const space::ActionId action : actions.ids()) {
      hasher.add(actions.name(action));
      hasher.add(static_cast<std::uint64_t>(features.scheme[action.value()]));
      for (const decide::Replica& replica : actions.decision(action).replicas) {
        hasher.add(replica.device.value());
      }
    }
  }
  EXPECT_EQ(kFeatureVersion, 3);
  EXPECT_EQ(hash_text(hasher.value()), "ead1aba42f7d4a20");
}

TEST(Features, NamesAreUniqueWithinASubject) {
  std::set<std::pair<Subject, std::string_view>> seen;
  for (const FeatureInfo& info : feature_table()) {
    EXPECT_TRUE(seen.emplace(info.subject, info.name).second) << info.name;
  }
  EXPECT_EQ(static_cast<int>(seen.size()),
            feature_count(Subject::kOp) + feature_count(Subject::kGroup) +
                feature_count(Subject::kDevice) + feature_count(Subject::kAction));
}

// Of an op and of a group: the shares of all of them add up to 10, and the unit says so.
TEST(Features, SharesOfTheStepSayTheirFactor) {
  const auto problem = test_problem("bert_large24-tiny", "heterog-4gpu", 48, 16);
  const Features features = make_features(*problem);
  std::int64_t column = 0;
  int found = 0;
  Subject subject = Subject::kOp;
  for (const FeatureInfo& info : feature_table()) {
    if (info.subject != subject) column = 0;
    subject = info.subject;
    if (info.name == "share_of_step") {
      ++found;
      EXPECT_EQ(info.unit, "share of Σ mean seconds × 10");
      const FeatureMatrix& m = subject == Subject::kOp ? features.ops : features.groups;
      double sum = 0;
      for (std::int64_t row = 0; row < m.rows; ++row) sum += m.at(row, column);
      EXPECT_NEAR(sum, 10, 1e-3);
    }
    ++column;
  }
  EXPECT_EQ(found, 2);
}

TEST(Features, ValuesAreFiniteAndSmallOnRealProblems) {
  for (const char* cluster : {"heterog-4gpu", "heterog-8gpu", "heterog-12gpu", "fastt-1gpu"}) {
    const auto problem = test_problem("bert_large24-tiny", cluster, 48, 16);
    const Features features = make_features(*problem);
    const auto devices = static_cast<std::int64_t>(problem->cluster->device_count());
    EXPECT_EQ(features.devices.rows, devices);
    EXPECT_EQ(features.action_count, devices + 4);
    EXPECT_EQ(features.actions.rows, features.groups.rows * (devices + 4));
    for (const FeatureMatrix* m :
         {&features.ops, &features.groups, &features.devices, &features.actions}) {
      ASSERT_EQ(static_cast<std::int64_t>(m->values.size()), m->rows * m->columns);
      for (float value : m->values) {
        EXPECT_TRUE(std::isfinite(value));
        EXPECT_LE(std::abs(value), 4.0f) << cluster;
      }
    }
  }
}

// Rows of members say who takes part, whatever table the actions are of.
TEST(Features, MembersAreTheDevicesOfEachAction) {
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 32, 4);
  const space::ActionSpace actions(*problem, space::ActionTable::kSets);
  const Features features = make_features(*problem, space::ActionTable::kSets);
  ASSERT_EQ(features.action_count, static_cast<std::int64_t>(actions.size()));
  ASSERT_EQ(features.scheme.size(), actions.size());
  std::set<std::int64_t> schemes;
  for (space::ActionId id : actions.ids()) {
    const auto row = static_cast<std::int64_t>(id.value());
    const auto& replicas = actions.decision(id).replicas;
    double sum = 0;
    std::size_t members = 0;
    for (std::int64_t d = 0; d < features.members.columns; ++d) {
      sum += features.members.at(row, d);
      members += features.members.at(row, d) > 0;
    }
    EXPECT_NEAR(sum, 1, 1e-6) << actions.name(id);
    EXPECT_EQ(members, replicas.size()) << actions.name(id);
    const std::int64_t scheme = features.scheme[id.value()];
    EXPECT_EQ(scheme == 0, replicas.size() == 1) << actions.name(id);
    schemes.insert(scheme);
  }
  EXPECT_EQ(schemes, (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
  for (float value : features.actions.values) EXPECT_LE(std::abs(value), 4.0f);
}

TEST(Features, NeighboursGoBothWaysAndIncludeTheOpItself) {
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 32, 16);
  const Features features = make_features(*problem);
  std::set<std::pair<std::int64_t, std::int64_t>> pairs;
  for (std::size_t e = 0; e < features.edge_source.size(); ++e) {
    EXPECT_TRUE(pairs.emplace(features.edge_source[e], features.edge_target[e]).second);
  }
  for (const auto& [a, b] : pairs) EXPECT_TRUE(pairs.contains({b, a}));
  for (std::int64_t op = 0; op < features.ops.rows; ++op) EXPECT_TRUE(pairs.contains({op, op}));
  // A convolution network is connected: more pairs than a chain has.
  EXPECT_GT(static_cast<std::int64_t>(pairs.size()), 3 * features.ops.rows - 3);
}

// Names of columns of `subject` where two rows differ.
std::set<std::string_view> differing(const FeatureMatrix& m, Subject subject, std::int64_t a,
                                     std::int64_t b) {
  std::set<std::string_view> names;
  std::int64_t column = 0;
  for (const FeatureInfo& info : feature_table()) {
    if (info.subject != subject) continue;
    if (std::abs(m.at(a, column) - m.at(b, column)) > 1e-6f) names.insert(info.name);
    ++column;
  }
  return names;
}

// Where a device stands in the line of all devices says which of equal ones is meant, so that a
// model can be cut over them; nothing else does.
TEST(Features, EqualDevicesDifferInTheirPositionAlone) {
  const auto problem = test_problem("bert_large24-tiny", "heterog-8gpu", 48, 16);
  const Features features = make_features(*problem);
  const std::int64_t first = 2, last = 5;  // GTX 1080 Ti, two in each of two machines
  for (std::int64_t other = first + 1; other <= last; ++other) {
    EXPECT_THAT(differing(features.devices, Subject::kDevice, first, other),
                testing::ElementsAre("speed_position"));
    for (std::int64_t group = 0; group < features.groups.rows; ++group) {
      const std::int64_t row = group * features.action_count;  // its actions begin with one device
      const auto names = differing(features.actions, Subject::kAction, row + first, row + other);
      EXPECT_THAT(names, testing::IsSubsetOf({"memory_match", "speed_match"}));
    }
  }
  EXPECT_TRUE(differing(features.devices, Subject::kDevice, 0, first).contains("speed"));
}

TEST(Features, NamesOfMachinesMeanNothing) {
  const auto on_machines = [](const std::string& first, const std::string& second) {
    const auto machine = [](const std::string& name, const char* model, const char* nic) {
      return R"({"name": ")" + name + R"(", "devices": [{"model": ")" + model +
             R"(", "count": 2}], "fabric": {"kind": "switch", "link": "pcie3"}, "nic": {"link": ")" +
             nic + R"("}})";
    };
    const std::string text = R"({"format": "heterog-cluster", "version": 1, "name": "two",
        "machines": [)" + machine(first, "V100-PCIE-16GB", "100gbe-rdma") +
                             ", " + machine(second, "GTX-1080-Ti", "50gbe-rdma") +
                             R"(], "network": {"latency_seconds": 3e-6}})";
    const auto problem = cost::make_problem(
        std::make_shared<const graph::ModelGraph>(graph::read_graph("models/vgg19-tiny.json.gz")),
        std::make_shared<const cluster::Cluster>(
            cluster::parse_cluster(text, "two", cluster::read_devices("configs/devices.json"),
                                   cluster::read_links("configs/links.json"))),
        cost::CalibratedModel(), 64, {.max_groups = 16});
    return make_features(*problem);
  };
  const Features one = on_machines("a", "b"), other = on_machines("z", "c");
  EXPECT_EQ(one.ops.values, other.ops.values);
  EXPECT_EQ(one.groups.values, other.groups.values);
  EXPECT_EQ(one.devices.values, other.devices.values);
  EXPECT_EQ(one.actions.values, other.actions.values);
}

TEST(Features, AliasesAreFoldedIntoTheirConsumers) {
  const auto problem = test_problem("vgg19-tiny", "heterog-8gpu", 32, 16);
  std::int64_t solid = 0;
  for (OpId op : problem->graph->op_ids()) solid += !problem->graph->op(op).alias;
  EXPECT_EQ(make_features(*problem).ops.rows, solid);
  EXPECT_LT(solid, static_cast<std::int64_t>(problem->graph->op_count()));
}

TEST(Features, MasksDevicesThatCannotHoldAGroupsParameters) {
  // VGG-19 has 575 MB of parameters, as much of gradients and of momentum: 1 GB is too small for
  // the one group that it is here, the card's own memory is not.
  auto types = cluster::read_devices("configs/devices.json");
  cluster::DeviceType large = types.at("V100-PCIE-16GB");
  cluster::DeviceType small = large;
  small.name = "small";
  small.memory_bytes = small.reserve_bytes + 1'000'000'000;
  cluster::ClusterBuilder builder("two");
  builder.add_machine({.name = "m",
                       .devices = {large, small},
                       .fabric = {.port_bytes_per_second = 1e10, .latency_seconds = 1e-6}});
  const auto problem = cost::make_problem(
      std::make_shared<const graph::ModelGraph>(graph::read_graph("models/vgg19.json.gz")),
      std::make_shared<const cluster::Cluster>(std::move(builder).build("two")),
      cost::CalibratedModel(), 8, {.max_groups = 1});
  const space::Summary summary(*problem);
  const Features features = make_features(*problem);
  EXPECT_LT(summary.estimates.at(GroupId(0), space::ActionId(0)).state_share, 1.0);
  EXPECT_GT(summary.estimates.at(GroupId(0), space::ActionId(1)).state_share, 1.0);
  // Replicas need the room on every device, so the four schemes are out as well.
  EXPECT_THAT(features.allowed, testing::ElementsAre(1, 0, 0, 0, 0, 0));
}

TEST(Features, NormalizersByHand) {
  EXPECT_DOUBLE_EQ(normalize(Normalizer::kShare, -7), -4);
  EXPECT_DOUBLE_EQ(normalize(Normalizer::kSeconds, 0), 0);
  EXPECT_NEAR(normalize(Normalizer::kSeconds, 1), 1.3815512, 1e-6);  // log(10^6 + 1) / 10
  EXPECT_NEAR(normalize(Normalizer::kBytes, 1024.0 * 1023), std::log(1024) / 15, 1e-12);
  EXPECT_NEAR(normalize(Normalizer::kLogRatio, std::exp(1.5)), 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(normalize(Normalizer::kLogRatio, 0), -4);
}

}  // namespace
}  // namespace heterog::learn
