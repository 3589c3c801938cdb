// Counts what a strategy has to move, op by op and gradient by gradient, without tasks.
#include "compiler/check/check_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "compiler/check/gradient_bytes.h"
#include "compiler/check/link_bytes.h"
#include "cost/collective.h"
#include "decide/layout.h"
#include "decide/recomputation.h"

namespace heterog::compiler {
namespace {

using graph::OperandUse;
using graph::Phase;
using graph::Read;
using graph::SplitKind;

bool adds_up(const graph::SplitRule& rule) {
  return rule.kind == SplitKind::kSum || rule.kind == SplitKind::kMean;
}

class Counter {
 public:
  Counter(const cost::Problem& problem, const decide::Strategy& strategy)
      : problem_(problem),
        strategy_(strategy),
        graph_(*problem.graph),
        cluster_(*problem.cluster),
        layout_(decide::lay_out(problem, strategy)),
        gradient_bytes_(problem, layout_),
        links_(*problem.cluster) {}

  void count() {
    each_op(false);
    gradients();
    each_op(true);
    for (const graph::UpdateChain& chain : problem_.folded->chains) {
      if (layout_.home_of[chain.parameter] == decide::Layout::kNoHome) continue;
      read_all(layout_.home(chain.parameter).update, chain.reads);
    }
    pulls();
    gathers();
    frozen();
    statistics();
    residents();
  }
  const LinkBytes& links() const { return links_; }

 private:
  Bytes whole(TensorId tensor) const { return graph_.bytes(tensor, problem_.batch); }

  // ---- what ops read ----

  void each_op(bool updates) {
    for (OpId op : problem_.folded->ops) {
      const bool late = graph_.op(op).phase == Phase::kUpdate || layout_.sums_at_its_update(op);
      if (late != updates) continue;
      read_all(layout_.of_op[op], problem_.folded->reads[op], layout_.sums_at_its_update(op));
    }
  }
  // `of_totals`: partial sums were aggregated, and every instance reads the total.
  void read_all(decide::LayoutId layout, std::span<const Read> reads, bool of_totals = false) {
    for (std::size_t i = 0; i < layout_.slices[layout].size(); ++i) {
      for (const Read& read : reads) need(read, layout, i, of_totals);
    }
  }
  void need(const Read& read, decide::LayoutId layout, std::size_t instance, bool of_totals) {
    const decide::Slice& slice = layout_.slices[layout][instance];
    if (instance > 0 && read.use == OperandUse::kOnce) return;
    if (!read.producer.valid()) {
      if (layout_.home_of[read.base] == decide::Layout::kNoHome) return;  // inputs are everywhere
      return need_value(read.tensor, layout_.home(read.base).replicas, slice.device);
    }
    const decide::LayoutId made = layout_.of_op[read.producer];
    if (read.rule.kind == SplitKind::kLocal) return;
    if (adds_up(read.rule)) {
      const bool addend_of_first = read.use == OperandUse::kPartial && !of_totals;
      if (addend_of_first && (layout == made || instance > 0)) return;
      total(read, layout);
    } else if (read.rule.kind == SplitKind::kConcat ||
               (read.rule.kind == SplitKind::kWhole && graph_.tensor(read.tensor).has_batch)) {
      return need_samples(read, made, slice);
    }
    const auto reduced = total_at_.find(read.base);
    need_value(read.tensor, reduced != total_at_.end() ? reduced->second : devices(made),
               slice.device);
  }
  // Each once, in the order of their first slices: what several instances of one device make of a
  // sum is added up there before anything moves.
  std::vector<DeviceId> devices(decide::LayoutId layout) const {
    std::vector<DeviceId> list;
    for (const decide::Slice& slice : layout_.slices[layout]) {
      if (std::find(list.begin(), list.end(), slice.device) == list.end()) {
        list.push_back(slice.device);
      }
    }
    return list;
  }
  // `once` has one slice per device, each as large as all that the device has in `made`.
  bool is_merged(decide::LayoutId once, decide::LayoutId made) const {
    const auto& slices = layout_.slices[once];
    if (devices(once) != devices(made) || devices(once).size() != slices.size()) return false;
    return std::all_of(slices.begin(), slices.end(), [&](const decide::Slice& whole) {
      std::int64_t samples = 0;
      for (const decide::Slice& slice : layout_.slices[made]) {
        if (slice.device == whole.device) samples += slice.size();
      }
      return samples == whole.size();
    });
  }

