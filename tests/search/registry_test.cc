// Planners by name, and their options: what is read, what is refused, and what they change.
#include "search/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "decide/decisions.h"
#include "oracle/simulated_oracle.h"
#include "search/problems.h"
#include "search/starts/baselines.h"

namespace heterog::search {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

enum class Fruit : std::uint8_t { kApple, kPear };
struct FakeOptions {
  DeviceId device;
  std::int64_t count = 3;
  double part = 0.25;
  Fruit fruit = Fruit::kPear;
  std::string file;
};
constexpr std::array<std::string_view, 2> kFruits = {"apple", "pear"};
constexpr std::array<Field<FakeOptions>, 5> kFields = {
    {{"device", "where", DeviceField<FakeOptions>{&FakeOptions::device, "anywhere"}},
     {"count", "how many", IntegerField<FakeOptions>{&FakeOptions::count, {1, 9}}},
     {"part", "how much", NumberField<FakeOptions>{&FakeOptions::part, {0, 1}}},
     {"fruit", "what", choice<FakeOptions, &FakeOptions::fruit>(kFruits)},
     {"file", "from", FileField<FakeOptions>{&FakeOptions::file, "none"}}}};

class RegistryTest : public testing::Test {
 protected:
  const std::unique_ptr<const cost::Problem> problem_ =
      load_test_problem("vgg19-tiny", "heterog-4gpu", 32);
  const cluster::Cluster& cluster_ = *problem_->cluster;
  const Registry registry_{builtin_planners()};

