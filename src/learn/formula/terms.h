// What the policy's layouts cost by formula, of one problem: where it begins.
#pragma once

#include <array>
#include <vector>

#include "learn/formula/chain.h"
#include "learn/formula/memory_need.h"
#include "learn/formula/pipelines.h"
#include "learn/formula/plan_choice.h"
#include "space/layout_costs.h"

namespace heterog::learn {

struct FormulaTerms {
  std::vector<space::ActionId> rows;                // of the table of sets: A
  IdVector<space::ActionId, std::uint32_t> row_of;  // the other way; of rows that are left out: 0
  space::LayoutCosts costs;
  // Of each value of Knob::kLayout: which rows it has, and the least sum of its terms, or the
  // estimate of a pipeline; infinite where there is no such plan.
  std::array<std::vector<bool>, kLayouts> allowed;  // [A]; of pipelines none
  std::array<double, kLayouts> seconds{};
  std::array<Path, kLayouts> paths;  // that has it; of pipelines, whose groups have no row, zeros
  FormulaPipelines pipelines;
  std::array<MemoryNeed, kLayouts> memory{};  // of these plans
};
FormulaTerms formula_terms(const space::Summary& summary);

// A pipeline as the recomputation knob says, if there is one, or the other one; null: there is
// none.
const FormulaPipeline* pipeline_of(const FormulaTerms& terms, std::size_t layout, bool again);

// The estimate of memory that goes with the choice: forward passes run again, gradients put off.
double memory_need(const FormulaTerms& terms, const PlanChoice& choice);

// [layouts, kLayoutFeatures], row by row: mode and hidden part, and what the path of it is like.
std::vector<float> layout_features(const FormulaTerms& terms);

}  // namespace heterog::learn
