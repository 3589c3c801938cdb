// Looks the operators of a graph up in PyTorch's dispatcher.
#include "runtime/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <set>
#include <string_view>

#include "base/check.h"
#include "base/text.h"

namespace heterog::runtime {

OperatorName operator_name(std::string_view type) {
  const std::size_t first = type.find('.');
  const std::size_t last = type.rfind('.');
  if (first == type.npos || first == last) return {std::string(type), ""};
  const std::string_view overload = type.substr(last + 1);
  return {std::string(type.substr(0, first)) +
              "::" + std::string(type.substr(first + 1, last - first - 1)),
          overload == "default" ? "" : std::string(overload)};
}

void check_operators(const graph::ModelGraph& graph, const std::string& source) {
  std::set<std::string_view> known;
  for (OpId op : graph.op_ids()) {
    const std::string_view type = graph.type_name(op);
    if (known.contains(type)) continue;
    const OperatorName name = operator_name(type);
    VALIDATE(c10::Dispatcher::singleton().findSchema({name.name, name.overload}),
             "{}: op '{}': PyTorch has no operator {}; export the graph again with this version",
             source, printable(graph.op(op).name), printable(type));
    known.insert(type);
  }
}

}  // namespace heterog::runtime
