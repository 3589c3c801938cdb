// The state that all emitters of one plan's tasks share.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "compiler/compile_options.h"
#include "compiler/emit/costs.h"
#include "compiler/emit/emitted_again.h"
#include "compiler/emit/frozen.h"
#include "compiler/emit/whereabouts.h"
#include "compiler/plan_builder.h"
#include "compiler/symmetry.h"
#include "cost/problem.h"
#include "decide/layout.h"
#include "decide/recomputation.h"

namespace heterog::compiler {

// One plan while it is emitted. The functions of this folder take it, append tasks to `builder` and
// tell `where` what they bring about; they are called in the order of compile.cc, ops in
// topological order, so that what a task reads is there already.
struct Emission {
  const cost::Problem& problem;
  const decide::Layout& layout;
  CompileOptions options;
  PlanBuilder& builder;
  // Where `layout` has representatives alone: whom they stand for. Devices are then numbered as
  // there (places of the plan); what is asked of the cluster is asked of the device behind one.
  const Symmetry* symmetry;
  bool moves = false;  // something would move between representatives: they are none
  Whereabouts where;
  CollectiveCosts costs;
  decide::Recomputation recomputation = {};
  std::vector<EmittedAgain> again = {};  // in the order of the tasks
  FrozenGathers frozen = {};
  // Sharded parameters that one task a device updates, set by set: they are gathered together.
  std::vector<std::vector<TensorId>> sharded_sets = {};
  // Forms of gradients that were scattered, or pushed to several servers, each with its parameter.
  std::vector<std::pair<TensorId, TensorId>> scattered = {};
  // What compressors of gradients keep from step to step; empty where none keeps anything.
  IdVector<DeviceId, Bytes> compression_state = {};
  // Kept from op to op for their memory: what each instance reads, and what it reads of makers on
  // the same slices.
  std::vector<std::vector<Source>> sources = {};
  std::vector<Made> direct = {};

  // `symmetry`: null where the layout has all devices. Everything has to outlive it.
  Emission(const cost::Problem& one_problem, const decide::Layout& one_layout,
           const CompileOptions& one_options, PlanBuilder& one_builder,
           const Symmetry* one_symmetry)
      : problem(one_problem),
        layout(one_layout),
        options(one_options),
        builder(one_builder),
        symmetry(one_symmetry),
        where(one_problem, one_layout, one_builder.plan().device_count),
        costs(*one_problem.cluster, one_symmetry) {}

  DeviceTypeId type_id(DeviceId place) const {
    return problem.cluster->device(device_of(symmetry, place)).type;
  }
  const cluster::DeviceType& type_of(DeviceId place) const {
    return problem.cluster->type(type_id(place));
  }
  // Devices that stand behind these.
  std::size_t count(std::span<const DeviceId> places) const {
    return symmetry ? symmetry->count(places) : places.size();
  }
};

// What a tensor of these bytes that stays takes on a device: of state that is dealt by rows, and of
// a parameter on a host that serves some of them, the rows there. Not of what is frozen.
inline Bytes bytes_on(const Emission& e, TensorId tensor, DeviceId device, Bytes whole) {
  const decide::ParameterHome* home = e.layout.row_home(tensor);
  if (e.layout.home_of[tensor] != decide::Layout::kNoHome &&
      e.problem.cluster->is_host(device_of(e.symmetry, device)) &&
      e.layout.home(tensor).by_rows()) {
    home = &e.layout.home(tensor);
  }
  return home ? decide::row_bytes(*home, device, whole) : whole;
}

// The writer of what stays on a device waits for those who read its old value there.
inline void wait_for_readers(Emission& e, TensorId tensor, DeviceId device, TaskId writer) {
  e.where.each_reader(tensor, device, [&](TaskId reader) {
    if (reader != writer) e.builder.depend(reader, writer);
  });
}

}  // namespace heterog::compiler
