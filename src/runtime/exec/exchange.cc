// Between the registers and slots of a worker and its transport.
#include "runtime/exec/exchange.h"

#include <algorithm>

#include "base/check.h"
#include "runtime/exec/rows.h"

namespace heterog::runtime {

namespace {

std::uint32_t tag(const Instruction& instruction) { return instruction.task.value(); }

}  // namespace

Exchange::Exchange(const Job& job, const Program& program, comm::Transport& transport,
                   IdVector<SlotId, at::Tensor>& values, const Options& options)
    : graph_(*job.problem->graph),
      job_batch_(job.problem->batch),
      program_(program),
      transport_(transport),
      values_(values),
      options_(options) {}

void Exchange::act(const Instruction& instruction, std::vector<at::Tensor>& given) {
  switch (instruction.action) {
    case Action::kNone:
      return;
    case Action::kSend: {
      // In the type that the receiver has memory for: what an operator saves may be of another on
      // this kind of device (runtime/gpu/saved_results.h).
      const at::ScalarType type =
          scalar_type(graph_.tensor(instruction.tensor).dtype, options_.floats);
      return transport_.send(given[0].to(type).contiguous(), instruction.peer, tag(instruction));
    }
    case Action::kSendRows:
      return transport_.send(pack_rows(given[0], instruction.rows), instruction.peer,
                             tag(instruction));
    case Action::kReceive:
      return receive(instruction);
    case Action::kReceiveRows:
      return receive_rows(instruction);
    case Action::kAllReduce:
      return all_reduce(instruction, given);
    case Action::kReduceScatter:
      return reduce_scatter(instruction, given[0]);
    case Action::kAllGather:
      return all_gather(instruction, given[0]);
    case Action::kGatherRows:
      values_[instruction.slots[0]] =
          at::stack(transport_.all_gather(pack_rows(given[0], instruction.rows), instruction.set));
      return;
    case Action::kAddRows:
      return sum_rows(instruction, given);
  }
}

at::Tensor Exchange::empty(TensorId tensor, std::int64_t samples, at::Device device) const {
  return at::empty(sizes_at(graph_.shape(tensor), samples),
                   at::TensorOptions()
                       .dtype(scalar_type(graph_.tensor(tensor).dtype, options_.floats))
                       .device(device));
}

void Exchange::receive(const Instruction& instruction) {
  at::Tensor& slot = values_[instruction.slots[0]];
  // A new parameter comes where the old one is.
  at::Tensor value =
      instruction.resident ? slot : empty(instruction.tensor, instruction.samples, options_.device);
  transport_.receive(value, instruction.peer, tag(instruction));
  slot = value;
}

void Exchange::receive_rows(const Instruction& instruction) {
  const at::Tensor like = empty(instruction.tensor, 1, at::kMeta);
  at::Tensor packed = at::empty({packed_bytes(like, instruction.rows)},
                                at::TensorOptions().dtype(at::kByte).device(options_.device));
  transport_.receive(packed, instruction.peer, tag(instruction));
  values_[instruction.slots[0]] = packed;
}

void Exchange::all_reduce(const Instruction& instruction, std::vector<at::Tensor>& given) {
  if (given.size() == 1) {
    at::Tensor value = given[0].contiguous();
    if (!instruction.in_place && value.is_same(given[0])) value = value.clone();
    transport_.all_reduce(value, instruction.set);
    values_[instruction.slots[0]] = value;
    return;
  }
  // Side by side in one buffer, one a type of element.
  std::vector<at::ScalarType> types;
  for (const at::Tensor& value : given) {
    if (std::find(types.begin(), types.end(), value.scalar_type()) == types.end()) {
      types.push_back(value.scalar_type());
    }
  }
  for (at::ScalarType type : types) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& value : given) {
      if (value.scalar_type() == type) flat.push_back(value.reshape({-1}));
    }
    at::Tensor fused = at::cat(flat);
    transport_.all_reduce(fused, instruction.set);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i].scalar_type() != type) continue;
      at::Tensor part = fused.narrow(0, at, given[i].numel()).view(given[i].sizes());
      at += given[i].numel();
      const SlotId slot = instruction.slots[i];
      // What stays must not keep the whole buffer alive.
      const bool stays = program_.slots[slot].kind == Slot::Kind::kResident;
      values_[slot] = stays ? part.clone() : part;
    }
  }
}

// The part is what its buffer holds, and keeps nothing else alive.
void Exchange::reduce_scatter(const Instruction& instruction, const at::Tensor& given) {
  at::Tensor value = given.contiguous();
  if (!instruction.in_place && value.is_same(given)) value = value.clone();
  transport_.reduce_scatter(value, instruction.cuts, instruction.set);
  values_[instruction.slots[0]] = comm::part_of(value, instruction.cuts, instruction.part).clone();
}

void Exchange::all_gather(const Instruction& instruction, const at::Tensor& given) {
  at::Tensor value = empty(instruction.tensor, job_batch_, given.device());
  comm::part_of(value, instruction.cuts, instruction.part).copy_(given);
  transport_.all_gather_rows(value, instruction.cuts, instruction.set);
  values_[instruction.slots[0]] = value;
}

void Exchange::sum_rows(const Instruction& instruction, std::vector<at::Tensor>& given) {
  std::vector<at::Tensor> packed;
  AddRowsOptions options{.in_place = instruction.in_place};
  const auto whole = given.begin() + 1 + instruction.packed;
  if (instruction.own_is_packed) {
    options.own = instruction.own;
    for (std::int64_t i = 0; i < given[1].size(0); ++i) packed.push_back(given[1][i]);
  } else {
    packed.assign(given.begin() + 1, whole);
  }
  at::Tensor sum = add_rows(given[0], packed, options);
  for (auto value = whole; value != given.end(); ++value) sum.add_(*value);
  values_[instruction.slots[0]] = sum;
}

}  // namespace heterog::runtime