  FakeOptions read(const std::string& request) const {
    const PlannerRequest parsed = parse_request(request);
    return read_options<FakeOptions>(parsed.name, kFields, parsed.settings, cluster_);
  }
  // What a request is refused with.
  std::string refused(const std::function<void()>& ask) const {
    try {
      ask();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "";
  }
  std::string refused(const std::string& request) const {
    return refused([&] { registry_.make(request, cluster_); });
  }
  PlannerResult plan(const std::string& request, std::optional<std::int64_t> evaluations = {}) {
    ThreadPool pool(1);
    oracle::SimulatedOracle simulator(*problem_, pool);
    PlannerContext context{.oracle = simulator, .rng = Rng(0)};
    context.budget.evaluations = evaluations;
    return registry_.make(request, cluster_)->plan(context);
  }
};

TEST_F(RegistryTest, RequestsAreANameAndSettings) {
  EXPECT_EQ(parse_request("ev-ar").name, "ev-ar");
  EXPECT_TRUE(parse_request("ev-ar").settings.empty());
  const PlannerRequest two = parse_request("a:b=c=d,e=");
  EXPECT_EQ(two.name, "a");
  ASSERT_EQ(two.settings.size(), 2u);
  EXPECT_EQ(two.settings[0].option, "b");
  EXPECT_EQ(two.settings[0].value, "c=d");
  EXPECT_EQ(two.settings[1].option, "e");
  EXPECT_EQ(two.settings[1].value, "");
  EXPECT_EQ(parse_request("single:v100/gpu0").settings[0].option, "");
  for (const char* bad : {"a:", "a:b=1,", "a:,b=1"}) {
    EXPECT_THAT(refused([&] { parse_request(bad); }), HasSubstr("an empty option")) << bad;
  }
}

TEST_F(RegistryTest, OptionsAreReadIntoTheStruct) {
  const FakeOptions defaults = read("p");
  EXPECT_FALSE(defaults.device.valid());
  EXPECT_EQ(defaults.count, 3);
  const FakeOptions all = read("p:device=" + cluster_.device(DeviceId(2)).name +
                               ",count=9,part=1,fruit=apple,file=x=y");
  EXPECT_EQ(all.device, DeviceId(2));
  EXPECT_EQ(all.count, 9);
  EXPECT_EQ(all.part, 1.0);
  EXPECT_EQ(all.fruit, Fruit::kApple);
  EXPECT_EQ(all.file, "x=y");
  EXPECT_EQ(read("p:count=4,count=5").count, 5);  // the later one counts
}

TEST_F(RegistryTest, OptionsSayWhatTheyTake) {
  const auto infos = describe_options<FakeOptions>(kFields);
  std::vector<std::string> lines;
  for (const OptionInfo& info : infos) {
    lines.push_back(info.name + ": " + info.help + "; " + info.takes + "; " + info.default_value);
  }
  EXPECT_THAT(lines, ElementsAre("device: where; a device of the cluster; anywhere",
                                 "count: how many; an integer from 1 to 9; 3",
                                 "part: how much; a number from 0 to 1; 0.25",
                                 "fruit: what; apple or pear; pear", "file: from; a file; none"));
}

TEST_F(RegistryTest, WrongValuesAreRefusedByName) {
  const auto said = [&](const std::string& request) { return refused([&] { read(request); }); };
  for (const char* word : {"0", "10", "x", "", "1.5", " 3"}) {
    EXPECT_THAT(said(std::string("p:count=") + word),
                AllOf(HasSubstr("planner p: option count"), HasSubstr("from 1 to 9")))
        << word;
  }
  for (const char* word : {"-0.1", "1.1", "nan", "half"}) {
    EXPECT_THAT(said(std::string("p:part=") + word),
                AllOf(HasSubstr("planner p: option part"), HasSubstr("from 0 to 1")))
        << word;
  }
  EXPECT_THAT(said("p:fruit=appel"), AllOf(HasSubstr("option fruit"), HasSubstr("\"appel\""),
                                           HasSubstr("did you mean apple?")));
  EXPECT_THAT(said("p:device=v100/gpu7"),
              AllOf(HasSubstr("option device"), HasSubstr("did you mean v100/gpu0?")));
  EXPECT_THAT(said("p:cuont=3"), AllOf(HasSubstr("no option \"cuont\""),
                                       HasSubstr("did you mean count?"), HasSubstr("fruit")));
}

TEST_F(RegistryTest, UnknownNamesAreAnsweredWithTheNearest) {
  EXPECT_THAT(refused("ev-pss"),
              AllOf(HasSubstr("did you mean ev-ps?"), HasSubstr("local-search")));
  EXPECT_THAT(refused("local_search:round=4"), HasSubstr("did you mean local-search?"));
  EXPECT_THAT(refused(""), HasSubstr("no such planner"));
}

TEST_F(RegistryTest, APlannerWithoutOptionsTakesNone) {
  struct None {};
  const Registry registry(
      {planner_entry<None>("bare", "", std::span<const Field<None>>{},
                           [](const None&) { return std::unique_ptr<const Planner>(); })});
  for (const char* request : {"bare:x=1", "bare:x"}) {
    EXPECT_THAT(refused([&] { registry.make(request, cluster_); }), HasSubstr("it has no options"));
  }
}

TEST_F(RegistryTest, NoTwoPlannersHaveOneName) {
  std::vector<PlannerEntry> twice = builtin_planners();
  twice.push_back(twice.front());
  EXPECT_THROW(Registry{twice}, Error);
}

// Of every planner: a default that is no words is what it would be set to.
TEST_F(RegistryTest, EveryOptionTakesItsOwnDefault) {
  int taken = 0;
  for (const PlannerEntry& entry : registry_.entries()) {
    EXPECT_FALSE(entry.one_line.empty()) << entry.name;
    for (const OptionInfo& option : entry.options) {
      SCOPED_TRACE(std::string(entry.name) + " " + option.name);
      EXPECT_FALSE(option.help.empty());
      if (option.takes == "a device of the cluster" || option.takes == "a file") continue;
      ++taken;
      const std::string name(entry.name);
      EXPECT_EQ(refused(name + ":" + option.name + "=" + option.default_value), "");
      EXPECT_THAT(refused(name + ":" + option.name + "=no such"),
                  AllOf(HasSubstr("planner " + name), HasSubstr(option.name)));
    }
  }
  EXPECT_GE(taken, 8);
}

TEST_F(RegistryTest, BaselinesDoAsTheyAreTold) {
  const PlannerResult fifo = plan("ev-ar:order=fifo"), rank = plan("ev-ar:rank"),
                      queued = plan("ev-ar:rank-queued");
  EXPECT_EQ(fifo.strategy.order, decide::OrderPolicy::kFifo);
  EXPECT_EQ(rank.strategy.order, decide::OrderPolicy::kRank);
  EXPECT_EQ(queued.strategy.order, decide::OrderPolicy::kRankQueued);
  EXPECT_EQ(fifo.evaluations + rank.evaluations + queued.evaluations, plan("ev-ar").evaluations);
  EXPECT_FALSE(better(queued.evaluation, plan("ev-ar").evaluation));
  EXPECT_FALSE(better(fifo.evaluation, plan("ev-ar").evaluation));
  EXPECT_FALSE(better(rank.evaluation, plan("ev-ar").evaluation));
  EXPECT_EQ(plan("horovod:bucket_bytes=1000").strategy.bucket_bytes, 1000);
  EXPECT_EQ(plan("horovod").strategy.bucket_bytes, decide::kHorovodBucketBytes);
  for (const std::string name : {"ev-ar", "cp-ar", "horovod", "accumulate"}) {
    const auto even = plan(name + ":state=sharded");
    EXPECT_EQ(even.strategy.units.raw().front().sync, decide::SyncMethod::kSharded) << name;
    EXPECT_TRUE(even.strategy.row_weights.empty());
    // Of a model that is trained whole, what is gathered is sharded, in equal rows or by memory.
    const auto gathered = plan(name + ":state=gathered");
    EXPECT_EQ(gathered.strategy.units.raw().front().sync, decide::SyncMethod::kGathered) << name;
    EXPECT_FALSE(better(even.evaluation, gathered.evaluation)) << name;
    if (name == "accumulate") continue;
    EXPECT_FALSE(plan(name + ":state=by-memory").strategy.row_weights.empty());
    const auto best = plan(name + ":state=auto").evaluation;
    for (const char* state : {":state=whole", ":state=sharded", ":state=by-memory"}) {
      EXPECT_FALSE(better(plan(name + state).evaluation, best)) << name << state;
    }
  }
  const PlannerResult tuned = plan("horovod:bucket_bytes=tuned");
  EXPECT_LE(tuned.evaluations, 20);
  try {
    plan("horovod:bucket_bytes=tund");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("bucket_bytes (tuned or a number): \"tund\" given"));
  }
  for (const char* bytes : {"1048576", "16777216", "67108864"}) {
    const auto fixed = plan(std::string("horovod:bucket_bytes=") + bytes);
    EXPECT_FALSE(better(fixed.evaluation, tuned.evaluation)) << bytes;
  }
  const DeviceId third(2);
  for (const char* request : {"single:", "single:device="}) {
    const PlannerResult one = plan(request + cluster_.device(third).name);
    EXPECT_EQ(one.strategy, single_device(*problem_, third));
    EXPECT_EQ(one.evaluations, 1);
  }
}

TEST_F(RegistryTest, SearchesDoAsTheyAreTold) {
  EXPECT_EQ(plan("random:evaluations=20").evaluations, 20);
  EXPECT_EQ(plan("random:evaluations=20", 30).evaluations, 30);  // a budget goes before
  const std::int64_t patient = plan("local-search").evaluations;
  EXPECT_LT(plan("local-search:patience=8,round=8").evaluations, patient);
  // One move at a time: another search from the same start, over after other plans, though perhaps
  // at the same end.
  EXPECT_NE(plan("local-search:round=1").evaluations, patient);
}

}  // namespace
}  // namespace heterog::search
