// One row a learned placement.
#include <array>
#include <memory>
#include <string_view>

#include "learn/placers/placers.h"

namespace heterog::learn {
namespace {

constexpr std::array<search::Field<PlacerOptions>, 3> kPlacerFields = {
    {{"evaluations", "placements that are drawn where no budget is given",
      search::IntegerField<PlacerOptions>{&PlacerOptions::evaluations, {1, 1'000'000'000}}},
     {"groups", "of operators that are placed, at the most",
      search::IntegerField<PlacerOptions>{&PlacerOptions::groups, {1, 256}}},
     {"samples", "placements that are drawn before it learns from them",
      search::IntegerField<PlacerOptions>{&PlacerOptions::samples, {1, 1000}}}}};

class PlacerPlanner final : public search::Planner {
 public:
  PlacerPlanner(PlacerKind kind, const PlacerOptions& options) : kind_(kind), options_(options) {}
  search::PlannerResult plan(search::PlannerContext& context) const override {
    return learn_placement(kind_, options_, context);
  }

 private:
  PlacerKind kind_;
  PlacerOptions options_;
};

search::PlannerEntry placer_entry(std::string_view name, std::string_view one_line,
                                  PlacerKind kind) {
  return search::planner_entry<PlacerOptions>(
      name, one_line, kPlacerFields, [kind](const PlacerOptions& options) {
        return std::make_unique<PlacerPlanner>(kind, options);
      });
}

}  // namespace

std::vector<search::PlannerEntry> placer_entries() {
  return {
      placer_entry("reinforce", "Mirhoseini's: learns placements of groups, LSTM to LSTM",
                   PlacerKind::kReinforce),
      placer_entry("hrl", "learns groups and their placements (hierarchical)", PlacerKind::kHrl),
      placer_entry("post", "learns a distribution a group (PPO, and cross-entropy)",
                   PlacerKind::kPost),
      placer_entry("gdp", "learns placements of groups by graph attention and Transformer-XL",
                   PlacerKind::kGdp)};
}

}  // namespace heterog::learn
