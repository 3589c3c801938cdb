// Compares decisions by operator, parameters by where they are kept, and what was simulated.
#include "explain/plan_diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "decide/frozen.h"
#include "explain/amounts.h"
#include "explain/decision_text.h"
#include "explain/explanation.h"
#include "explain/gradients.h"
#include "explain/names.h"
#include "explain/table.h"
#include "sim/critical_path.h"

namespace heterog::explain {

namespace {

// Operators, or parameters, that are decided in one way by A and in another by B.
struct Change {
  std::string a, b;
  double time_share = 0;  // of the operators' mean time
  std::set<GroupId> groups;
  std::size_t parameters = 0;
  Bytes bytes = 0;
};

class Diff {
 public:
  Diff(const ComparedPlan& a, const ComparedPlan& b) : a_(a), b_(b), problem_(a.problem) {
    compare_decisions();
    compare_parameters();
  }

  std::string text() const;
  OrderedJson json() const;

 private:
  using Key = std::pair<std::string, std::string>;

  void compare_decisions() {
    std::map<Key, Change> changes;
    double total = 0;
    for (OpId op : problem_.graph->op_ids()) {
      if (problem_.graph->op(op).alias) continue;
      const double seconds = problem_.costs.mean_seconds(op);
      total += seconds;
      groups_seen_.insert(problem_.grouping.group_of[op]);
      const auto& by_a = decision_of(problem_, a_.strategy, op);
      const auto& by_b = decision_of(b_.problem, b_.strategy, op);
      const bool alike = by_a == by_b && a_.strategy.micro_batches == b_.strategy.micro_batches;
      if (alike) continue;
      const std::string text_a = decision_text(problem_, a_.strategy, by_a);
      const std::string text_b = decision_text(problem_, b_.strategy, by_b);
      if (text_a == text_b) continue;  // other weights that come to the same samples
      Change& change = changes[{text_a, text_b}];
      change.time_share += seconds;
      change.groups.insert(problem_.grouping.group_of[op]);
      groups_changed_.insert(problem_.grouping.group_of[op]);
    }
    for (auto& [key, change] : changes) {
      change.time_share /= total;
      changed_share_ += change.time_share;
    }
    decisions_ = sorted(std::move(changes), [](const Change& change) { return change.time_share; });
  }

  void compare_parameters() {
    const decide::Layout by_a = decide::lay_out(problem_, a_.strategy);
    const decide::Layout by_b = decide::lay_out(b_.problem, b_.strategy);
    std::map<Key, Change> changes;
    const auto compare = [&](TensorId tensor, const std::string& text_a,
                             const std::string& text_b) {
      if (text_a == text_b) return;
      Change& change = changes[{text_a, text_b}];
      ++change.parameters;
      change.bytes += problem_.graph->bytes(tensor, 1);
    };
    for (TensorId parameter : problem_.graph->parameters()) {
      if (by_a.home_of[parameter] == decide::Layout::kNoHome) continue;
      compare(parameter, home_text(problem_, by_a.home(parameter)),
              home_text(problem_, by_b.home(parameter)));
    }
    // Frozen weights among the buffers, which are whole wherever they are read, or lie in rows.
    for (TensorId tensor : decide::frozen_tensors(problem_)) {
      if (problem_.graph->tensor(tensor).role == graph::TensorRole::kParameter) continue;
      const auto text = [&](const decide::Layout& layout) {
        return std::ranges::binary_search(layout.gathered, tensor)
                   ? home_text(problem_, layout.home(tensor))
                   : std::string("whole where it is read");
      };
      compare(tensor, text(by_a), text(by_b));
    }
    parameters_ = sorted(std::move(changes), [](const Change& change) { return change.bytes; });
  }

  template <class Weight>
  static std::vector<Change> sorted(std::map<Key, Change> changes, const Weight& weight) {
    std::vector<Change> list;
    for (auto& [key, change] : changes) {
      change.a = key.first;
      change.b = key.second;
      list.push_back(std::move(change));
    }
    std::stable_sort(list.begin(), list.end(),
                     [&](const Change& x, const Change& y) { return weight(x) > weight(y); });
    return list;
  }

  // The groups of a change, those that take longest first.
  std::vector<std::string> largest_groups(const Change& change, std::size_t most) const {
    std::vector<std::pair<double, GroupId>> groups;
    for (GroupId group : change.groups) {
      double seconds = 0;
      for (OpId op : problem_.grouping.members[group]) seconds += problem_.costs.mean_seconds(op);
      groups.emplace_back(-seconds, group);
    }
    std::sort(groups.begin(), groups.end());
    std::vector<std::string> names;
    for (std::size_t i = 0; i < std::min(most, groups.size()); ++i) {
      names.push_back(group_name(problem_, groups[i].second));
    }
    return names;
  }

