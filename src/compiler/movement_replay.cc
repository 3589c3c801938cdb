// A section of another compilation's state, under new names.
#include "compiler/movement.h"

namespace heterog::compiler {
namespace {

using Names = PlanBuilder::Names;

Source renamed(const Source& source, const Names& names) {
  Source result;
  if (source.task.valid()) result.task = TaskId(names.task[source.task.value()]);
  if (source.buffer.valid()) result.buffer = BufferId(names.buffer[source.buffer.value()]);
  return result;
}

// A name that is gone reads as invalid.
bool has_name(const Source& source, const Names& names) {
  const Source result = renamed(source, names);
  return result.task.valid() == source.task.valid() &&
         result.buffer.valid() == source.buffer.valid();
}

}  // namespace

Marks Movement::marks() const {
  const auto size = [](const auto& items) { return static_cast<std::uint32_t>(items.size()); };
  return {static_cast<std::uint32_t>(builder_.plan().task_count()),
          size(builder_.plan().buffers),
          size(pieces_),
          size(reduced_locations_),
          size(readers_),
          size(kept_)};
}

bool Movement::can_replay(const Section& section, const Marks& end, const Names& names) const {
  for (std::uint32_t i = section.begin.pieces; i < end.pieces; ++i) {
    if (!has_name(pieces_[i].source, names)) return false;
  }
  for (std::uint32_t i = section.begin.reduced; i < end.reduced; ++i) {
    for (const Location& location : reduced_locations_[i]) {
      if (!has_name(location.source, names)) return false;
    }
  }
  for (std::uint32_t i = section.begin.readers; i < end.readers; ++i) {
    if (names.task[readers_[i].task.value()] == Names::kNone) return false;
  }
  return true;
}

void Movement::replay(const Movement& other, std::span<const Section> sections, const Marks& end,
                      const Names& names) {
  for (const Section& section : sections) {
    OpId op;
    if (section.kind == SectionKind::kOp) {
      op = OpId(section.id);
      for (TensorId out : graph_.outputs(op)) {
        if (!out.valid() || !other.first_buffer_[out].valid()) continue;
        first_buffer_[out] = BufferId(names.buffer[other.first_buffer_[out].value()]);
      }
      buffers_per_instance_[op] = other.buffers_per_instance_[op];
    } else if (section.kind == SectionKind::kChain) {
      op = update_op(problem_, problem_.folded->chains[section.id]);
    }
    if (op.valid() && other.first_task_[op].valid()) {
      first_task_[op] = TaskId(names.task[other.first_task_[op].value()]);
    }
  }
  const Marks& begin = sections.front().begin;
  for (std::uint32_t i = begin.pieces; i < end.pieces; ++i) {
    const Piece& piece = other.pieces_[i];
    add_piece(piece.cell, piece.begin, piece.end, renamed(piece.source, names));
  }
  for (std::uint32_t i = begin.reduced; i < end.reduced; ++i) {
    std::vector<Location> locations = other.reduced_locations_[i];
    for (Location& location : locations) location.source = renamed(location.source, names);
    set_reduced(other.reduced_tensors_[i], std::move(locations));
  }
  for (std::uint32_t i = begin.readers; i < end.readers; ++i) {
    add_reader(other.readers_[i].cell, TaskId(names.task[other.readers_[i].task.value()]));
  }
  for (std::uint32_t i = begin.kept; i < end.kept; ++i) {
    keep(other.kept_[i].cell, other.kept_[i].bytes);
  }
}

}  // namespace heterog::compiler
