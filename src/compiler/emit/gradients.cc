// Emits accumulations, pushes, sums and all-reduces of gradients.
#include "compiler/emit/gradients.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "compiler/emit/bucket.h"
#include "compiler/emit/parts.h"
#include "compiler/emit/rows.h"
#include "compiler/emit/shards.h"
#include "compiler/emit/sums.h"

namespace heterog::compiler {
namespace {

using graph::Phase;
using graph::SplitKind;

// Of each device that makes parts of the gradient, in the order of its first instance: the rows of
// all its instances. Empty: the gradient is not one of rows.
std::vector<SparseRows> rows_by_device(const Emission& e, const Gradient& gradient) {
  std::vector<SparseRows> rows;
  IdVector<DeviceId, std::size_t> place(e.builder.plan().device_count, 0);  // 1 + index
  for (const decide::Slice& slice : e.layout.op_slices(gradient.producer)) {
    const auto of_slice = sparse_rows(e.problem, gradient.tensor, slice.size());
    if (!of_slice) return {};
    std::size_t& at = place[slice.device];
    if (at == 0) {
      rows.push_back(*of_slice);
      at = rows.size();
    } else {
      rows[at - 1].count += of_slice->count;
      rows[at - 1].bytes += of_slice->bytes;
    }
  }
  return rows;
}

// An embedding's gradient as rows, where that moves fewer bytes; else nothing is emitted.
bool aggregate_rows(Emission& e, const Gradient& gradient, const Bucket::Value& value) {
  const Bytes whole = e.problem.graph->bytes(gradient.tensor, e.problem.batch);
  const auto shorter = [](const SparseRows& a, const SparseRows& b) { return a.bytes < b.bytes; };
  const std::vector<SparseRows> rows = rows_by_device(e, gradient);
  if (rows.empty()) return false;
  const SparseRows longest = *std::max_element(rows.begin(), rows.end(), shorter);
  const DeviceId server = e.layout.home(gradient.parameter).server;
  if (!server.valid()) {
    // A ring moves 2(n−1)/n of the whole over each link, an all-gather (n−1)/n of n times the rows.
    const auto members = static_cast<Bytes>(e.count(devices_of(value.addends)));
    if (members * longest.bytes >= 2 * whole) return false;
    e.where.set_total(gradient.tensor,
                      gather_rows(e, gradient.tensor, value.addends, longest, value.in_place));
    return true;
  }
  const bool serves_itself = std::any_of(value.addends.begin(), value.addends.end(),
                                         [&](const Location& own) { return own.device == server; });
  const bool pays = std::any_of(rows.begin(), rows.end(),
                                [&](const SparseRows& one) { return one.bytes < whole; });
  if (!serves_itself || !pays) return false;
  e.where.set_total(gradient.tensor,
                    {sum_rows_at(e, gradient.tensor, value.addends, rows, server, value.in_place)});
  return true;
}

// What one device makes alone, at every device of the update: as rows, where these are fewer bytes.
// Else nothing is emitted, and whoever updates fetches it.
bool send_rows(Emission& e, const Gradient& gradient, const Location& made) {
  const Bytes whole = e.problem.graph->bytes(gradient.tensor, e.problem.batch);
  const std::vector<SparseRows> rows = rows_by_device(e, gradient);
  if (rows.empty() || rows.front().bytes >= whole) return false;
  std::vector<Location> everywhere = {made};
  for (const decide::Slice& slice : e.layout.slices[e.layout.home(gradient.parameter).update]) {
    if (slice.device == made.device) continue;
    everywhere.push_back(rows_arrived_at(e, gradient.tensor, made, rows.front(), slice.device));
  }
  e.where.set_total(gradient.tensor, std::move(everywhere));
  return true;
}

}  // namespace

std::vector<Gradient> partial_gradients(const cost::Problem& problem,
                                        const decide::Layout& layout) {
  std::vector<Gradient> gradients;
  const auto add = [&](TensorId parameter, std::span<const graph::Read> reads) {
    if (!parameter.valid() || layout.home_of[parameter] == decide::Layout::kNoHome) return;
    for (const graph::Read& read : reads) {
      if (!read.producer.valid() || problem.graph->op(read.producer).phase == Phase::kUpdate)
        continue;
      if (layout.sums_at_its_update(read.producer)) continue;
      if (read.rule.kind != SplitKind::kSum && read.rule.kind != SplitKind::kMean) continue;
      gradients.push_back({read.base, parameter, read.producer});
    }
  };
  for (const graph::UpdateChain& chain : problem.folded->chains) add(chain.parameter, chain.reads);
  for (OpId op : problem.folded->ops) {
    if (problem.graph->op(op).phase != Phase::kUpdate) continue;
    add(problem.folded->home[op], problem.folded->reads[op]);
  }
  for (const graph::TiedSum& sum : problem.folded->tied_sums) {
    if (!layout.sums_at_its_update(sum.op)) continue;
    add(sum.parameter, problem.folded->reads[sum.op]);
  }
  std::sort(gradients.begin(), gradients.end(), [](const Gradient& a, const Gradient& b) {
    return std::tuple(a.producer, a.tensor, a.parameter) <
           std::tuple(b.producer, b.tensor, b.parameter);
  });
  gradients.erase(
      std::unique(gradients.begin(), gradients.end(),
                  [](const Gradient& a, const Gradient& b) { return a.tensor == b.tensor; }),
      gradients.end());
  return gradients;
}

void aggregate_gradients(Emission& e, Bytes bucket_bytes) {
  struct Open {
    Bucket bucket;
    std::vector<Scattered> scattered;
  };
  // By the slices that make the gradients, their group, and whether they are scattered.
  std::map<std::tuple<decide::LayoutId, std::uint32_t, bool>, Open> open;
  const auto close = [&](Open& one, bool scattered) {
    if (!one.bucket.values.empty()) {
      scattered ? scatter_bucket(e, one.bucket, one.scattered) : all_reduce_bucket(e, one.bucket);
    }
    one = {};
  };
  for (const Gradient& gradient : partial_gradients(e.problem, e.layout)) {
    const decide::ParameterHome& home = e.layout.home(gradient.parameter);
    const Bytes bytes = e.problem.graph->bytes(gradient.tensor, e.problem.batch);
    Bucket::Value value{gradient.tensor, e.where.instances(gradient.tensor, gradient.producer),
                        may_be_overwritten(e.problem, gradient.tensor)};
    value.addends = accumulate(e, gradient.tensor, std::move(value.addends), bytes, value.in_place);
    if (value.addends.size() == 1) {
      if (send_rows(e, gradient, value.addends.front())) continue;
      e.where.set_total(gradient.tensor, value.addends);  // fetched by whoever updates
    } else if (aggregate_rows(e, gradient, value)) {
      continue;
    } else if (home.server.valid()) {
      const std::vector<Location> sums =
          sum_in_machines(e, gradient.tensor, value.addends, bytes, home.server, value.in_place);
      e.where.set_total(gradient.tensor, {sum_at(e, gradient.tensor, sums, bytes, home.server,
                                                 TaskKind::kPush, value.in_place)});
    } else if (home.partitioned()) {
      push_parts(e, gradient.tensor, gradient.parameter, value.addends);
    } else {
      const TensorId form =
          home.sharded() ? scattered_form(e, gradient.tensor, gradient.parameter, value.addends)
                         : TensorId();
      const bool scattered = form.valid();
      Open& one = open[{e.layout.of_op[gradient.producer], home.group, scattered}];
      const Bytes most = home.group > 0 ? std::numeric_limits<Bytes>::max() : bucket_bytes;
      if (one.bucket.bytes + bytes > most) close(one, scattered);
      value.compression =
          cost::compression_of(e.problem.compression, *e.problem.graph, gradient.tensor);
      one.bucket.values.push_back(std::move(value));
      one.bucket.bytes += bytes;
      one.scattered.push_back({form, gradient.parameter});
      if (one.bucket.bytes >= most) close(one, scattered);
    }
  }
  for (auto& [key, one] : open) close(one, std::get<bool>(key));
}

}  // namespace heterog::compiler
