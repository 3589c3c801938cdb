// Looks the operators of a graph up in PyTorch's dispatcher.
#include "runtime/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <set>
#include <string_view>

#include "base/check.h"
#include "base/text.h"

namespace heterog::runtime {
namespace {

// "aten.add.Tensor" → {"aten::add", "Tensor"}; the overload "default" has no name in PyTorch.
c10::OperatorName operator_name(std::string_view type) {
  const std::size_t first = type.find('.');
  const std::size_t last = type.rfind('.');
  if (first == type.npos || first == last) return {std::string(type), ""};
  const std::string_view overload = type.substr(last + 1);
  return {std::string(type.substr(0, first)) +
              "::" + std::string(type.substr(first + 1, last - first - 1)),
          overload == "default" ? "" : std::string(overload)};
}

}  // namespace

void check_operators(const graph::ModelGraph& graph, const std::string& source) {
  std::set<std::string_view> known;
  for (OpId op : graph.op_ids()) {
    const std::string_view type = graph.type_name(op);
    if (known.contains(type)) continue;
    VALIDATE(c10::Dispatcher::singleton().findSchema(operator_name(type)),
             "{}: op '{}': PyTorch has no operator {}; export the graph again with this version",
             source, printable(graph.op(op).name), printable(type));
    known.insert(type);
  }
}

}  // namespace heterog::runtime
