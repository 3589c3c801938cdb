// What classes of operators take on a type of device beside what was believed, by those of them
// that were measured.
#pragma once

#include <array>
#include <span>

#include "cluster/cluster.h"

namespace heterog::cost {

// An operator that was measured: the logarithm of what it took over what was believed.
struct MeasuredRatio {
  cluster::OpClass op_class = cluster::OpClass::kElementwise;
  double log_ratio = 0;
};

// The logarithm of measured over believed of each class: what an operator that was not measured is
// thought to be off by. With r_i of the operators that were measured, n_c of them in class c, and
// R_c the mean of their r_i:
//
//   type:    m   = Σ_c w_c R_c / (Σ_c w_c + λ),   w_c = n_c / (n_c + λ)
//   class:   x_c = (n_c R_c + λ m) / (n_c + λ),   λ = 1
//
// the means of a hierarchical model (ridge on logarithms): the m and x that minimise
//
//   Σ_i (r_i − x_c(i))² + λ Σ_c (x_c − m)² + λ² m²
//
// in which operators vary λ times as much around their class as classes do around their type, and
// those λ times as much as types around what was believed. A class of which nothing was measured
// has its type's m; without any measurement all are 0, which is what was believed.
//
// Public measurements give 1.2 and 0.7 for the two ratios (those of 0.1 ms and more 0.8 and 1.1),
// which predict no better than 1, and no class that is off alike on all types
// (scripts/calibrate/priors.py; docs/tuning.md has the figures).
std::array<double, cluster::kOpClassCount> class_log_ratios(
    std::span<const MeasuredRatio> measured);

}  // namespace heterog::cost
