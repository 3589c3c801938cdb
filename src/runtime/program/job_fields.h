// All fields of a job, one after the other: what every rank does in a step. A member that is added
// to a struct and not named here does not compile.
#pragma once

#include <concepts>
#include <cstdint>
#include <ranges>
#include <type_traits>

#include "runtime/program/program.h"

namespace heterog::runtime {

template <class T>
inline constexpr bool kIsId = false;
template <class Tag>
inline constexpr bool kIsId<Id<Tag>> = true;

// A number, an enumerator or an id.
template <class T>
concept JobLeaf = std::is_arithmetic_v<T> || std::is_enum_v<T> || kIsId<T>;

template <class T, class Struct>
concept Maybe = std::same_as<std::remove_const_t<T>, Struct>;

// Calls `visit` with all members of a struct, in their order.
template <Maybe<Cut> T, class Visit>
void visit_members(T& cut, const Visit& visit) {
  auto& [dim, outer, held, begin, count] = cut;
  visit(dim, outer, held, begin, count);
}
template <Maybe<BodyStep> T, class Visit>
void visit_members(T& step, const Visit& visit) {
  auto& [kind, in_place, op, tensor, slot, begin, end, rows, ops, replaced, capture, cut, factor,
         in, out, dead] = step;
  visit(kind, in_place, op, tensor, slot, begin, end, rows, ops, replaced, capture, cut, factor, in,
        out, dead);
}
template <Maybe<CompressedValue> T, class Visit>
void visit_members(T& value, const Visit& visit) {
  auto& [tensor, first_row, compression] = value;
  auto& [compressor, rank, feedback] = compression;
  visit(tensor, first_row, compressor, rank, feedback);
}
template <Maybe<Instruction> T, class Visit>
void visit_members(T& instruction, const Visit& visit) {
  auto& [task, queue, lane, action, in_place, peer, set, cuts, part, tensor, samples, rows,
         first_row, packed, own, own_is_packed, resident, compressed, body, registers, values,
         slots, waits_for, wakes, reads, drops] = instruction;
  visit(task, queue, lane, action, in_place, peer, set, cuts, part, tensor, samples, rows,
        first_row, packed, own, own_is_packed, resident, compressed, body, registers, values, slots,
        waits_for, wakes, reads, drops);
}
template <Maybe<Slot> T, class Visit>
void visit_members(T& slot, const Visit& visit) {
  auto& [kind, tensor, readers, begin, end] = slot;
  visit(kind, tensor, readers, begin, end);
}
template <Maybe<Capture> T, class Visit>
void visit_members(T& capture, const Visit& visit) {
  auto& [tensor, weight, partial, begin, end, first_row, rows] = capture;
  visit(tensor, weight, partial, begin, end, first_row, rows);
}
template <Maybe<Program> T, class Visit>
void visit_members(T& program, const Visit& visit) {
  auto& [device, slots, instructions, queues, slot_of, captures] = program;
  visit(device, slots, instructions, queues, slot_of, captures);
}
// What the problem is has a hash of its own.
template <Maybe<Job> T, class Visit>
void visit_members(T& job, const Visit& visit) {
  auto& [problem, sets, programs] = job;
  const std::uint64_t graph = problem->graph->hash(), cluster = problem->cluster->hash();
  visit(graph, cluster, problem->batch, sets, programs);
}

// Calls `leaf` with every number, enumerator and id below `value`, and, as a constant, with the
// length of every list before its items.
template <class T, class Leaf>
void visit_leaves(T& value, const Leaf& leaf) {
  if constexpr (JobLeaf<std::remove_const_t<T>>) {
    leaf(value);
  } else if constexpr (requires {
                         value.begin();
                         value.size();
                       }) {
    const std::size_t length = value.size();
    leaf(length);
    for (auto& item : value) visit_leaves(item, leaf);
  } else {
    visit_members(value, [&](auto&... members) { (visit_leaves(members, leaf), ...); });
  }
}

}  // namespace heterog::runtime
