// The rows of one server go the way that a whole gradient goes to one server (decision 5).
#include "compiler/emit/parts.h"

#include <algorithm>
#include <vector>

#include "compiler/emit/costs.h"
#include "compiler/emit/sums.h"
#include "compiler/emit/transfers.h"
#include "decide/servers.h"
#include "graph/row_updates.h"

namespace heterog::compiler {
namespace {

// Rows [begin, end) along axis 0 of a gradient in the form that the update reads.
struct Part {
  TensorId form;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Bytes bytes = 0;
  bool is_mean = false;
  OpId maker;
  cost::Compression compression = {};
};

// An addend of the part, out of the whole gradient or by itself, and the weight that it still has
// to be multiplied by.
Contribution addend_of(const Part& part, const Location& at) {
  return {.device = at.device,
          .buffer = at.source.buffer,
          .encoding = Encoding::kPart,
          .begin = part.begin,
          .end = part.end,
          .weight = at.weight};
}

// Pushes of all locations (one per device) to `root`, and a sum there: where the result is. Of one
// location that is there already nothing is emitted.
Location sum_part_at(Emission& e, const Part& part, std::span<const Location> locations,
                     DeviceId root) {
  std::vector<Location> here;
  for (const Location& location : locations) {
    if (location.device == root) here.push_back(location);
  }
  for (const Location& location : locations) {
    if (location.device == root) continue;
    const Source arrived = transfer(e,
                                    {.kind = TaskKind::kPush,
                                     .op = part.maker,
                                     .tensor = part.form,
                                     .source = location.device,
                                     .destination = root,
                                     .end = e.problem.batch,
                                     .bytes = part.bytes,
                                     .bytes_at_destination = part.bytes,
                                     .encoding = Encoding::kPart,
                                     .first_row = part.begin,
                                     .rows = part.end - part.begin,
                                     .weighted = part.is_mean,
                                     .weight = location.weight,
                                     .compression = part.compression},
                                    location.source);
    here.push_back({root, arrived});
  }
  if (here.size() == 1) return here.front();
  const TaskId sum = add_sum(e, TaskKind::kSum, part.form, root, static_cast<int>(here.size()),
                             part.bytes, {part.maker, part.is_mean});
  for (const Location& one : here) {
    e.builder.contribute(sum, addend_of(part, one));
    e.builder.depend(one.source.task, sum);
    e.builder.read(sum, one.source.buffer);
  }
  return {root, {sum, e.builder.allocate(sum, root, part.bytes, part.form)}};
}

Location pull_part(Emission& e, TensorId parameter, const Part& part, const Location& from,
                   DeviceId to) {
  const Source pulled = transfer(e,
                                 {.kind = TaskKind::kPull,
                                  .op = part.maker,
                                  .tensor = parameter,
                                  .source = from.device,
                                  .destination = to,
                                  .end = e.problem.batch,
                                  .bytes = part.bytes,
                                  .encoding = Encoding::kPart,
                                  .first_row = part.begin,
                                  .rows = part.end - part.begin},
                                 {from.source.task, BufferId()});
  wait_for_readers(e, parameter, to, pulled.task);
  return {to, {pulled.task, BufferId()}};
}

}  // namespace

void push_parts(Emission& e, TensorId gradient, TensorId parameter,
                std::span<const Location> addends) {
  const graph::ModelGraph& graph = *e.problem.graph;
  const decide::ParameterHome& home = e.layout.home(parameter);
  const TensorId form =
      graph::form_for_update(graph, graph::chain_of(*e.problem.folded, parameter), gradient);
  ENSURE(form.valid());  // as the layout has it
  const Bytes whole = graph.bytes(form, e.problem.batch);
  std::vector<Location> parts;
  for (std::size_t i = 0; i < home.replicas.size(); ++i) {
    if (home.rows_of(i) == 0) continue;
    const Part part{.form = form,
                    .begin = home.rows[i],
                    .end = home.rows[i + 1],
                    .bytes = decide::row_bytes(home, i, whole),
                    .is_mean = e.problem.splits->rules[gradient].kind == graph::SplitKind::kMean,
                    .maker = graph.tensor(gradient).producer,
                    .compression = cost::cast_of(e.problem.compression, graph, form)};
    const DeviceId server = home.replicas[i];
    std::vector<Location> sums;
    for (const Gathered& one : gathered_by_speakers(e, addends, server)) {
      sums.push_back(sum_part_at(e, part, one.addends, one.at));
    }
    parts.push_back(sum_part_at(e, part, sums, server));
  }
  e.where.set_total(gradient, std::move(parts));
  e.scattered.emplace_back(form, parameter);
}

void pull_parts(Emission& e, TensorId parameter) {
  const decide::ParameterHome& home = e.layout.home(parameter);
  const OpId updater = decide::update_op(e.problem, graph::chain_of(*e.problem.folded, parameter));
  const Bytes whole = e.problem.graph->bytes(parameter, 1);
  const std::span<const DeviceId> devices = std::span(home.replicas).first(home.device_count());
  std::size_t instance = 0;
  for (std::size_t i = 0; i < home.replicas.size(); ++i) {
    if (home.rows_of(i) == 0) continue;
    const Part part{.begin = home.rows[i],
                    .end = home.rows[i + 1],
                    .bytes = decide::row_bytes(home, i, whole),
                    .maker = updater};
    const DeviceId server = home.replicas[i];
    const Location made{server, {e.where.instance_task(updater, instance++), BufferId()}};
    for (const decide::Speaker& speaker : decide::speakers(*e.problem.cluster, devices, server)) {
      const Location pulled = pull_part(e, parameter, part, made, speaker.device);
      for (DeviceId other : speaker.others) pull_part(e, parameter, part, pulled, other);
    }
  }
}

}  // namespace heterog::compiler
