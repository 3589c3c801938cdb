// Between the registers and slots of a worker and its transport.
#include "runtime/exec/exchange.h"

#include <algorithm>

#include "base/check.h"
#include "runtime/exec/rows.h"
#include "runtime/kernels/memory_order.h"

namespace heterog::runtime {

namespace {

std::uint32_t tag(const Instruction& instruction) { return instruction.task.value(); }

}  // namespace

Exchange::Exchange(const Job& job, const Program& program, comm::Transport& transport,
                   IdVector<SlotId, at::Tensor>& values, CompressionState& compression,
                   const Options& options)
    : graph_(*job.problem->graph),
      program_(program),
      transport_(transport),
      values_(values),
      compression_(compression),
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
      at::Tensor value = given[0].to(type);
      if (!instruction.compressed.empty()) {
        value = cast(instruction.compressed[0], value, compression_);
      }
      return transport_.send(value.contiguous(), instruction.peer, tag(instruction));
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
      return reduce_scatter(instruction, given);
    case Action::kAllGather:
      return all_gather(instruction, given);
    case Action::kGatherParts:
      return gather_parts(instruction, given);
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
  if (instruction.rows > 0) return receive_part(instruction, slot);
  // A new parameter comes where the old one is.
  at::Tensor value =
      instruction.resident ? slot : empty(instruction.tensor, instruction.samples, options_.device);
  receive_value(instruction, value);
  slot = value;
}

void Exchange::receive_value(const Instruction& instruction, at::Tensor& value) {
  if (instruction.compressed.empty()) {
    return transport_.receive(value, instruction.peer, tag(instruction));
  }
  const at::ScalarType type = cast_type(instruction.compressed[0].compression.compressor);
  at::Tensor arrived = at::empty(value.sizes(), value.options().dtype(type));
  transport_.receive(arrived, instruction.peer, tag(instruction));
  value.copy_(arrived);
}

// Others may read and write other rows of what stays meanwhile: its slot is left as it is.
void Exchange::receive_part(const Instruction& instruction, at::Tensor& slot) {
  if (!instruction.resident) {
    at::Tensor part = empty(instruction.tensor, instruction.samples, at::kMeta);
    std::vector<std::int64_t> sizes = part.sizes().vec();
    sizes[0] = instruction.rows;
    part = at::empty(sizes, part.options().device(options_.device));
    receive_value(instruction, part);
    slot = part;
    return;
  }
  const at::Tensor place = slot.narrow(0, instruction.first_row, instruction.rows);
  at::Tensor part =
      place.is_contiguous() ? place : at::empty_like(place, at::MemoryFormat::Contiguous);
  transport_.receive(part, instruction.peer, tag(instruction));
  if (!part.is_same(place)) place.copy_(part);
}

void Exchange::receive_rows(const Instruction& instruction) {
  const at::Tensor like = empty(instruction.tensor, 1, at::kMeta);
  at::Tensor packed = at::empty({packed_bytes(like, instruction.rows)},
                                at::TensorOptions().dtype(at::kByte).device(options_.device));
  transport_.receive(packed, instruction.peer, tag(instruction));
  values_[instruction.slots[0]] = packed;
}

namespace {

std::vector<at::ScalarType> types_of(const std::vector<at::Tensor>& values) {
  std::vector<at::ScalarType> types;
  for (const at::Tensor& value : values) {
    if (std::ranges::find(types, value.scalar_type()) == types.end()) {
      types.push_back(value.scalar_type());
    }
  }
  return types;
}

}  // namespace

// The sums over a set; values of one type side by side in one buffer. A single one's memory may be
// taken if `in_place`.
std::vector<at::Tensor> Exchange::add_up(const std::vector<at::Tensor>& values, std::uint32_t set,
                                         bool in_place) {
  if (values.size() == 1) {
    at::Tensor value = values[0].contiguous();
    if (!in_place && value.is_same(values[0])) value = value.clone();
    transport_.all_reduce(value, set);
    return {value};
  }
  std::vector<at::Tensor> sums(values.size());
  for (at::ScalarType type : types_of(values)) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& value : values) {
      if (value.scalar_type() == type) flat.push_back(value.reshape({-1}));
    }
    at::Tensor fused = at::cat(flat);
    transport_.all_reduce(fused, set);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i].scalar_type() != type) continue;
      sums[i] = fused.narrow(0, at, values[i].numel()).view(values[i].sizes());
      at += values[i].numel();
    }
  }
  return sums;
}

void Exchange::all_reduce(const Instruction& instruction, std::vector<at::Tensor>& given) {
  if (!instruction.compressed.empty()) return all_reduce_compressed(instruction, given);
  const std::vector<at::Tensor> sums = add_up(given, instruction.set, instruction.in_place);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const SlotId slot = instruction.slots[i];
    // What stays must not keep the whole buffer alive.
    const bool stays = program_.slots[slot].kind == Slot::Kind::kResident && given.size() > 1;
    values_[slot] = stays ? sums[i].clone() : sums[i];
  }
}

// Gradients alone, none of which stays.
void Exchange::all_reduce_compressed(const Instruction& instruction,
                                     std::vector<at::Tensor>& given) {
  CompressedSums forms(instruction, given, compression_);
  const std::vector<at::Tensor> sums = add_up(forms.first(), instruction.set, true);
  std::vector<at::Tensor> factors = forms.second(sums);
  if (!factors.empty()) factors = add_up(factors, instruction.set, true);
  const std::vector<at::Tensor> whole = forms.whole(sums, factors);
  for (std::size_t i = 0; i < given.size(); ++i) {
    at::Tensor& slot = values_[instruction.slots[i]];
    slot = instruction.in_place ? given[i].copy_(whole[i]) : whole[i];
  }
}

