// The overload follows from what the other operands turn out to be: lists, or one number for all.
#include "runtime/kernels/list_call.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "runtime/kernels/dispatcher.h"

namespace heterog::runtime {
namespace {

using operators::ListForm;
using operators::ListKind;
using Stacks = std::vector<torch::jit::Stack>;

std::vector<at::Tensor> list_of(const Stacks& stacks, std::size_t argument) {
  std::vector<at::Tensor> items;
  for (const torch::jit::Stack& stack : stacks) items.push_back(stack[argument].toTensor());
  return items;
}

std::vector<at::Tensor> call(const ListForm& form, std::string_view overload, bool over,
                             std::vector<at::Tensor> first, torch::jit::Stack others) {
  torch::jit::Stack stack;
  stack.emplace_back(first);
  for (c10::IValue& other : others) stack.push_back(std::move(other));
  list_form_to_call(form, overload, over).callBoxed(stack);
  return over ? std::move(first) : stack.at(0).toTensorVector();
}

bool alike(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const at::Tensor& x, const at::Tensor& y) {
    return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type();
  });
}

// One number for all, in the type of what it is combined with: kernels over lists want it so.
bool is_one_number(const std::vector<at::Tensor>& items) {
  return items.front().dim() == 0 && std::ranges::all_of(items, [&](const at::Tensor& item) {
           return item.is_same(items.front());
         });
}

// Nothing: these operands have no overload.
std::vector<at::Tensor> call_binary(const ListForm& form, const Stacks& stacks, bool over,
                                    std::vector<at::Tensor> first) {
  std::vector<at::Tensor> other = list_of(stacks, 1);
  torch::jit::Stack factor;  // of a sum
  if (stacks.front().size() > 2) factor.push_back(stacks.front()[2]);
  if (other.front().unsafeGetTensorImpl()->is_wrapped_number()) {
    return call(form, "Scalar", over, std::move(first), {other.front().item()});
  }
  if (alike(first, other)) {
    factor.insert(factor.begin(), other);
    return call(form, "List", over, std::move(first), std::move(factor));
  }
  if (!form.one_tensor || !is_one_number(other)) return {};
  factor.insert(factor.begin(), other.front());
  return call(form, "Tensor", over, std::move(first), std::move(factor));
}

// x + factor · a · b, where b may be one number for all, which kernels over lists do not take: then
// in two calls.
std::vector<at::Tensor> call_product(const ListForm& form, const Stacks& stacks, bool over,
                                     std::vector<at::Tensor> first) {
  std::vector<at::Tensor> a = list_of(stacks, 1), b = list_of(stacks, 2);
  const c10::IValue factor = stacks.front().at(3);
  if (!alike(first, a)) return {};
  if (alike(first, b)) return call(form, "Scalar", over, std::move(first), {a, b, factor});
  if (!is_one_number(b) || !form.one_tensor) return {};
  const auto products = call(operators::kProductForm, "Tensor", false, std::move(a), {b.front()});
  return call(operators::kSumForm, "List", over, std::move(first), {products, factor});
}

}  // namespace

ListCall::ListCall(const graph::ModelGraph& graph, std::span<const OpId> ops, Samples samples,
                   const ExecuteOptions& options)
    : form_(operators::list_form(graph.type_name(ops.front()))),
      width_(graph.inputs(ops.front()).size()) {
  EXPECT(form_.kind != ListKind::kNone);
  for (OpId op : ops) {
    EXPECT(graph.inputs(op).size() == width_);
    calls_.emplace_back(graph, op, samples, options);
  }
}

std::vector<at::Tensor> ListCall::run(std::span<const at::Tensor> operands,
                                      const std::vector<bool>& given_away) const {
  EXPECT(operands.size() == given_away.size() && operands.size() == calls_.size() * width_);
  Stacks stacks;
  bool over = true;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    stacks.push_back(calls_[i].bind(operands.subspan(i * width_, width_)));
    over = over && given_away[i * width_];
  }
  std::vector<at::Tensor> first = list_of(stacks, 0);
  std::vector<at::Tensor> results;
  switch (form_.kind) {
    case ListKind::kNone:
      break;
    case ListKind::kUnary:
      results = call(form_, "", over, std::move(first), {});
      break;
    case ListKind::kNumber:
      results = call(form_, "Scalar", over, std::move(first), {stacks.front()[1]});
      break;
    case ListKind::kLerp: {
      const auto towards = list_of(stacks, 1);
      if (!alike(first, towards)) break;
      results = call(form_, "Scalar", over, std::move(first), {towards, stacks.front()[2]});
      break;
    }
    case ListKind::kBinary:
      results = call_binary(form_, stacks, over, std::move(first));
      break;
    case ListKind::kProduct:
      results = call_product(form_, stacks, over, std::move(first));
      break;
  }
  if (!results.empty()) return results;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    results.push_back(calls_[i].call(std::move(stacks[i])).at(0));
  }
  return results;
}

}  // namespace heterog::runtime
