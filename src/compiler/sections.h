// The parts in which a plan is emitted, and where each begins in what a compilation appends to.
#pragma once

#include <cstdint>

namespace heterog::compiler {

// What a section emits the tasks of; its id is that of the op, tensor, chain or parameter.
enum class SectionKind : std::uint8_t {
  kOp,        // an op
  kGradient,  // the aggregation of one gradient
  kChain,     // the update of one parameter
  kPull,      // the new parameter on its way from its server
  kOther,     // anything else: is emitted anew in every plan
};

// Sizes of everything that emission appends to, at the beginning of a section.
struct Marks {
  std::uint32_t tasks = 0;
  std::uint32_t buffers = 0;
  std::uint32_t pieces = 0;
  std::uint32_t reduced = 0;
  std::uint32_t readers = 0;
  std::uint32_t kept = 0;

  friend Marks operator+(const Marks& a, const Marks& b) {
    return {a.tasks + b.tasks,     a.buffers + b.buffers, a.pieces + b.pieces,
            a.reduced + b.reduced, a.readers + b.readers, a.kept + b.kept};
  }
  friend Marks operator-(const Marks& a, const Marks& b) {
    return {a.tasks - b.tasks,     a.buffers - b.buffers, a.pieces - b.pieces,
            a.reduced - b.reduced, a.readers - b.readers, a.kept - b.kept};
  }
};

// Ends where the next one begins. Sections stand in the order of emission, which is the same in
// every plan of a problem, though not every plan has each of them.
struct Section {
  SectionKind kind = SectionKind::kOther;
  std::uint32_t id = 0;
  Marks begin;
};

}  // namespace heterog::compiler