// Owner by owner, the rows that are his of all values of a type, flat; and where each owner's
// begin.
struct Exchange::SideBySide {
  SideBySide(const Instruction& instruction, const std::vector<at::Tensor>& all,
             at::ScalarType type)
      : cuts{0} {
    for (std::size_t v = 0; v < all.size(); ++v) {
      if (all[v].scalar_type() == type) values.push_back(v);
    }
    const std::size_t owners = instruction.cuts.front().size() - 1;
    for (std::size_t owner = 0; owner < owners; ++owner) {
      std::int64_t elements = 0;
      for (std::size_t v : values) {
        const comm::Cuts& of_value = instruction.cuts[v];
        elements += (of_value[owner + 1] - of_value[owner]) * (all[v].numel() / of_value.back());
      }
      cuts.push_back(cuts.back() + elements);
    }
  }

  // An owner's part of the flat tensor as that of each value, in the order of `values`.
  std::vector<at::Tensor> parts(const at::Tensor& flat, const Instruction& instruction,
                                const std::vector<at::Tensor>& all, std::size_t owner) const {
    std::vector<at::Tensor> found;
    std::int64_t at = 0;
    for (std::size_t v : values) {
      const comm::Cuts& of_value = instruction.cuts[v];
      std::vector<std::int64_t> sizes = all[v].sizes().vec();
      sizes[0] = of_value[owner + 1] - of_value[owner];
      const std::int64_t elements = sizes[0] * (all[v].numel() / of_value.back());
      found.push_back(flat.narrow(0, at, elements).view(sizes));
      at += elements;
    }
    return found;
  }

  std::vector<std::size_t> values;  // which of all
  comm::Cuts cuts;                  // of the flat tensor, in elements
};

// The part is what its buffer holds, and keeps nothing else alive.
void Exchange::reduce_scatter(const Instruction& instruction, std::vector<at::Tensor>& given) {
  std::vector<at::Tensor> forms = given;
  if (!instruction.compressed.empty()) {
    forms = CompressedSums(instruction, given, compression_).first();
  }
  const auto store = [&](std::size_t v, const at::Tensor& part) {
    values_[instruction.slots[v]] = part.to(given[v].scalar_type());
  };
  if (given.size() == 1) {
    at::Tensor value = forms[0].contiguous();
    if (!instruction.in_place && value.is_same(given[0])) value = value.clone();
    transport_.reduce_scatter(value, instruction.cuts[0], instruction.set);
    return store(0, comm::part_of(value, instruction.cuts[0], instruction.part).clone());
  }
  for (at::ScalarType type : types_of(forms)) {
    const SideBySide side(instruction, forms, type);
    std::vector<at::Tensor> pieces;
    for (std::size_t owner = 0; owner + 1 < side.cuts.size(); ++owner) {
      for (std::size_t v : side.values) {
        pieces.push_back(comm::part_of(forms[v], instruction.cuts[v], owner).reshape({-1}));
      }
    }
    at::Tensor flat = at::cat(pieces);
    transport_.reduce_scatter(flat, side.cuts, instruction.set);
    const at::Tensor own = comm::part_of(flat, side.cuts, instruction.part).clone();
    const std::vector<at::Tensor> parts = side.parts(own, instruction, forms, instruction.part);
    for (std::size_t i = 0; i < parts.size(); ++i) store(side.values[i], parts[i]);
  }
}

// Each value is whole, its own rows up to date, and gets all others.
void Exchange::all_gather(const Instruction& instruction, std::vector<at::Tensor>& given) {
  if (given.size() == 1 && given[0].is_contiguous()) {
    return transport_.all_gather_rows(given[0], instruction.cuts[0], instruction.set);
  }
  for (at::ScalarType type : types_of(given)) {
    const SideBySide side(instruction, given, type);
    at::Tensor flat = at::empty({side.cuts.back()}, given[side.values[0]].options());
    const auto each_part = [&](std::size_t owner, const auto& visit) {
      const std::vector<at::Tensor> parts =
          side.parts(comm::part_of(flat, side.cuts, owner), instruction, given, owner);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::size_t v = side.values[i];
        visit(parts[i], comm::part_of(given[v], instruction.cuts[v], owner));
      }
    };
    each_part(instruction.part,
              [](const at::Tensor& part, const at::Tensor& place) { part.copy_(place); });
    transport_.all_gather_rows(flat, side.cuts, instruction.set);
    for (std::size_t owner = 0; owner + 1 < side.cuts.size(); ++owner) {
      if (owner == instruction.part) continue;
      each_part(owner, [](const at::Tensor& part, const at::Tensor& place) { place.copy_(part); });
    }
  }
}

// What stays is not touched. Each whole lies as the graph wants it, in memory of its own.
void Exchange::gather_parts(const Instruction& instruction, std::vector<at::Tensor>& given) {
  std::vector<at::Tensor> wholes;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const TensorId tensor = program_.slots[instruction.slots[i]].tensor;
    at::Tensor& whole =
        wholes.emplace_back(laid_as(graph_.tensor(tensor), empty(tensor, 1, options_.device)));
    comm::part_of(whole, instruction.cuts[i], instruction.part).copy_(given[i]);
  }
  all_gather(instruction, wholes);
  for (std::size_t i = 0; i < wholes.size(); ++i) values_[instruction.slots[i]] = wholes[i];
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
