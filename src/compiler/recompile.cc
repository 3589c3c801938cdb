// Finds the sections of the last compilation that the new strategy leaves as they are.
#include "compiler/recompile.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "compiler/compilation.h"

namespace heterog::compiler {

// What one compilation can take from the one before, `old`.
//
// An op is emitted as before if it runs on the same slices and finds everything where it was. Where
// a tensor is depends on the slices of its producer, of those who fetched it earlier and, for a
// parameter, on its home: a tensor is touched if any of these changed. So a section may be copied
// if its own slices are the same and it reads and replaces untouched tensors only. Its tasks may
// refer to tasks of sections that are emitted anew; where such a section comes out in the same
// shape, its tasks take the names of the old ones, and where it does not, they have none and
// whoever refers to them is emitted, too.
class Reuse {
 public:
  Reuse(const cost::Problem& problem, const Compilation& old, Compilation& now)
      : problem_(problem), old_(old), now_(now) {
    find_changes();
    if (!is_worthwhile()) return;
    find_sections();
    names_.task.assign(old.plan.task_count(), PlanBuilder::Names::kNone);
    names_.buffer.assign(old.plan.buffers.size(), PlanBuilder::Names::kNone);
  }
  // Copies are made a run of sections at a time: they are in place after flush().
  bool copy(SectionKind kind, std::uint32_t id);
  void flush();
  void note_emitted();
  std::size_t copied_tasks() const { return copied_tasks_; }
  // Where much has moved, looking for what has not costs more than it saves.
  bool is_worthwhile() const { return 8 * moved_ops_ < problem_.folded->ops.size(); }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  static constexpr int kKinds = static_cast<int>(SectionKind::kOther);

  void find_sections();
  void find_changes();
  bool home_changed(TensorId parameter) const;
  std::uint32_t section(SectionKind kind, std::uint32_t id) const {
    return kind == SectionKind::kOther ? kNone : section_of_[static_cast<int>(kind)][id];
  }
  Marks end_of(std::uint32_t section) const {
    const auto& sections = old_.movement.sections();
    return section + 1 < sections.size() ? sections[section + 1].begin : old_.end;
  }
  bool is_touched(SectionKind kind, std::uint32_t id) const;
  bool reads_touched(std::span<const graph::Read> reads) const;
  bool refers_to_lost(const Section& section, const Marks& end) const;
  bool same_shape(const Section& old_section, const Marks& old_end, const Section& section) const;
  void name(const Marks& begin, const Marks& end, std::uint32_t task, std::uint32_t buffer);

