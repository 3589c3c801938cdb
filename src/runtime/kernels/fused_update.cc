// Puts the lists of several calls together, item by item.
#include "runtime/kernels/fused_update.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "runtime/kernels/dispatcher.h"

namespace heterog::runtime {
namespace {

bool is_list_of_tensors(const c10::Argument& formal) {
  const auto list = formal.real_type()->cast<c10::ListType>();
  return list && list->getElementType()->kind() == c10::TypeKind::TensorType;
}

bool is_written(const c10::Argument& formal) {
  return formal.alias_info() && formal.alias_info()->isWrite();
}

// So that the kernel may go through both as one row of elements.
at::Tensor laid_like(const at::Tensor& x, const at::Tensor& first) {
  const bool alike = x.strides() == first.strides();
  return alike || (x.is_contiguous() && first.is_contiguous()) ? x : at::empty_like(first).copy_(x);
}

// How many items a list has for each tensor of the first one: the flags of the call say so.
std::size_t items_each(std::string_view list, const c10::FunctionSchema& schema,
                       const torch::jit::Stack& stack) {
  const auto argument = [&](std::string_view name) {
    return stack[static_cast<std::size_t>(*schema.argumentIndexWithName(name))];
  };
  if (list == "max_exp_avg_sqs") return argument("amsgrad").toBool() ? 1 : 0;
  if (list == "momentum_buffer_list") return argument("momentum").toDouble() != 0 ? 1 : 0;
  return 1;
}

// Operands of one number, a count of steps or a rate, which kernels on GPUs read in single
// precision.
bool is_read_single(std::string_view name, Floats floats) {
  return name == "state_steps" || name == "grad_scale" || name == "found_inf" ||
         (name == "lr" && floats != Floats::kDouble);
}

}  // namespace

void fit_lists(const std::string& op, const c10::FunctionSchema& schema, torch::jit::Stack& stack,
               const ExecuteOptions& options) {
  const auto& formal = schema.arguments();
  std::vector<at::Tensor> first = stack[0].toTensorVector();
  for (at::Tensor& tensor : first) {
    if (!tensor.is_non_overlapping_and_dense()) tensor = tensor.contiguous();
  }
  const bool gpu = options.device.is_cuda();
  const auto number = [&](const at::Tensor& value, std::string_view name) {
    VALIDATE(value.numel() == 1, "op '{}': '{}' has {} elements; it is one number", op, name,
             value.numel());
    if (name == "found_inf" || name == "grad_scale") return value.to(at::kFloat);
    if (!gpu) return value;
    // A rate on the host is read in double precision.
    if (name == "lr" && options.floats == Floats::kDouble) return value.cpu();
    return value.to(at::kFloat);
  };
  for (std::size_t i = 0; i < formal.size(); ++i) {
    const std::string& name = formal[i].name();
    if (stack[i].isTensor()) {
      stack[i] = number(stack[i].toTensor(), name);
      continue;
    }
    if (!is_list_of_tensors(formal[i])) continue;
    std::vector<at::Tensor> items = i == 0 ? first : stack[i].toTensorVector();
    const std::size_t expected = first.size() * items_each(name, schema, stack);
    VALIDATE(items.size() == expected, "op '{}': '{}' has {} tensors; there must be {}", op, name,
             items.size(), expected);
    for (std::size_t j = 0; j < items.size(); ++j) {
      if (name == "state_steps") {
        items[j] = number(items[j], name);
        continue;
      }
      VALIDATE(
          items[j].sizes() == first[j].sizes() && items[j].scalar_type() == first[j].scalar_type(),
          "op '{}': '{}' is not of the sizes and dtype of what it updates", op, name);
      items[j] = laid_like(items[j], first[j]);
    }
    stack[i] = c10::List<at::Tensor>(items);
  }
}

FusedUpdate::FusedUpdate(const graph::ModelGraph& graph, std::span<const OpId> ops, Samples samples,
                         const ExecuteOptions& options)
    : options_(options), twin_(*twin_to_call(graph.type_name(ops.front()))) {
  const auto& formal = twin_.schema().arguments();
  std::size_t operand = 0;
  for (OpId op : ops) {
    calls_.emplace_back(graph, op, samples, options);
    // Results follow one another as the written lists do.
    const auto places = calls_.back().places();
    const auto outputs = graph.outputs(op);
    std::size_t out = 0;
    for (std::size_t argument = 0; argument < formal.size(); ++argument) {
      if (!is_list_of_tensors(formal[argument]) || !is_written(formal[argument])) continue;
      for (std::size_t i = 0; i < places.size(); ++i) {
        if (places[i].argument != argument) continue;
        if (out < outputs.size() && outputs[out].valid()) {
          written_.push_back({operand + i, results_ + out});
        }
        ++out;
      }
    }
    operand += places.size();
    results_ += outputs.size();
  }
}

// All ops mostly count by one tensor: once for all of them, and not by a kernel for each.
void FusedUpdate::make_numbers_single(std::vector<at::Tensor>& held) const {
  const auto& formal = twin_.schema().arguments();
  std::vector<std::pair<at::Tensor, at::Tensor>> made;
  std::size_t operand = 0;
  for (const OperatorCall& call : calls_) {
    for (const OperatorCall::Place& place : call.places()) {
      at::Tensor& value = held[operand++];
      if (!is_read_single(formal[place.argument].name(), options_.floats)) continue;
      const auto known =
          std::ranges::find_if(made, [&](const auto& one) { return one.first.is_same(value); });
      if (known != made.end()) {
        value = known->second;
        continue;
      }
      made.emplace_back(value, value.to(at::kFloat));
      value = made.back().second;
    }
  }
}

std::vector<at::Tensor> FusedUpdate::run(std::span<const at::Tensor> operands,
                                         const std::vector<bool>& given_away) const {
  EXPECT(operands.size() == given_away.size());
  std::vector<at::Tensor> held(operands.begin(), operands.end());
  for (const Written& one : written_) {
    if (!given_away[one.operand]) held[one.operand] = held[one.operand].clone();
  }
  const auto& formal = twin_.schema().arguments();
  if (options_.device.is_cuda()) make_numbers_single(held);
  // The arguments of the first op, with the lists of the others behind its own.
  torch::jit::Stack stack;
  std::vector<std::vector<at::Tensor>> lists(formal.size());
  std::vector<std::pair<std::size_t, std::size_t>> place_of;  // of an operand: argument, item
  for (const OperatorCall& call : calls_) {
    const auto places = call.places();
    torch::jit::Stack own = call.bind(std::span(held).subspan(place_of.size(), places.size()));
    for (const OperatorCall::Place& place : places) {
      place_of.emplace_back(place.argument, lists[place.argument].size() + place.item);
    }
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (!is_list_of_tensors(formal[i])) continue;
      for (const at::Tensor& item : own[i].toTensorVector()) lists[i].push_back(item);
    }
    if (stack.empty()) stack = std::move(own);
  }
  for (std::size_t i = 0; i < formal.size(); ++i) {
    if (is_list_of_tensors(formal[i])) stack[i] = c10::List<at::Tensor>(lists[i]);
  }
  twin_.callBoxed(stack);
  std::vector<at::Tensor> results(results_);
  for (const Written& one : written_) {
    const auto [argument, item] = place_of[one.operand];
    results[one.result] = lists[argument][item];
  }
  return results;
}

}  // namespace heterog::runtime
