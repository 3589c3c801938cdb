// What the policy's layouts cost by formula, of one problem: where it begins.
#pragma once

#include <array>
#include <vector>

#include "learn/formula/chain.h"
#include "learn/formula/plan_choice.h"
#include "space/layout_costs.h"

namespace heterog::learn {

struct FormulaTerms {
  std::vector<space::ActionId> rows;                // of the table of sets: A
  IdVector<space::ActionId, std::uint32_t> row_of;  // the other way; of rows that are left out: 0
  space::LayoutCosts costs;
  std::vector<double> staged;  // [N, A] seconds: of a row as a stage, kNever where it is none
  // Of each value of Knob::kLayout: which rows it has, and the least sum of its terms.
  std::array<std::vector<bool>, kLayouts> allowed;  // [A]
  std::array<double, kLayouts> seconds{};
  std::array<Path, kLayouts> paths;  // that has it
};
FormulaTerms formula_terms(const space::Summary& summary);

// [layouts, kLayoutFeatures], row by row: mode and hidden part, and what the path of it is like.
std::vector<float> layout_features(const FormulaTerms& terms);

}  // namespace heterog::learn
