// Several tensors share a collective: their parts lie side by side, owner by owner.
#include "compiler/emit/shards.h"

#include <algorithm>

#include "graph/row_updates.h"

namespace heterog::compiler {
namespace {

// What a collective moves of the tensors in all, each of whose parts is padded to the longest.
// `compressed`: parallel to them; none: as they are.
Bytes padded_bytes(const Emission& e, std::span<const TensorId> tensors,
                   std::span<const TensorId> parameters,
                   std::span<const Compressed> compressed = {}) {
  Bytes bytes = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const decide::ParameterHome& home = e.layout.home(parameters[t]);
    const Bytes whole =
        compressed.empty()
            ? e.problem.graph->bytes(tensors[t], e.problem.batch)
            : cost::compressed_bytes(compressed[t].compression, *e.problem.graph, tensors[t]).first;
    Bytes longest = 0;
    for (std::size_t i = 0; i < home.replicas.size(); ++i) {
      longest = std::max(longest, decide::row_bytes(home, i, whole));
    }
    bytes += longest * static_cast<Bytes>(e.count(home.replicas));
  }
  return bytes;
}

// Elements: the parts of all tensors lie side by side, owner by owner.
void contribute_parts(Emission& e, TaskId task, std::span<const TensorId> parameters,
                      std::span<const double> weights, Encoding encoding = Encoding::kDense) {
  const decide::ParameterHome& first = e.layout.home(parameters.front());
  std::int64_t at = 0;
  for (std::size_t i = 0; i < first.replicas.size(); ++i) {
    std::int64_t count = 0;
    for (TensorId parameter : parameters) {
      const decide::ParameterHome& home = e.layout.home(parameter);
      count += home.rows_of(i) * (e.problem.graph->elements(parameter, 1) / home.row_count());
    }
    e.builder.contribute(task, {.device = first.replicas[i],
                                .encoding = encoding,
                                .begin = at,
                                .end = at + count,
                                .weight = weights.empty() ? 1 : weights[i]});
    at += count;
  }
}

// What is not moved as it lies is copied first; nobody reads the copy once the collective has
// ended.
void lay_side_by_side(Emission& e, TaskId task, DeviceId device, Bytes bytes, TensorId first) {
  e.builder.allocate(task, device, bytes, first);
}

}  // namespace

TensorId scattered_form(const Emission& e, TensorId gradient, TensorId parameter,
                        std::span<const Location> addends) {
  if (devices_of(addends) != e.layout.home(parameter).replicas) return {};
  return graph::form_for_update(*e.problem.graph, graph::chain_of(*e.problem.folded, parameter),
                                gradient);
}

void scatter_bucket(Emission& e, const Bucket& bucket, std::span<const Scattered> gradients) {
  std::vector<TensorId> forms, parameters;
  bool is_copied = gradients.size() > 1;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    forms.push_back(gradients[i].form);
    parameters.push_back(gradients[i].parameter);
    is_copied |= gradients[i].form != bucket.values[i].tensor;
  }
  const std::vector<DeviceId>& devices = e.layout.home(parameters.front()).replicas;
  const TensorId first = bucket.values.front().tensor;
  std::vector<Compressed> compressed;
  for (TensorId form : forms) {
    compressed.push_back({form, cost::cast_of(e.problem.compression, *e.problem.graph, form)});
  }
  const Moved moved =
      compressed_scatter(e, compressed, devices, padded_bytes(e, forms, parameters, compressed));
  const TaskId task =
      add_collective(e, TaskKind::kReduceScatter, forms.front(), devices, moved.cost, moved.bytes,
                     e.problem.graph->tensor(first).producer);
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const graph::SplitKind kind = e.problem.splits->rules[bucket.values[i].tensor].kind;
    e.builder.carry(task, {forms[i], kind == graph::SplitKind::kMean, compressed[i].compression});
  }
  std::vector<double> weights;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    weights.push_back(find_location(bucket.values.front().addends, devices[i], i)->weight);
  }
  contribute_parts(e, task, parameters, weights);
  for (const Bucket::Value& value : bucket.values) {
    for (const Location& addend : value.addends) {
      e.builder.depend(addend.source.task, task);
      e.builder.read(task, addend.source.buffer);
    }
  }
  std::vector<Location> parts;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (moved.scratch > 0) e.builder.allocate_scratch(task, devices[i], moved.scratch, first);
    if (is_copied) lay_side_by_side(e, task, devices[i], bucket.bytes, first);
    Bytes own = 0;
    for (std::size_t t = 0; t < forms.size(); ++t) {
      own += decide::row_bytes(e.layout.home(parameters[t]), i,
                               e.problem.graph->bytes(forms[t], e.problem.batch));
    }
    parts.push_back({devices[i], {task, e.builder.allocate(task, devices[i], own, forms.front())}});
  }
  for (std::size_t i = 0; i < forms.size(); ++i) {
    e.where.set_total(bucket.values[i].tensor, parts);
    e.scattered.emplace_back(forms[i], parameters[i]);
  }
}

Bytes gathered_bytes(const Emission& e, std::span<const TensorId> parameters) {
  return padded_bytes(e, parameters, parameters);
}

void contribute_rows(Emission& e, TaskId gather, std::span<const TensorId> parameters) {
  contribute_parts(e, gather, parameters, {}, Encoding::kPart);
}

void gather_sharded(Emission& e) {
  for (const std::vector<TensorId>& set : e.sharded_sets) {
    const decide::ParameterHome& home = e.layout.home(set.front());
    const OpId updater =
        decide::update_op(e.problem, graph::chain_of(*e.problem.folded, set.front()));
    Bytes bytes = 0;
    for (TensorId parameter : set) bytes += e.problem.graph->bytes(parameter, 1);
    const TaskId task = add_collective(e, TaskKind::kAllGather, set.front(), home.replicas,
                                       e.costs.all_gather(home.replicas, padded_bytes(e, set, set)),
                                       bytes, updater);
    for (TensorId parameter : set) e.builder.carry(task, {parameter});
    contribute_parts(e, task, set, {});
    for (std::size_t i = 0; i < e.layout.slices[home.update].size(); ++i) {
      e.builder.depend(e.where.instance_task(updater, i), task);
    }
    for (DeviceId device : home.replicas) {
      if (set.size() > 1) lay_side_by_side(e, task, device, bytes, set.front());
      for (TensorId parameter : set) wait_for_readers(e, parameter, device, task);
    }
  }
}

}  // namespace heterog::compiler
