// Bounds of a plan that look at one resource at a time, or at a stream that feeds one.
#pragma once

#include <vector>

#include "compiler/plan.h"

namespace heterog::sim {

// How early a task can start, and how long the step lasts after it has ended, in any order.
struct Window {
  IdVector<TaskId, Nanoseconds> head;
  IdVector<TaskId, Nanoseconds> tail;
};

// A head is at least that of each task before it and its duration. It is also at least the least
// head of all that has to run before it on some resource, and the time that all of this holds that
// resource: in a chain of layers with branches the longest path leaves out every branch but one, on
// one stream none is left out. Tails mirror that. Which tasks come before a task is kept as one bit
// each, so resources are looked at while a budget of work lasts, the busiest first: one of each
// load and number of tasks, then the others, whose devices are like theirs; a plan that is too
// large gets longest paths on the rest.
Window windows(const compiler::Plan& plan);

// Work on a machine that does one thing at a time.
struct Job {
  Nanoseconds head = 0;  // not before
  Nanoseconds work = 0;
  Nanoseconds tail = 0;  // what follows, elsewhere
};
// Until the last job and what follows it are over, with pre-emption, at the least: at any moment,
// of the jobs at hand the one with the longest tail runs (Jackson's preemptive schedule, which is
// optimal). O(n log n).
Nanoseconds jackson(std::vector<Job> jobs);

// A bound by streams that are slowed by d thousandths while their device takes part in collectives.
// Let S be the tasks on one that no less than q follows, C their work, and h their least head. They
// run in [h, T − q] of a step of T, in which collectives take no less than H − h − q of the
// device's H. What the stream gets through there is at most its length less d / (1000 + d) of that
// time. So T ≥ h + C + (H − h − q) · d / (1000 + d) + q. For every q.
Nanoseconds slowed_stream_bound(const compiler::Plan& plan, const Window& window);

// The greatest bound of every stream, channel and link.
Nanoseconds one_machine_bound(const compiler::Plan& plan, const Window& window);

// Of a stream that feeds a link or channel, a flow shop of two machines, after Johnson. Let J be a
// task on the link, and any other task i there have b(i) on the link and, on the stream, a(i) of
// work that has to be done for i, is counted for no other i, and need not be done for J. If i goes
// over the link before J, its a(i) is done before J starts, with all that J needs; if after, its
// b(i) follows J. So the step takes at least what J needs on the stream, J itself, and the smaller
// of a(i) and b(i) for every i. Where what goes over the link are collectives that slow the stream
// by d thousandths, those before J take d / (1000 + d) of their time from what the stream does
// until J, whether it works beside them or stands still: so much is added to a(i), and for each
// that J needs. Looked at on the busiest streams and the busiest channel and link, for the tasks J
// there that can end last.
Nanoseconds two_machine_bound(const compiler::Plan& plan, const Window& window);

}  // namespace heterog::sim
