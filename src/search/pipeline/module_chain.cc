// Goes through the forward pass once: what every op is made of, what crosses to it, and where
// modules begin.
#include "search/pipeline/module_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace heterog::search {
namespace {

using graph::Phase;
using graph::TensorRole;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Whether module `inner` is `outer` or inside it.
bool within(std::string_view inner, std::string_view outer) {
  return inner == outer ||
         (inner.starts_with(outer) && inner.size() > outer.size() && inner[outer.size()] == '.');
}

// "a", "a.0", "a.0.b" of "a.0.b".
std::vector<std::string_view> prefixes(std::string_view scope) {
  std::vector<std::string_view> found;
  if (scope.empty()) return found;
  for (std::size_t dot = scope.find('.'); dot != std::string_view::npos;
       dot = scope.find('.', dot + 1)) {
    found.push_back(scope.substr(0, dot));
  }
  found.push_back(scope);
  return found;
}

// What a value is made of.
enum class MadeOf : std::uint8_t {
  kInputs,  // and constants, or nothing
  kWeight,  // one weight alone
  kBoth,    // the activations
};

// A frozen weight is a buffer; vectors and masks are constants.
bool is_weight(const graph::ModelGraph& graph, TensorId tensor) {
  const graph::Tensor& one = graph.tensor(tensor);
  if (one.role == TensorRole::kParameter) return true;
  return one.role == TensorRole::kBuffer && graph.shape(tensor).size() >= 2 &&
         one.dtype <= graph::DType::kFloat64;
}

struct Forward {
  std::vector<OpId> ops;  // of the forward pass, aliases too
  IdVector<OpId, MadeOf> made_of;
  std::set<std::string_view> lists;  // prefixes of scopes that have numbered members
  // Of each prefix, its first and last op that is not made of inputs alone, and its first that is
  // made of inputs and weights.
  struct Extent {
    OpId first, last, activation;
  };
  std::map<std::string_view, Extent> of_module;
};

Forward look(const graph::ModelGraph& graph) {
  Forward seen;
  seen.made_of.assign(graph.op_count(), MadeOf::kInputs);
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).phase != Phase::kForward) continue;
    seen.ops.push_back(op);
    std::set<TensorId> different;
    MadeOf most = MadeOf::kInputs;
    for (TensorId in : graph.inputs(op)) {
      different.insert(in);
      const OpId producer = graph.tensor(in).producer;
      const MadeOf one = producer.valid()       ? seen.made_of[producer]
                         : is_weight(graph, in) ? MadeOf::kWeight
                                                : MadeOf::kInputs;
      most = std::max(most, one);
    }
    if (most == MadeOf::kWeight && different.size() > 1) most = MadeOf::kBoth;
    seen.made_of[op] = most;
    for (std::string_view prefix : prefixes(graph.scope(op))) {
      const std::size_t dot = prefix.rfind('.');
      if (dot != std::string_view::npos && is_digit(prefix[dot + 1])) {
        seen.lists.insert(prefix.substr(0, dot));
      }
      if (most == MadeOf::kInputs) continue;
      Forward::Extent& extent = seen.of_module.try_emplace(prefix, op, op, OpId()).first->second;
      extent.last = op;
      if (most == MadeOf::kBoth && !extent.activation.valid()) extent.activation = op;
    }
  }
  return seen;
}

// The module that is entered between two ops: the outermost of the second that the first is not
// in; of lists, which nobody calls, the member. Empty if the second is in none.
std::string_view entered(const Forward& seen, std::string_view before, std::string_view now) {
  for (std::string_view prefix : prefixes(now)) {
    if (!within(before, prefix) && (!seen.lists.contains(prefix) || prefix == now)) return prefix;
  }
  return {};
}

// Lists of two or more modules with weights that are not inside the members of `list`.
std::vector<std::string> other_lists(const graph::ModelGraph& graph, const std::string& list) {
  const Forward seen = look(graph);
  std::map<std::string_view, int> members;
  for (const auto& [module, extent] : seen.of_module) {
    const std::size_t dot = module.rfind('.');
    if (dot == std::string_view::npos || !extent.activation.valid()) continue;
    const std::string_view of = module.substr(0, dot);
    if (seen.lists.contains(of) && is_digit(module[dot + 1]) && !within(of, list)) ++members[of];
  }
  std::vector<std::string> found;
  for (const auto& [of, count] : members) {
    if (count > 1) found.emplace_back(of);
  }
  return found;
}

}  // namespace

