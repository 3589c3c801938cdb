// What no plan of a problem can beat, whatever its decisions and its order.
#pragma once

#include "cost/problem.h"

namespace heterog::sim {

// The greater of two bounds, each of which holds for every strategy that can be compiled.
//
// Work. The slices of a forward or backward op add up to the batch, B samples, and a slice of n
// samples takes c(n) of its device's type. Let w be B times the least c(n) / n over all n ≤ B,
// which is at a knot, since c is linear between them: then a slice takes at least w n / B, however
// an op's fixed part is spread. So each device d has at least Σ x(o, d) w(o, type of d) of work,
// where the parts x(o, d) of an op sum to 1. An update op runs whole on one device or on several,
// and shares at most its launch with others: w is its time less a launch. Let every device have a
// weight y(d) > 0, all together 1. A step is at least as long as the mean of the devices' work by
// these weights, and this is at least Σ over ops of the least y(d) w(o, type of d). That is a bound
// for any weights, by the duality of linear programs the greatest is as good as any of this kind;
// weights of types are searched for one after another. Where k devices compute, each of them is
// slowed by the deviation of the slowest (decision 18), and at best they are the k that weigh most:
// the bound is the least over k.
//
// Chain. Every instance of an op waits for one of each op whose value it reads, a value that is
// counted on the first instance alone left out. So no instance ends before the longest chain of
// reads that leads to its op, each op at its least time over types and samples.
//
// Bytes are not in it. A machine that has a part of an op's samples moves all of its parameters'
// gradients, one that has all or none of them moves nothing: between parts 0 and 1 a linear program
// can charge no more than zero. It takes a search over which ops are whole where. Memory is not
// looked at either.
Nanoseconds least_step(const cost::Problem& problem);

}  // namespace heterog::sim
