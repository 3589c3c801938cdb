// Fits by hand, and the cost model that they make.
#include "cost/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "cluster/builders.h"
#include "cost/poor_fit.h"
#include "cost/profiles.h"

namespace heterog::cost {
namespace {

using testing::HasSubstr;

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

TEST(FitLine, FindsALine) {
  const std::vector<Measurement> measured = {{1, 3e-3}, {2, 4e-3}, {8, 10e-3}};
  const LinearFit fit = fit_line(measured);
  EXPECT_NEAR(fit.fixed_seconds, 2e-3, 1e-15);
  EXPECT_NEAR(fit.seconds_per_sample, 1e-3, 1e-15);
  EXPECT_NEAR(fit.r2, 1, 1e-12);
  EXPECT_NEAR(fit.at(100), 102e-3, 1e-12);
}

// Weights 1/t²: 1, 1, 1/4. Σw = 9/4, Σwn = 15/4, Σwt = 5/2, Σwn² = 29/4, Σwnt = 9/2;
// determinant 9/4, so fixed = (29/4·5/2 − 15/4·9/2) / (9/4) = 5/9 and slope =
// (9/4·9/2 − 15/4·5/2) / (9/4) = 1/3. Left over: 1/9, −2/9, 4/9, in squares 21/81 of 54/81.
TEST(FitLine, WeighsRelativeErrors) {
  const std::vector<Measurement> measured = {{1, 1}, {2, 1}, {3, 2}};
  const LinearFit fit = fit_line(measured);
  EXPECT_NEAR(fit.fixed_seconds, 5.0 / 9, 1e-12);
  EXPECT_NEAR(fit.seconds_per_sample, 1.0 / 3, 1e-12);
  EXPECT_NEAR(fit.r2, 11.0 / 18, 1e-12);
}

// The line through (1, 1) and (2, 4) starts below zero. Through the origin: slope =
// (1·1·1 + 1/16·2·4) / (1·1 + 1/16·4) = 1.5 / 1.25.
TEST(FitLine, HasNoNegativeFixedPart) {
  const std::vector<Measurement> measured = {{1, 1}, {2, 4}};
  const LinearFit fit = fit_line(measured);
  EXPECT_EQ(fit.fixed_seconds, 0);
  EXPECT_NEAR(fit.seconds_per_sample, 1.2, 1e-12);
}

// Falling times: the weighted mean, (1/4·2 + 1·1) / (1/4 + 1).
TEST(FitLine, HasNoNegativeSlope) {
  const std::vector<Measurement> measured = {{1, 2}, {2, 1}};
  const LinearFit fit = fit_line(measured);
  EXPECT_NEAR(fit.fixed_seconds, 1.2, 1e-12);
  EXPECT_EQ(fit.seconds_per_sample, 0);
}

TEST(FitLine, TakesOneMeasurementAsItIs) {
  const std::vector<Measurement> measured = {{4, 7e-3}};
  const LinearFit fit = fit_line(measured);
  EXPECT_NEAR(fit.at(1), 7e-3, 1e-15);
  EXPECT_NEAR(fit.at(64), 7e-3, 1e-15);
  EXPECT_EQ(fit.r2, 1);
}

TEST(FitLink, GivesLatencyAndBandwidth) {
  const ProfiledLink link =
      fit_link("here", {{1000, 10e-6 + 1e-6}, {50000, 10e-6 + 50e-6}, {4000000, 4.01e-3}});
  EXPECT_NEAR(link.latency_seconds, 10e-6, 1e-12);
  EXPECT_NEAR(link.bytes_per_second, 1e9, 1);
  EXPECT_NEAR(link.r2, 1, 1e-12);
}

// The line through (2, 3), (4, 5), (8, 12) is no measured point's; the curve is, whatever their
// order, keeps to the line's shape between them, and takes the nearest scale beyond.
TEST(CostCurve, MeetsEveryMeasuredSize) {
  const ProfiledOperator op = profiled("bent", {"a"}, {{4, 5e-3}, {8, 12e-3}, {2, 3e-3}});
  const CostCurve curve(op);
  for (const Measurement& m : op.measured) {
    EXPECT_NEAR(curve.at(m.samples), m.seconds, 1e-12);
    EXPECT_GT(std::abs(op.fit.at(m.samples) / m.seconds - 1), 0.01);
  }
  const double at2 = 3e-3 / op.fit.at(2), at4 = 5e-3 / op.fit.at(4), at8 = 12e-3 / op.fit.at(8);
  EXPECT_NEAR(curve.at(3), op.fit.at(3) * (at2 + at4) / 2, 1e-12);
  EXPECT_NEAR(curve.at(7), op.fit.at(7) * (at4 + 3 * at8) / 4, 1e-12);
  EXPECT_NEAR(curve.at(1), op.fit.at(1) * at2, 1e-12);
  EXPECT_NEAR(curve.at(64), op.fit.at(64) * at8, 1e-12);
}

// Measured is 3 times the curve at 2 samples and 5 times at 6: 4 times in the middle, and beyond
// them as at the nearest.
TEST(CostCurve, GoesAlongAnotherCurve) {
  const auto square = [](std::int64_t n) { return static_cast<double>(n * n); };
  const CostCurve curve(profiled("curve", {"a"}, {{6, 180}, {2, 12}}));
  const std::vector<std::pair<std::int64_t, double>> expected = {
      {1, 3}, {2, 12}, {4, 64}, {6, 180}, {10, 500}};
  for (const auto& [samples, seconds] : expected) {
    EXPECT_NEAR(curve.along(samples, square), seconds, 1e-9) << samples;
  }
}

TEST(CostCurve, OfOneSizeIsFlat) {
  const CostCurve curve(profiled("constant", {"a"}, {{4, 7e-3}}));
  EXPECT_NEAR(curve.at(1), 7e-3, 1e-15);
  EXPECT_NEAR(curve.at(64), 7e-3, 1e-15);
}

// Three ops of t = n and one that takes 1, 1, 2 at 1, 2, 4 samples. Without 4: the first predicts
// 4, the second is flat at 1, half of what it was. A step: 3·4 + 1 of 3·4 + 2.
TEST(HeldOut, PredictsASizeThatTheFitHasNotSeen) {
  Profile profile{.slices = {1, 2, 4}};
  profile.operators = {profiled("line", {"a", "b", "c"}, {{1, 1}, {2, 2}, {4, 4}}),
                       profiled("step", {"d"}, {{1, 1}, {2, 1}, {4, 2}}),
                       profiled("constant", {"e"}, {{1, 3}})};
  const std::vector<FitError> errors = held_out_errors(profile);
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_EQ(errors[2].samples, 4);
  EXPECT_EQ(errors[2].count, 2u);
  EXPECT_NEAR(errors[2].median, 0.25, 1e-12);
  EXPECT_NEAR(errors[2].worst, 0.5, 1e-12);
  EXPECT_EQ(errors[2].worst_form, "step");
  EXPECT_NEAR(errors[2].total, -1.0 / 14, 1e-12);
}

TEST(HeldOut, TheFitsOwnErrorCountsEverySize) {
  Profile profile{.slices = {1, 2}};
  // The fit of the second is flat at 1.2: off by 0.4 and 0.2.
  profile.operators = {profiled("line", {"a"}, {{1, 1}, {2, 2}}),
                       profiled("falling", {"b"}, {{1, 2}, {2, 1}})};
  const FitError error = fit_error(profile);
  EXPECT_EQ(error.count, 4u);
  EXPECT_NEAR(error.worst, 0.4, 1e-12);
  EXPECT_NEAR(error.median, 0.1, 1e-12);
  EXPECT_TRUE(held_out_errors(profile).empty()) << "two sizes leave nothing to fit";
}

TEST(ProfiledModel, SpeaksForItsDeviceAlone) {
  const graph::ModelGraph graph = relu_chain();
  const ConstantModel otherwise(0.25);
  const ProfiledModel model(graph, {{chain_profile(), "p.json"}}, otherwise);
  const cluster::DeviceType fast = cluster::test_type("fast"), slow = cluster::test_type("slow");
  EXPECT_NEAR(model.seconds(graph, OpId(0), 10, fast), 21e-3, 1e-12);
  EXPECT_NEAR(model.seconds(graph, OpId(2), 10, fast), 5e-3, 1e-12);
  EXPECT_EQ(model.seconds(graph, OpId(0), 10, slow), 0.25);
}

TEST(ProfiledModel, IsExactAtMeasuredSizes) {
  const graph::ModelGraph graph = relu_chain();
  Profile bent = chain_profile();
  bent.operators[0] = profiled("relu", {"first"}, {{1, 1e-3}, {2, 1e-3}, {4, 9e-3}});
  const ConstantModel otherwise(0.25);
  const ProfiledModel model(graph, {{bent, "p.json"}}, otherwise);
  EXPECT_NEAR(model.seconds(graph, OpId(0), 2, cluster::test_type("fast")), 1e-3, 1e-12);
  EXPECT_NEAR(model.seconds(graph, OpId(0), 4, cluster::test_type("fast")), 9e-3, 1e-12);
}

// 9 ms at 4 samples, where the model says 4 · 4 ms; at 2 the model's 4 ms by the same factor.
TEST(ProfiledModel, GoesAlongTheModelBetweenSizesWhereTheProfileSaysSo) {
  class Square final : public CostModel {
   public:
    double seconds(const graph::ModelGraph&, OpId, std::int64_t samples,
                   const cluster::DeviceType&) const override {
      return 1e-3 * static_cast<double>(samples * samples);
    }
    Bytes workspace_bytes(const graph::ModelGraph&, OpId, std::int64_t,
                          const cluster::DeviceType&) const override {
      return 0;
    }
  };
  const graph::ModelGraph graph = relu_chain();
  Profile run = chain_profile();
  run.between = Between::kModel;
  run.operators[0] = profiled("relu", {"first"}, {{4, 9e-3}});
  const Square otherwise;
  const ProfiledModel model(graph, {{run, "p.json"}}, otherwise);
  const cluster::DeviceType fast = cluster::test_type("fast");
  EXPECT_NEAR(model.seconds(graph, OpId(0), 4, fast), 9e-3, 1e-12);
  EXPECT_NEAR(model.seconds(graph, OpId(0), 2, fast), 2.25e-3, 1e-12);
}

TEST(ProfiledModel, TakesAProfileOfEachDevice) {
  const graph::ModelGraph graph = relu_chain();
  Profile other = chain_profile("slow");
  other.operators[0] = profiled("relu", {"first"}, {{1, 1}, {2, 2}});
  const ConstantModel otherwise(0.25);
  const ProfiledModel model(graph, {{chain_profile(), "p.json"}, {other, "q.json"}}, otherwise);
  EXPECT_NEAR(model.seconds(graph, OpId(0), 10, cluster::test_type("fast")), 21e-3, 1e-12);
  EXPECT_NEAR(model.seconds(graph, OpId(0), 10, cluster::test_type("slow")), 10, 1e-9);
}

// 1, 10 and 1 at 1, 2 and 3 samples fit no line; of a run they need not.
TEST(PoorFit, AsksForLinesWhereCostsFollowThem) {
  Profile profile = chain_profile();
  for (ProfiledOperator& op : profile.operators) {
    op = profiled(op.form, op.ops, {{1, 1}, {2, 10}, {3, 1}});
  }
  EXPECT_THAT(poor_fit(profile), HasSubstr("from the lines of its operators"));
  profile.between = Between::kModel;
  EXPECT_EQ(poor_fit(profile), "");
}

TEST(ProfiledModel, RefusesWhatIsNotOfThisGraph) {
  const ConstantModel otherwise(0.25);
  const auto refused = [&](const graph::ModelGraph& graph, Profile profile) {
    return refusal([&] { ProfiledModel(graph, {{profile, "p.json"}}, otherwise); });
  };
  const graph::ModelGraph graph = relu_chain();
  EXPECT_EQ(refused(graph, chain_profile()), "accepted");
  EXPECT_THAT(refused(relu_chain("other"), chain_profile()),
              AllOf(HasSubstr("p.json: graph.hash"), HasSubstr("'chain'"), HasSubstr("'other'")));
  Profile unfinished = chain_profile();
  unfinished.finished = false;
  EXPECT_THAT(refused(graph, unfinished), HasSubstr("p.json: finished"));
  Profile lacking = chain_profile();
  lacking.operators.pop_back();
  EXPECT_THAT(refused(graph, lacking),
              AllOf(HasSubstr("p.json: operators"), HasSubstr("'last'"), HasSubstr("missing")));
  Profile strange = chain_profile();
  strange.operators[0].ops = {"nobody"};
  EXPECT_THAT(refused(graph, strange),
              AllOf(HasSubstr("p.json: operators[0].ops"), HasSubstr("'nobody'")));
}

TEST(ProfiledModel, RefusesTwoProfilesOfOneDevice) {
  const graph::ModelGraph graph = relu_chain();
  const ConstantModel otherwise(0.25);
  EXPECT_THAT(
      refusal([&] {
        ProfiledModel(graph, {{chain_profile(), "p.json"}, {chain_profile(), "q.json"}}, otherwise);
      }),
      AllOf(HasSubstr("q.json: device"), HasSubstr("fast")));
}

TEST(CheckDevices, RefusesADeviceThatTheClusterLacks) {
  cluster::ClusterBuilder builder("pair");
  builder.add_machine(cluster::test_machine("a", 2, cluster::test_type("fast")));
  const cluster::Cluster cluster = std::move(builder).build("pair");
  const std::vector<ProfileSource> right = {{chain_profile("fast"), "p.json"}};
  const std::vector<ProfileSource> wrong = {{chain_profile("slow"), "p.json"}};
  EXPECT_NO_THROW(check_devices(right, cluster));
  EXPECT_THAT(refusal([&] { check_devices(wrong, cluster); }),
              AllOf(HasSubstr("p.json: device"), HasSubstr("slow"), HasSubstr("'pair' has fast")));
}

}  // namespace
}  // namespace heterog::cost
