// Copies between a device and pinned memory, in the order of streams.
#include "comm/staged_transport.h"

#include <c10/core/DeviceGuard.h>

#include <utility>

#include "comm/device_copies.h"

namespace heterog::comm {
namespace {

at::Tensor copied_out(const at::Tensor& value) {
  at::Tensor host = pinned_like(value);
  host.copy_(value, true);
  current_stream(value.device()).synchronize();  // before anybody reads it
  return host;
}

}  // namespace

// Copies are left behind by a step that failed. Their events end on their device: the thread may be
// on another, which would get a context.
StagedTransport::~StagedTransport() {
  for (Lane* lane : {&received_, &reduced_}) {
    if (lane->empty()) continue;
    const c10::DeviceGuard on_its_device(lane->front().done.device());
    lane->clear();
  }
}

void StagedTransport::drop_done(Lane& lane) {
  while (!lane.empty() && lane.front().done.query()) lane.pop_front();
}

void StagedTransport::copy_in(at::Tensor& value, at::Tensor host, Lane& lane) {
  drop_done(lane);
  value.copy_(host, true);
  c10::Event done(value.device().type());
  done.record(current_stream(value.device()));
  lane.push_back({std::move(done), std::move(host)});
}

void StagedTransport::send(const at::Tensor& value, DeviceId to, std::uint32_t tag) {
  host_.send(value.is_cpu() ? value : copied_out(value), to, tag);
}

void StagedTransport::receive(at::Tensor& value, DeviceId from, std::uint32_t tag) {
  if (value.is_cpu()) return host_.receive(value, from, tag);
  at::Tensor host = pinned_like(value);
  host_.receive(host, from, tag);
  copy_in(value, std::move(host), received_);
}

void StagedTransport::all_reduce(at::Tensor& value, std::size_t set) {
  if (value.is_cpu()) return host_.all_reduce(value, set);
  at::Tensor host = copied_out(value);
  host_.all_reduce(host, set);
  copy_in(value, std::move(host), reduced_);
}

void StagedTransport::reduce_scatter(at::Tensor& value, const Cuts& cuts, std::size_t set) {
  if (value.is_cpu()) return host_.reduce_scatter(value, cuts, set);
  at::Tensor host = copied_out(value);
  host_.reduce_scatter(host, cuts, set);
  copy_in(value, std::move(host), reduced_);
}

void StagedTransport::all_gather_rows(at::Tensor& value, const Cuts& cuts, std::size_t set) {
  if (value.is_cpu()) return host_.all_gather_rows(value, cuts, set);
  at::Tensor host = copied_out(value);
  host_.all_gather_rows(host, cuts, set);
  copy_in(value, std::move(host), reduced_);
}

std::vector<at::Tensor> StagedTransport::all_gather(const at::Tensor& own, std::size_t set) {
  if (own.is_cpu()) return host_.all_gather(own, set);
  std::vector<at::Tensor> gathered = host_.all_gather(copied_out(own), set);
  for (at::Tensor& value : gathered) {
    at::Tensor there = at::empty(value.sizes(), value.options().device(own.device()));
    copy_in(there, value, reduced_);
    value = there;
  }
  return gathered;
}

std::vector<at::Tensor> StagedTransport::gather_all(const at::Tensor& own) {
  return host_.gather_all(own);
}

void StagedTransport::check() {
  for (Lane* lane : {&received_, &reduced_}) drop_done(*lane);  // a later step's may be under way
  host_.check();
}

}  // namespace heterog::comm
