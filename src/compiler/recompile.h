// Compiles strategies one after another, copying from the last plan what a change does not touch.
#pragma once

#include <cstddef>
#include <memory>

#include "compiler/compile.h"

namespace heterog::compiler {

// Gives the plans that compile() gives. Where a strategy differs from the one before in a few
// units, the tasks of ops that run, read and are read as before are copied, with what the state of
// the compilation was told of them, and the others are emitted anew. Not for several threads.
class Recompiler {
 public:
  explicit Recompiler(const cost::Problem& problem, CompileOptions options = {});
  ~Recompiler();
  Recompiler(const Recompiler&) = delete;
  Recompiler& operator=(const Recompiler&) = delete;

  // Valid until the next call.
  const Plan& compile(const Strategy& strategy);
  // Of the last plan: tasks that were copied.
  std::size_t copied_tasks() const { return copied_tasks_; }

 private:
  const cost::Problem& problem_;
  CompileOptions options_;
  std::unique_ptr<struct Compilation> last_;
  Plan spare_;  // the one before the last, for its memory
  std::size_t copied_tasks_ = 0;
};

}  // namespace heterog::compiler