  // Kind of task → its time on either critical path.
  std::map<std::string, std::pair<Nanoseconds, Nanoseconds>> path_kinds() const {
    std::map<std::string, std::pair<Nanoseconds, Nanoseconds>> kinds;
    const auto add = [&](const ComparedPlan& plan, bool second) {
      Explanation path{.path = sim::critical_path(plan.simulated.plan, plan.simulated.result,
                                                  decide::dispatch_order(plan.strategy))};
      for (const Spent& spent : spent_by_kind(problem_, plan.simulated, path)) {
        (second ? kinds[spent.what].second : kinds[spent.what].first) = spent.time;
      }
    };
    add(a_, false);
    add(b_, true);
    return kinds;
  }

  const ComparedPlan& a_;
  const ComparedPlan& b_;
  const cost::Problem& problem_;
  std::vector<Change> decisions_;   // by share of time
  std::vector<Change> parameters_;  // by bytes
  double changed_share_ = 0;
  std::set<GroupId> groups_seen_, groups_changed_;
};

constexpr std::size_t kChangesShown = 8;
constexpr std::size_t kGroupsNamed = 3;
constexpr Bytes kWorthALine = 5'000'000;  // what shows in GB with two digits

std::string signed_milliseconds(Nanoseconds time) {
  return fmt::format("{:+.1f} ms", to_seconds(time) * 1e3);
}
std::string signed_gigabytes(Bytes bytes) {
  return fmt::format("{:+.2f} GB", static_cast<double>(bytes) * 1e-9);
}

std::string Diff::text() const {
  const sim::SimResult &a = a_.simulated.result, &b = b_.simulated.result;
  const auto heading = [](const ComparedPlan& plan) {
    return fmt::format("{} (by {}): step {}, order {}, buckets of {}{}{}", plan.name, plan.planner,
                       milliseconds_text(to_seconds(plan.simulated.result.step)),
                       decide::order_policy_name(decide::dispatch_order(plan.strategy)),
                       bytes_text(plan.strategy.bucket_bytes), compression_words(plan.problem),
                       plan.simulated.result.feasible() ? "" : ", does not fit in memory");
  };
  std::string text = fmt::format(
      "{} on {}, batch {}\nA  {}\nB  {}\nB - A: {}, speed-up of B over A {}\n\n",
      problem_.graph->name(), problem_.cluster->name(), problem_.batch, heading(a_), heading(b_),
      signed_milliseconds(b.step - a.step), speedup_text(to_seconds(a.step), to_seconds(b.step)));

  text += fmt::format("decided differently: {} of {} groups, {:.1f} % of the operators' time\n",
                      groups_changed_.size(), groups_seen_.size(), 100 * changed_share_);
  for (std::size_t i = 0; i < std::min(kChangesShown, decisions_.size()); ++i) {
    const Change& change = decisions_[i];
    text += fmt::format("{:>7.1f} %  {} groups: {}{}\n           A  {}\n           B  {}\n",
                        100 * change.time_share, change.groups.size(),
                        fmt::join(largest_groups(change, kGroupsNamed), ", "),
                        change.groups.size() > kGroupsNamed ? ", …" : "", change.a, change.b);
  }
  if (decisions_.size() > kChangesShown) {
    text += fmt::format("           and {} kinds of change more (--json has all)\n",
                        decisions_.size() - kChangesShown);
  }
  if (!parameters_.empty()) {
    text += "\nparameters kept or aggregated differently\n";
    for (std::size_t i = 0; i < std::min(kChangesShown, parameters_.size()); ++i) {
      const Change& change = parameters_[i];
      text += fmt::format("{:>9} in {:>3}  {}  ->  {}\n", bytes_text(change.bytes),
                          change.parameters, change.a, change.b);
    }
    if (parameters_.size() > kChangesShown) {
      text += fmt::format("           and {} kinds of change more\n",
                          parameters_.size() - kChangesShown);
    }
  }

  Table path({"on the critical path", "A", "B", "B - A"});
  for (const auto& [kind, times] : path_kinds()) {
    path.add_row({kind, milliseconds_text(to_seconds(times.first)),
                  milliseconds_text(to_seconds(times.second)),
                  signed_milliseconds(times.second - times.first)});
  }
  text += "\n" + path.text();
  Table devices({"device", "busy A", "busy B", "B - A", "peak A", "peak B", "B - A"});
  for (DeviceId device : problem_.cluster->place_ids()) {
    devices.add_row({problem_.cluster->device(device).name,
                     milliseconds_text(to_seconds(a.device_busy[device])),
                     milliseconds_text(to_seconds(b.device_busy[device])),
                     signed_milliseconds(b.device_busy[device] - a.device_busy[device]),
                     gigabytes_text(a.peak_bytes[device]), gigabytes_text(b.peak_bytes[device]),
                     signed_gigabytes(b.peak_bytes[device] - a.peak_bytes[device])});
  }
  text += "\n" + devices.text();
  Table links({"link", "moved A", "moved B", "B - A", "busy A", "busy B"});
  bool any = false;
  for (LinkId link : id_range<LinkId>(problem_.cluster->link_count())) {
    if (std::abs(a.link_bytes[link] - b.link_bytes[link]) < kWorthALine) continue;
    any = true;
    links.add_row({problem_.cluster->link(link).name, gigabytes_text(a.link_bytes[link]),
                   gigabytes_text(b.link_bytes[link]),
                   signed_gigabytes(b.link_bytes[link] - a.link_bytes[link]),
                   milliseconds_text(to_seconds(a.link_busy[link])),
                   milliseconds_text(to_seconds(b.link_busy[link]))});
  }
  if (any) text += "\n" + links.text();
  return text;
}

OrderedJson Diff::json() const {
  const sim::SimResult &a = a_.simulated.result, &b = b_.simulated.result;
  const auto side = [](const ComparedPlan& plan) {
    OrderedJson one = {{"plan", plan.name},
                       {"planner", plan.planner},
                       {"step_seconds", to_seconds(plan.simulated.result.step)},
                       {"feasible", plan.simulated.result.feasible()},
                       {"order", decide::order_policy_name(decide::dispatch_order(plan.strategy))},
                       {"bucket_bytes", plan.strategy.bucket_bytes}};
    if (plan.problem.compression.any()) {
      one["compression"] = cost::compression_text(plan.problem.compression);
    }
    return one;
  };
  OrderedJson json = {{"graph", problem_.graph->name()},
                      {"cluster", problem_.cluster->name()},
                      {"batch", problem_.batch},
                      {"a", side(a_)},
                      {"b", side(b_)},
                      {"groups", groups_seen_.size()},
                      {"groups_changed", groups_changed_.size()},
                      {"time_share_changed", changed_share_},
                      {"decisions", OrderedJson::array()},
                      {"parameters", OrderedJson::array()},
                      {"critical_path", OrderedJson::array()},
                      {"devices", OrderedJson::array()},
                      {"links", OrderedJson::array()}};
  for (const Change& change : decisions_) {
    json["decisions"].push_back({{"a", change.a},
                                 {"b", change.b},
                                 {"time_share", change.time_share},
                                 {"groups", largest_groups(change, change.groups.size())}});
  }
  for (const Change& change : parameters_) {
    json["parameters"].push_back({{"a", change.a},
                                  {"b", change.b},
                                  {"parameters", change.parameters},
                                  {"bytes", change.bytes}});
  }
  for (const auto& [kind, times] : path_kinds()) {
    json["critical_path"].push_back({{"kind", kind},
                                     {"a_seconds", to_seconds(times.first)},
                                     {"b_seconds", to_seconds(times.second)}});
  }
  for (DeviceId device : problem_.cluster->place_ids()) {
    json["devices"].push_back({{"name", problem_.cluster->device(device).name},
                               {"a_busy_seconds", to_seconds(a.device_busy[device])},
                               {"b_busy_seconds", to_seconds(b.device_busy[device])},
                               {"a_peak_bytes", a.peak_bytes[device]},
                               {"b_peak_bytes", b.peak_bytes[device]}});
  }
  for (LinkId link : id_range<LinkId>(problem_.cluster->link_count())) {
    json["links"].push_back({{"name", problem_.cluster->link(link).name},
                             {"a_bytes", a.link_bytes[link]},
                             {"b_bytes", b.link_bytes[link]},
                             {"a_busy_seconds", to_seconds(a.link_busy[link])},
                             {"b_busy_seconds", to_seconds(b.link_busy[link])}});
  }
  return json;
}

}  // namespace

OrderedJson diff_json(const ComparedPlan& a, const ComparedPlan& b) { return Diff(a, b).json(); }
std::string diff_text(const ComparedPlan& a, const ComparedPlan& b) { return Diff(a, b).text(); }

}  // namespace heterog::explain
