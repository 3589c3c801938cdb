// What no plan of a problem can beat, whatever its decisions and its order.
#pragma once

#include "cost/problem.h"

namespace heterog::sim {

// The greater of two bounds, each of which holds for every strategy that can be compiled.
//
// Work and waiting. The slices of a forward or backward op add up to the batch, B samples, and a
// slice of n samples takes c(n) of its device's type. So an op cut into slices of n samples is at
// least c(n) B / n of work; and each sample waits for c(n) in it, if it is one of a chain of ops of
// which each reads the samples of the one before. Let every device have a weight y(d) > 0 and the
// chain a weight z ≥ 0, all together 1. A step is at least as long as the work of each device, and
// as what samples wait for along the chain, at the mean over them; so at least the mean of all
// these by their weights. Of a slice of an op on d this counts y(d) c(n) + z c(n) n / B. Summed
// over the slices it is at least the least over d and n of c(n) (y(d) B / n + z), without z for ops
// that are not of the chain. That holds for any weights and any chain: the chain is the longest of
// even slices, weights are searched for one after another. Large slices make a sample wait, small
// ones cost their fixed part often. An op that runs whole has n = B. An update op runs whole on one
// device or on several, and shares at most its launch with others: it counts its time less a
// launch. Where k devices compute, each of them is slowed by the deviation of the slowest (decision
// 18), and at best they are the k that weigh most: the bound is the least over k.
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