  // Partial sums become a total: where it is read, if that is one place or where they are.
  void total(const Read& read, decide::LayoutId readers) {
    if (total_at_.contains(read.base)) return;
    const decide::LayoutId made = layout_.of_op[read.producer];
    std::vector<DeviceId>& at = total_at_[read.base] = devices(made);
    if (at.size() == 1) return;
    if (readers == made || is_merged(readers, made)) return links_.all_reduce(at, whole(read.base));
    const DeviceId root = layout_.slices[readers].front().device;
    for (DeviceId device : at) links_.send(device, root, whole(read.base));
    at = {root};
  }

  // The whole value goes once to a device that lacks it, from the nearest that has it.
  void need_value(TensorId tensor, const std::vector<DeviceId>& holders, DeviceId device) {
    if (std::find(holders.begin(), holders.end(), device) != holders.end()) return;
    if (!samples_[{tensor, device}].insert({0, problem_.batch}).second) return;
    const auto time = [&](DeviceId holder) {
      return std::pair(
          cost::transfer_duration(cluster_, cluster_.route(holder, device), whole(tensor)), holder);
    };
    links_.send(*std::min_element(holders.begin(), holders.end(),
                                  [&](DeviceId a, DeviceId b) { return time(a) < time(b); }),
                device, whole(tensor));
  }

  // Every sample that the device neither made nor fetched before, from whoever made it.
  void need_samples(const Read& read, decide::LayoutId made, const decide::Slice& slice) {
    auto& fetched = samples_[{read.tensor, slice.device}];
    for (const decide::Slice& source : layout_.slices[made]) {
      if (source.device == slice.device) continue;
      // Held intervals never overlap: walk the gaps between them.
      std::int64_t at = std::max(source.begin, slice.begin);
      const std::int64_t end = std::min(source.end, slice.end);
      std::vector<std::pair<std::int64_t, std::int64_t>> gaps;
      for (const auto& [begin, held_to] : fetched) {
        if (held_to <= at || begin >= end) continue;
        if (begin > at) gaps.emplace_back(at, begin);
        at = std::max(at, held_to);
      }
      if (at < end) gaps.emplace_back(at, end);
      for (const auto& gap : gaps) {
        links_.send(source.device, slice.device, graph_.bytes(read.tensor, gap.second - gap.first));
        fetched.insert(gap);
      }
    }
  }

  // ---- parameters ----

  void all_reduce_both(const std::vector<DeviceId>& devices, GradientBytes::Sums& sums) {
    links_.all_reduce(devices, sums.first);
    if (sums.second > 0) links_.all_reduce(devices, sums.second);
    sums = {};
  }

  struct Gradient {
    OpId producer;
    TensorId tensor, parameter;
    auto operator<=>(const Gradient&) const = default;
  };
  Bytes as_rows(const Gradient& gradient, DeviceId device) const {
    return gradient_bytes_.as_rows(gradient.producer, gradient.tensor, device);
  }