  const cost::Problem& problem_;
  const Compilation& old_;
  Compilation& now_;
  std::vector<std::uint32_t> section_of_[kKinds];  // [kind][id] → section of the old compilation
  IdVector<OpId, std::uint8_t> moved_;             // ops on other slices than before
  IdVector<TensorId, std::uint8_t> touched_;
  IdVector<TensorId, std::uint8_t> rehomed_;
  std::size_t moved_ops_ = 0;
  PlanBuilder::Names names_;
  std::uint32_t named_ = 0;  // every section of the old compilation before this one has names
  // Sections [run_first_, run_last_) of the old compilation are to be copied to run_at_.
  std::uint32_t run_first_ = 0;
  std::uint32_t run_last_ = 0;
  Marks run_at_;
  std::size_t copied_tasks_ = 0;
};

void Reuse::find_sections() {
  const std::size_t ids = std::max(
      {problem_.graph->op_count(), problem_.graph->tensor_count(), problem_.folded->chains.size()});
  for (auto& of_kind : section_of_) of_kind.assign(ids, kNone);
  const auto& sections = old_.movement.sections();
  for (std::uint32_t i = 0; i < sections.size(); ++i) {
    if (sections[i].kind == SectionKind::kOther) continue;
    section_of_[static_cast<int>(sections[i].kind)][sections[i].id] = i;
  }
}

bool Reuse::home_changed(TensorId parameter) const {
  const bool had = old_.layout.home_of[parameter] != Layout::kNoHome;
  const bool has = now_.layout.home_of[parameter] != Layout::kNoHome;
  if (had != has) return true;
  if (!has) return false;
  const ParameterHome& before = old_.layout.home(parameter);
  const ParameterHome& after = now_.layout.home(parameter);
  return before.replicas != after.replicas || before.method != after.method ||
         before.server != after.server ||
         old_.layout.slices[before.update] != now_.layout.slices[after.update];
}

void Reuse::find_changes() {
  const graph::ModelGraph& graph = *problem_.graph;
  moved_.assign(graph.op_count(), 0);
  touched_.assign(graph.tensor_count(), 0);
  rehomed_.assign(graph.tensor_count(), 0);
  for (TensorId parameter : graph.parameters()) rehomed_[parameter] = home_changed(parameter);

  // Layouts of equal slices, old to new.
  IdVector<LayoutId, LayoutId> same(old_.layout.slices.size());
  for (LayoutId before : id_range<LayoutId>(old_.layout.slices.size())) {
    for (LayoutId after : id_range<LayoutId>(now_.layout.slices.size())) {
      if (old_.layout.slices[before] == now_.layout.slices[after]) same[before] = after;
    }
  }
  const auto touch_reads = [&](std::span<const graph::Read> reads) {
    for (const graph::Read& read : reads) touched_[read.tensor] = touched_[read.base] = 1;
  };
  for (OpId op : problem_.folded->ops) {
    // An update op follows the parameter whose gradient it reads.
    const TensorId home = problem_.folded->home[op];
    if (home.valid() && rehomed_[home]) touch_reads(problem_.folded->reads[op]);
    const LayoutId before = old_.layout.of_op[op];
    moved_[op] = same[before] != now_.layout.of_op[op];
    if (!moved_[op]) continue;
    ++moved_ops_;
    touch_reads(problem_.folded->reads[op]);
    for (TensorId out : graph.outputs(op)) {
      if (out.valid()) touched_[out] = 1;
    }
  }
  for (const graph::UpdateChain& chain : problem_.folded->chains) {
    if (rehomed_[chain.parameter]) touch_reads(chain.reads);
  }
}

bool Reuse::reads_touched(std::span<const graph::Read> reads) const {
  return std::any_of(reads.begin(), reads.end(), [&](const graph::Read& read) {
    return touched_[read.tensor] || touched_[read.base] ||
           (!read.producer.valid() && rehomed_[read.base]);
  });
}

bool Reuse::is_touched(SectionKind kind, std::uint32_t id) const {
  const graph::ModelGraph& graph = *problem_.graph;
  const auto replaces_touched = [&](OpId op) {
    for (TensorId out : graph.outputs(op)) {
      if (!out.valid()) continue;
      const TensorId replaced = graph.tensor(out).replaces;
      if (replaced.valid() && (touched_[replaced] || rehomed_[replaced])) return true;
    }
    return false;
  };
  switch (kind) {
    case SectionKind::kOp:
      return moved_[OpId(id)] || reads_touched(problem_.folded->reads[OpId(id)]) ||
             replaces_touched(OpId(id));
    case SectionKind::kGradient:
      // Whose home it travels to is checked with the chain that reads it.
      return touched_[TensorId(id)] || old_.bucket_bytes != 0 || now_.bucket_bytes != 0;
    case SectionKind::kChain: {
      const graph::UpdateChain& chain = problem_.folded->chains[id];
      return rehomed_[chain.parameter] || touched_[chain.parameter] || reads_touched(chain.reads) ||
             std::any_of(chain.ops.begin(), chain.ops.end(), replaces_touched);
    }
    case SectionKind::kPull:
      return rehomed_[TensorId(id)] || touched_[TensorId(id)];
    case SectionKind::kOther:
      break;
  }
  return true;
}

// Some task reads or waits for what has no name in the new plan.
bool Reuse::refers_to_lost(const Section& section, const Marks& end) const {
  const Plan& plan = old_.plan;
  for (std::size_t i = section.begin.tasks; i < end.tasks; ++i) {
    for (TaskId before : old_.builder.predecessors()[TaskId(i)]) {
      if (before.value() < section.begin.tasks && names_.task[before.value()] == kNone) return true;
    }
    for (BufferId buffer : plan.reads[TaskId(i)]) {
      if (buffer.value() < section.begin.buffers && names_.buffer[buffer.value()] == kNone) {
        return true;
      }
    }
  }
  return false;
}

void Reuse::name(const Marks& begin, const Marks& end, std::uint32_t task, std::uint32_t buffer) {
  for (std::uint32_t i = begin.tasks; i < end.tasks; ++i) names_.task[i] = task++;
  for (std::uint32_t i = begin.buffers; i < end.buffers; ++i) names_.buffer[i] = buffer++;
}

bool Reuse::copy(SectionKind kind, std::uint32_t id) {
  const std::uint32_t index = section(kind, id);
  if (index == kNone || is_touched(kind, id)) return false;
  const Section& section = old_.movement.sections()[index];
  const Marks end = end_of(index);
  if (index != named_ && refers_to_lost(section, end)) return false;
  if (index != run_last_) flush();
  const bool is_first = run_first_ == run_last_;
  const Marks at = is_first
                       ? now_.movement.marks()
                       : run_at_ + (section.begin - old_.movement.sections()[run_first_].begin);
  name(section.begin, end, at.tasks, at.buffers);
  if (!old_.movement.can_replay(section, end, names_)) {
    std::fill(names_.task.begin() + section.begin.tasks, names_.task.begin() + end.tasks, kNone);
    std::fill(names_.buffer.begin() + section.begin.buffers, names_.buffer.begin() + end.buffers,
              kNone);
    return false;
  }
  if (is_first) {
    run_first_ = index;
    run_at_ = at;
  }
  run_last_ = index + 1;
  if (index == named_) ++named_;
  now_.movement.begin_section({kind, id, at});
  copied_tasks_ += end.tasks - section.begin.tasks;
  return true;
}

void Reuse::flush() {
  if (run_first_ == run_last_) return;
  const std::span<const Section> sections(old_.movement.sections());
  const Marks begin = sections[run_first_].begin;
  const Marks end = end_of(run_last_ - 1);
  now_.builder.append(old_.plan, old_.builder.predecessors(),
                      {begin.tasks, end.tasks, begin.buffers, end.buffers}, names_);
  now_.movement.replay(old_.movement, sections.subspan(run_first_, run_last_ - run_first_), end,
                       names_);
  run_first_ = run_last_ = 0;
}

bool Reuse::same_shape(const Section& old_section, const Marks& old_end,
                       const Section& section) const {
  const Plan& before = old_.plan;
  const Plan& after = now_.builder.plan();
  const std::size_t tasks = after.task_count() - section.begin.tasks;
  const std::size_t buffers = after.buffers.size() - section.begin.buffers;
  if (old_end.tasks - old_section.begin.tasks != tasks) return false;
  if (old_end.buffers - old_section.begin.buffers != buffers) return false;
  for (std::size_t i = 0; i < tasks; ++i) {
    const TaskId a(old_section.begin.tasks + i), b(section.begin.tasks + i);
    if (before.kind[a] != after.kind[b] || before.op[a] != after.op[b] ||
        before.tensor[a] != after.tensor[b] || before.device[a] != after.device[b] ||
        before.peer[a] != after.peer[b] || before.begin[a] != after.begin[b] ||
        before.end[a] != after.end[b]) {
      return false;
    }
  }
  for (std::size_t i = 0; i < buffers; ++i) {
    const Plan::Buffer& a = before.buffers[BufferId(old_section.begin.buffers + i)];
    const Plan::Buffer& b = after.buffers[BufferId(section.begin.buffers + i)];
    if (!(a == b)) return false;
  }
  return true;
}

void Reuse::note_emitted() {
  const Section& emitted = now_.movement.sections().back();
  const std::uint32_t index = section(emitted.kind, emitted.id);
  if (index == kNone) return;
  const Section& before = old_.movement.sections()[index];
  const Marks end = end_of(index);
  if (same_shape(before, end, emitted)) {
    name(before.begin, end, emitted.begin.tasks, emitted.begin.buffers);
    if (index == named_) ++named_;
  }
}

bool SectionRunner::copied(SectionKind kind, std::uint32_t id) {
  if (reuse_->copy(kind, id)) return true;
  reuse_->flush();
  return false;
}
void SectionRunner::note_emitted() { reuse_->note_emitted(); }

Recompiler::Recompiler(const cost::Problem& problem, CompileOptions options)
    : problem_(problem), options_(options) {}
Recompiler::~Recompiler() = default;

const Plan& Recompiler::compile(const Strategy& strategy) {
  check_strategy(problem_, strategy, "strategy");
  auto next =
      std::make_unique<Compilation>(problem_, strategy, options_, std::exchange(spare_, {}));
  copied_tasks_ = 0;
  if (last_) {
    Reuse reuse(problem_, *last_, *next);
    build_plan(problem_, *next, reuse.is_worthwhile() ? &reuse : nullptr);
    copied_tasks_ = reuse.copied_tasks();
    spare_ = std::move(last_->plan);
  } else {
    build_plan(problem_, *next, nullptr);
  }
  last_ = std::move(next);
  return last_->plan;
}

}  // namespace heterog::compiler
