// The distribution over whole plans that the formula and a network's additions make: values of
// knobs, and of the layout that is drawn, a path of rows.
//
//   π(plan) = π(layout) · Π π(knob that matters to it) · π(path | layout)
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "base/rng.h"
#include "learn/formula/chain.h"
#include "learn/formula/formula_output.h"
#include "learn/formula/plan_choice.h"
#include "learn/formula/terms.h"
#include "space/action_space.h"

namespace heterog::learn {

struct DrawnPlan {
  PlanChoice choice{};  // knobs that do not matter: 0
  Path path;
  friend bool operator==(const DrawnPlan&, const DrawnPlan&) = default;
};

// A plan as numbers of one list, as cases keep what they have drawn: the row of each group, then
// the value of each knob.
std::vector<space::ActionId> to_actions(const FormulaTerms& terms, const DrawnPlan& plan);
DrawnPlan to_plan(const FormulaTerms& terms, const std::vector<space::ActionId>& actions);

// What the formula says by itself: the layout of groups that it finds fastest and the pipeline,
// each if there is one that fits by the estimate of its memory, with recomputation and in the order
// that this asks for; or if none fits, whatever their memory.
std::vector<DrawnPlan> formula_plans(const FormulaTerms& terms);

// S draws from one pass, by forward filtering and backward sampling; draw s depends on (rng, s)
// alone.
std::vector<DrawnPlan> draw_plans(const FormulaTerms& terms, const FormulaOutput& output,
                                  std::int64_t samples, const Rng& rng);

// `plan`, but for a stretch of groups, of 1 to N, each power of two as likely as the next, whose
// rows are drawn anew by π given all others; every fourth, and a pipeline always, but for one knob.
// Of another layout the path is drawn as a whole. Draw s depends on (rng, s) alone.
std::vector<DrawnPlan> redraw_parts(const FormulaTerms& terms, const FormulaOutput& output,
                                    const DrawnPlan& plan, std::int64_t samples, const Rng& rng);

// The best path of the most likely choices, as many as `take` wants: it is given one after another,
// the most likely first, and says whether to go on. Further choices of one mode come later than
// their likelihood says.
void visit_likely_plans(const FormulaTerms& terms, const FormulaOutput& output,
                        const std::function<bool(const DrawnPlan&)>& take);

// Σ_s weight_s · log π(plan_s), with gradients.  scalar, float64
torch::Tensor weighted_log_likelihood(const FormulaTerms& terms, const FormulaOutput& output,
                                      const std::vector<DrawnPlan>& plans,
                                      const std::vector<double>& weights);
// Of the knobs that matter to the layout that is drawn, in nats.  scalar, float64
torch::Tensor knob_entropy(const FormulaTerms& terms, const FormulaOutput& output);

}  // namespace heterog::learn