  void gradients() {
    std::vector<Gradient> found;
    const auto look = [&](TensorId parameter, std::span<const Read> reads) {
      if (!parameter.valid() || layout_.home_of[parameter] == decide::Layout::kNoHome) return;
      for (const Read& read : reads) {
        if (!read.producer.valid() || !adds_up(read.rule)) continue;
        if (graph_.op(read.producer).phase == Phase::kUpdate) continue;
        if (layout_.sums_at_its_update(read.producer)) continue;
        found.push_back({read.producer, read.base, parameter});
      }
    };
    for (const graph::UpdateChain& chain : problem_.folded->chains) {
      look(chain.parameter, chain.reads);
    }
    for (OpId op : problem_.folded->ops) {
      if (graph_.op(op).phase == Phase::kUpdate) {
        look(problem_.folded->home[op], problem_.folded->reads[op]);
      }
    }
    for (const graph::TiedSum& sum : problem_.folded->tied_sums) {
      if (!layout_.sums_at_its_update(sum.op)) continue;
      look(sum.parameter, problem_.folded->reads[sum.op]);
    }
    std::sort(found.begin(), found.end());
    // Gathered so far, by group.
    std::map<std::pair<decide::LayoutId, std::uint32_t>, GradientBytes::Sums> bucket;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const Gradient& gradient = found[i];
      if (i > 0 && found[i - 1].tensor == gradient.tensor) continue;  // another parameter's too
      if (is_scattered(gradient)) {
        by_rows(gradient.parameter, gradient_bytes_.as_cast(gradient.tensor));
        total_at_[gradient.tensor] = layout_.home(gradient.parameter).replicas;
        continue;
      }
      aggregate(gradient,
                bucket[{layout_.of_op[gradient.producer], layout_.home(gradient.parameter).group}]);
    }
    for (auto& [key, sums] : bucket) {
      if (sums.full > 0) all_reduce_both(devices(key.first), sums);
    }
    for (OpId op : layout_.sums_at_update) {
      for (TensorId out : graph_.outputs(op)) {
        if (out.valid()) total_at_[out] = devices(layout_.of_op[op]);
      }
    }
  }
  // Whoever keeps rows gets them: if nobody wants more of the gradient, if all of them have an
  // addend, and if it travels whole otherwise.
  bool is_scattered(const Gradient& gradient) const {
    const decide::ParameterHome& home = layout_.home(gradient.parameter);
    std::vector<DeviceId> at = devices(layout_.of_op[gradient.producer]);
    std::sort(at.begin(), at.end());
    if (!home.sharded() || at != home.replicas) return false;
    Bytes longest = 0;
    for (DeviceId device : at) longest = std::max(longest, as_rows(gradient, device));
    if (static_cast<Bytes>(at.size()) * longest < 2 * whole(gradient.tensor)) return false;
    return seen_by_update_alone(gradient.tensor, gradient.parameter);
  }
  // Through views, one after the other, all of it.
  bool seen_by_update_alone(TensorId tensor, TensorId parameter) const {
    const auto& ops = graph::chain_of(*problem_.folded, parameter).ops;
    std::size_t inside = 0;
    const auto readers = graph_.consumers(tensor);
    for (OpId reader : readers) inside += std::ranges::count(ops, reader);
    if (inside == readers.size()) {
      return std::ranges::equal(graph_.shape(tensor), graph_.shape(parameter));
    }
    if (inside > 0 || readers.size() > 1 || !graph_.op(readers.front()).alias) return false;
    const auto views = graph_.outputs(readers.front());
    return views.size() == 1 && whole(views.front()) == whole(tensor) &&
           seen_by_update_alone(views.front(), parameter);
  }
  // Once round the ring, all parts as long as the longest.
  void by_rows(TensorId parameter, Bytes moved) {
    const decide::ParameterHome& home = layout_.home(parameter);
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < home.replicas.size(); ++i) {
      longest = std::max(longest, home.rows[i + 1] - home.rows[i]);
    }
    const Bytes row = moved / home.rows.back();
    links_.ring(home.replicas, static_cast<double>(home.replicas.size() - 1), longest * row);
  }
  void gathers() {
    for (const graph::UpdateChain& chain : problem_.folded->chains) {
      if (layout_.home_of[chain.parameter] == decide::Layout::kNoHome) continue;
      if (layout_.home(chain.parameter).sharded()) by_rows(chain.parameter, whole(chain.parameter));
    }
  }
  // Each pass that reads one gathers it as many times as a device reads it there, one instance
  // after the other; what runs again runs in the backward pass.
  void frozen() {
    std::map<std::pair<TensorId, bool>, std::size_t> times;
    const auto note = [&](OpId op, bool backward) {
      std::map<DeviceId, std::size_t> instances;
      for (const decide::Slice& slice : layout_.op_slices(op)) ++instances[slice.device];
      for (const Read& read : problem_.folded->reads[op]) {
        if (read.producer.valid() || layout_.home_of[read.base] == decide::Layout::kNoHome)
          continue;
        if (!layout_.home(read.base).gathered()) continue;
        std::size_t& most = times[{read.base, backward}];
        for (const auto& [device, count] : instances) most = std::max(most, count);
      }
    };
    for (OpId op : problem_.folded->ops) {
      const Phase phase = graph_.op(op).phase;
      if (phase != Phase::kUpdate) note(op, phase == Phase::kBackward);
    }
    const decide::Recomputation found = decide::find_recomputation(problem_, strategy_);
    for (UnitId unit : id_range<UnitId>(found.any ? found.first.size() : 0)) {
      if (!found.first[unit].valid()) continue;
      for (OpId op : found.again[unit]) note(op, true);
    }
    for (const auto& [what, count] : times) {
      for (std::size_t i = 0; i < count; ++i) by_rows(what.first, whole(what.first));
    }
  }
  void aggregate(const Gradient& gradient, GradientBytes::Sums& bucket) {
    const decide::LayoutId layout = layout_.of_op[gradient.producer];
    const std::vector<DeviceId> at = devices(layout);
    const Bytes full = whole(gradient.tensor);
    total_at_[gradient.tensor] = at;
    if (at.size() == 1) return send_rows(gradient, full);
    Bytes longest = 0;
    for (DeviceId device : at) longest = std::max(longest, as_rows(gradient, device));
    const decide::ParameterHome& home = layout_.home(gradient.parameter);
    if (home.partitioned()) {
      to_servers_of_rows(home, gradient_bytes_.as_cast(gradient.tensor), false);
      total_at_[gradient.tensor] = devices(home.update);
      return;
    }
    if (home.server.valid()) {
      // Rows, if any are shorter, go straight to a server that has some itself.
      const bool rows = std::find(at.begin(), at.end(), home.server) != at.end() &&
                        std::any_of(at.begin(), at.end(), [&](DeviceId device) {
                          return as_rows(gradient, device) < full;
                        });
      if (rows) {
        for (DeviceId device : at) links_.send(device, home.server, as_rows(gradient, device));
      } else {
        links_.to_server(at, home.server, gradient_bytes_.as_cast(gradient.tensor), false);
      }
      total_at_[gradient.tensor] = {home.server};
      return;
    }
    const auto n = static_cast<Bytes>(at.size());
    if (n * longest < 2 * full) {
      std::vector<DeviceId> order = at;
      std::sort(order.begin(), order.end());
      return links_.ring(order, static_cast<double>(n - 1), longest);
    }
    const bool grouped = home.group > 0;
    const Bytes most = strategy_.bucket_bytes;
    if (!grouped && bucket.full > 0 && bucket.full + full > most) all_reduce_both(at, bucket);
    gradient_bytes_.add_to(bucket, gradient.tensor);
    if (!grouped && bucket.full >= most) all_reduce_both(at, bucket);
  }