ModuleChain module_chain(const graph::ModelGraph& graph) {
  const Forward seen = look(graph);
  ModuleChain chain;
  if (seen.ops.empty()) return chain;
  chain.links.push_back({seen.ops.front(), ""});
  // Activations that were made and are read later, by their last reads.
  std::map<TensorId, OpId> alive;
  OpId before;
  bool has_work = false;  // the last link: an op that is no view
  for (OpId op : seen.ops) {
    if (seen.made_of[op] != MadeOf::kBoth) continue;
    std::erase_if(alive, [&](const auto& one) { return one.second < op; });
    if (has_work && alive.size() == 1) {
      const std::string_view module = entered(seen, graph.scope(before), graph.scope(op));
      const bool alone =
          std::ranges::all_of(graph.consumers(alive.begin()->first), [&](OpId reader) {
            return reader < op || graph.op(reader).phase != Phase::kForward ||
                   within(graph.scope(reader), module);
          });
      if (!module.empty() && seen.of_module.at(module).activation == op && alone) {
        chain.links.push_back({op, std::string(module)});
        has_work = false;
      }
    }
    before = op;
    has_work |= !graph.op(op).alias;
    for (TensorId out : graph.outputs(op)) {
      if (!out.valid()) continue;
      for (OpId reader : graph.consumers(out)) {
        if (graph.op(reader).phase == Phase::kForward) alive[out] = reader;
      }
    }
  }
  return chain;
}

LayerChain layer_chain(const graph::ModelGraph& graph, const ModuleChain& modules) {
  std::map<std::string, std::size_t> members;
  const auto list_of = [](const std::string& module) {
    const std::size_t dot = module.rfind('.');
    const bool member = dot != std::string::npos && is_digit(module[dot + 1]);
    return member ? module.substr(0, dot) : std::string();
  };
  for (const ModuleChain::Link& link : modules.links) {
    const std::string list = list_of(link.entered);
    if (!list.empty()) ++members[list];
  }
  LayerChain layers;
  std::size_t most = 1;
  for (const auto& [list, count] : members) {
    if (count > most) {
      most = count;
      layers.list = list;
    }
  }
  VALIDATE(!layers.list.empty(),
           "{}: no list of layers, one behind the other; such an engine splits models by layers",
           graph.name());
  for (std::string_view other : other_lists(graph, layers.list)) {
    fail_input("{}: two lists of layers, {} and {}; such an engine knows models of one",
               graph.name(), layers.list, other);
  }
  layers.chain.links.push_back(modules.links.front());
  for (const ModuleChain::Link& link : modules.links) {
    if (list_of(link.entered) == layers.list) layers.chain.links.push_back(link);
  }
  return layers;
}

std::vector<std::string> modules_of(const graph::ModelGraph& graph, const ModuleChain& chain,
                                    std::size_t begin, std::size_t end) {
  const Forward seen = look(graph);
  const OpId from = chain.links[begin].begin;
  const bool last = end == chain.size();
  std::vector<std::string> found;
  const auto inside = [&](OpId op) { return op >= from && (last || op < chain.links[end].begin); };
  for (OpId op : seen.ops) {
    if (!inside(op) || seen.made_of[op] == MadeOf::kInputs) continue;
    for (std::string_view prefix : prefixes(graph.scope(op))) {
      if (seen.lists.contains(prefix) && prefix != graph.scope(op)) continue;
      const Forward::Extent& extent = seen.of_module.at(prefix);
      if (!inside(extent.first) || !inside(extent.last)) continue;
      if (std::ranges::find(found, prefix) == found.end()) found.emplace_back(prefix);
      break;
    }
  }
  return found;
}

Chain chain_of(const cost::Problem& problem, const ModuleChain& modules) {
  const std::vector<OpId> forward = forward_ops(problem);
  std::vector<std::size_t> ends;
  for (std::size_t i = 1; i < modules.size(); ++i) {
    const auto at = std::ranges::lower_bound(forward, modules.links[i].begin);
    EXPECT(at != forward.begin() && at != forward.end());
    ends.push_back(static_cast<std::size_t>(at - forward.begin()) - 1);
  }
  return chain_cut_after(problem, ends);
}

}  // namespace heterog::search
