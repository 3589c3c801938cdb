// Devices that are alike are not equally fast, and a step waits for the slowest of them.
#pragma once

#include "cluster/cluster.h"
#include "compiler/plan.h"
#include "compiler/symmetry.h"

namespace heterog::compiler {

// The mean of the largest of n draws from a normal distribution of mean 0 and deviation 1: 0 of
// one, 0.56 of two, 1.42 of eight. 1 ≤ n ≤ cluster::kMaxDevices.
double expected_largest(std::size_t n);

// Decision 18. Where n devices compute, what each of them computes takes 1 + deviation ·
// expected_largest(n) times as long, with the deviation of its type. One device waits for nobody.
// `symmetry`: of a plan of representatives, each of which counts as often as it stands for others.
void wait_for_slowest(const cluster::Cluster& cluster, Plan& plan,
                      const Symmetry* symmetry = nullptr);

}  // namespace heterog::compiler