  // What one device makes goes as rows to all who update with it, where that is shorter.
  void send_rows(const Gradient& gradient, Bytes full) {
    std::vector<DeviceId>& at = total_at_[gradient.tensor];
    const DeviceId made = at.front();
    const Bytes rows = as_rows(gradient, made);
    if (rows >= full) return;
    for (DeviceId device : devices(layout_.home(gradient.parameter).update)) {
      if (device == made) continue;
      links_.send(made, device, rows);
      at.push_back(device);
    }
  }

  // Each server's rows of the whole.
  void to_servers_of_rows(const decide::ParameterHome& home, Bytes whole, bool back) {
    const std::vector<DeviceId> at(home.replicas.begin(),
                                   home.replicas.begin() + std::ptrdiff_t(home.device_count()));
    for (std::size_t i = 0; i < home.replicas.size(); ++i) {
      const std::int64_t rows = home.rows[i + 1] - home.rows[i];
      if (rows > 0) links_.to_server(at, home.replicas[i], whole / home.rows.back() * rows, back);
    }
  }

  void pulls() {
    for (TensorId parameter : graph_.parameters()) {
      if (layout_.home_of[parameter] == decide::Layout::kNoHome) continue;
      const decide::ParameterHome& home = layout_.home(parameter);
      if (!problem_.folded->updater[parameter].valid()) continue;
      if (home.partitioned()) to_servers_of_rows(home, whole(parameter), true);
      if (home.server.valid()) links_.to_server(home.replicas, home.server, whole(parameter), true);
    }
  }

