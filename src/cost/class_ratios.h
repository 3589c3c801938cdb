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
// thought to be off by. With r_i of the operators that were measured, n_c of them in class c, the
// mean of their r_i being R_c, and C the number of classes with n_c > 0:
//
//   type:    m   = Σ_c R_c / (C + λ)
//   class:   x_c = (n_c R_c + λ m) / (n_c + λ),      λ = 1
//
// the means of a hierarchical model (ridge on logarithms) in which operators vary around their
// class as much as classes do around their type, and types around what was believed: λ is the ratio
// of these variances. A class of which nothing was measured has its type's m; without any
// measurement all are 0, which is what was believed.
std::array<double, cluster::kOpClassCount> class_log_ratios(
    std::span<const MeasuredRatio> measured);

}  // namespace heterog::cost
