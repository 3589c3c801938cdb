// One compilation from layout to plan, and the sections in which it emits tasks.
#pragma once

#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/layout.h"
#include "compiler/movement.h"
#include "compiler/plan_builder.h"
#include "compiler/sections.h"

namespace heterog::compiler {

class Reuse;

// Runs every section of a compilation: from an earlier one where that can be, else by emission.
class SectionRunner {
 public:
  SectionRunner(Movement& movement, Reuse* reuse) : movement_(movement), reuse_(reuse) {}
  template <class Emit>
  void run(SectionKind kind, std::uint32_t id, Emit emit) {
    if (reuse_ && copied(kind, id)) return;
    movement_.begin_section({kind, id, movement_.marks()});
    emit();
    if (reuse_) note_emitted();
  }

 private:
  // If not, everything copied so far is in place.
  bool copied(SectionKind kind, std::uint32_t id);
  void note_emitted();
  Movement& movement_;
  Reuse* reuse_;
};

struct Compilation {
  Bytes bucket_bytes = 0;
  std::vector<OpPriority> priorities;  // empty: by rank
  Layout layout;
  PlanBuilder builder;
  Movement movement;
  Marks end;  // of the last section
  Plan plan;

  Compilation(const cost::Problem& problem, const Strategy& strategy, const CompileOptions& options,
              Plan recycled)
      : bucket_bytes(strategy.bucket_bytes),
        priorities(strategy.priorities),
        layout(lay_out(problem, strategy)),
        builder(problem.cluster->device_count(), problem.cluster->link_count(),
                std::move(recycled)),
        movement(problem, layout, options, builder) {}
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;
};

// The pass list: forward and backward, gradients, updates, pulls, statistics; then memory and
// ranks. `reuse` may be null.
void build_plan(const cost::Problem& problem, Compilation& compilation, Reuse* reuse);

}  // namespace heterog::compiler