  // Running means of replicated ops, together for each set of slices.
  void statistics() {
    std::map<decide::LayoutId, Bytes> together;
    for (OpId op : problem_.folded->ops) {
      if (graph_.op(op).phase == Phase::kUpdate || layout_.op_slices(op).size() == 1) continue;
      for (TensorId out : graph_.outputs(op)) {
        if (out.valid() && graph_.tensor(out).replaces.valid() &&
            adds_up(problem_.splits->rules[out])) {
          together[layout_.of_op[op]] += whole(out);
        }
      }
    }
    for (const auto& [layout, bytes] : together) links_.all_reduce(devices(layout), bytes);
  }

  // Buffers and optimizer state that are replaced elsewhere than where they are read.
  void residents() {
    std::map<TensorId, std::set<DeviceId>> readers;
    const auto note = [&](decide::LayoutId layout, std::span<const Read> reads) {
      for (const Read& read : reads) {
        if (read.producer.valid()) continue;
        for (DeviceId device : devices(layout)) {
          readers[read.base].insert(device);
          if (read.use == OperandUse::kOnce) break;
        }
      }
    };
    for (OpId op : problem_.folded->ops) note(layout_.of_op[op], problem_.folded->reads[op]);
    for (const graph::UpdateChain& chain : problem_.folded->chains) {
      if (layout_.home_of[chain.parameter] == decide::Layout::kNoHome) continue;
      note(layout_.home(chain.parameter).update, chain.reads);
    }
    for (TensorId next : graph_.tensor_ids()) {
      const TensorId old = graph_.tensor(next).replaces;
      if (!old.valid() || graph_.tensor(old).role == graph::TensorRole::kParameter) continue;
      const OpId maker = graph_.tensor(next).producer;
      decide::LayoutId made = layout_.of_op[maker];
      if (!made.valid()) {
        const TensorId parameter = problem_.folded->home[maker];
        if (layout_.home_of[parameter] == decide::Layout::kNoHome) continue;
        made = layout_.home(parameter).update;
      }
      const std::vector<DeviceId> writers = devices(made);
      for (DeviceId device : readers[old]) {
        if (std::find(writers.begin(), writers.end(), device) == writers.end()) {
          links_.send(writers.front(), device, whole(old));
        }
      }
    }
  }

  const cost::Problem& problem_;
  const decide::Strategy& strategy_;
  const graph::ModelGraph& graph_;
  const cluster::Cluster& cluster_;
  const decide::Layout layout_;
  const GradientBytes gradient_bytes_;
  LinkBytes links_;
  std::map<TensorId, std::vector<DeviceId>> total_at_;  // of values that were added up
  // Of a tensor on a device: the intervals of the batch that it fetched.
  std::map<std::pair<TensorId, DeviceId>, std::set<std::pair<std::int64_t, std::int64_t>>> samples_;
};

}  // namespace

IdVector<LinkId, double> expected_link_bytes(const cost::Problem& problem,
                                             const decide::Strategy& strategy) {
  Counter counter(problem, strategy);
  counter.count();
  return counter.links().all();
}

std::vector<std::string> check_bytes(const cost::Problem& problem, const decide::Strategy& strategy,
                                     const Plan& plan) {
  Counter counter(problem, strategy);
  counter.count();
  IdVector<LinkId, double> moved(plan.link_count, 0.0);
  const std::size_t first = plan.link_count > 0 ? plan.link(LinkId(0)).value() : 0;
  for (TaskId task : plan.task_ids()) {
    for (const Hold& hold : plan.holds[task]) {
      const std::size_t resource = hold.resource.value();
      if (resource < first || resource >= first + plan.link_count) continue;
      moved[LinkId(resource - first)] += static_cast<double>(hold.bytes);
    }
  }
  std::vector<std::string> complaints;
  for (LinkId link : id_range<LinkId>(plan.link_count)) {
    const double expected = counter.links().all()[link];
    if (std::abs(moved[link] - expected) <= counter.links().rounding()[link]) continue;
    complaints.push_back(fmt::format("link {} moves {:.0f} bytes, the strategy needs {:.0f}",
                                     problem.cluster->link(link).name, moved[link], expected));
    if (complaints.size() == 20) break;
  }
  return complaints;
}

}  // namespace heterog::compiler
