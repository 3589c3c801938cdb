// Moves tensors between the ranks of a job: what the communication of a rank program runs on.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/device_sets.h"

namespace heterog::comm {

// A part of the value, as a view.
at::Tensor part_of(const at::Tensor& value, const Cuts& cuts, std::size_t part);

// One rank's end; the rank of a job that runs device d is d. At any moment at most one thread of
// the rank sends to a peer, one receives from it and one takes part in a collective; and to, or
// from, all peers at most one, unless messages_side_by_side(). Every rank issues the sends between
// two devices, and the collectives that two devices both take part in, in the same order. Calls
// block. A peer that is lost, does not come within the time-out of the implementation, or has
// called abort() ends them with an Error (kVerification) of one line that names the peer.
//
// On a device with streams, a call takes its place on the calling thread's current stream: it reads
// what was written there before, and what it writes is there for what comes after. It may return
// before the device has got that far; then check() says whether it went well.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual bool messages_side_by_side() const { return false; }
  // Returns once `value` may be changed again. `value` is contiguous.
  virtual void send(const at::Tensor& value, DeviceId to, std::uint32_t tag) = 0;
  // Fills `value`: contiguous, with the shape and dtype of what is sent with this tag.
  virtual void receive(at::Tensor& value, DeviceId from, std::uint32_t tag) = 0;

  // In place: the sum over the set (an index into the job's DeviceSets), the same bits on every
  // member. `value` is contiguous.
  virtual void all_reduce(at::Tensor& value, std::size_t set) = 0;
  // Both of these work on a value that is cut along its first axis, a part for each member in their
  // order: member i has rows [cuts[i], cuts[i + 1]), which may be none. `value` is contiguous, and
  // of one shape and dtype on all members.
  //
  // In place: the member's own rows become the sum over the set; of the others nothing can be said.
  virtual void reduce_scatter(at::Tensor& value, const Cuts& cuts, std::size_t set) = 0;
  // In place: the member's own rows are given to all, those of the others filled in.
  virtual void all_gather_rows(at::Tensor& value, const Cuts& cuts, std::size_t set) = 0;
  // The tensors that the members give, in the order of the set; all of one shape and dtype.
  virtual std::vector<at::Tensor> all_gather(const at::Tensor& own, std::size_t set) = 0;

  // The same over all ranks, in the order of ranks: between steps, while nothing else goes on.
  virtual std::vector<at::Tensor> gather_all(const at::Tensor& own) = 0;

  // Once streams have been waited for up to the end of a step, and while no call goes on:
  // throws as the call would have that did not do what it was to; among processes, also once the
  // job has ended. Where all tensors are in host memory, any thread may call it.
  virtual void check() {}

  // Ends every call of this rank that waits or is still to come, and lets the peers know, so that
  // theirs end soon too. From any thread; the first reason counts.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace heterog::comm
