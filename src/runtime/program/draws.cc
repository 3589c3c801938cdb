// Looks at the argument that switches an operator's random numbers off.
#include "runtime/program/draws.h"

#include <optional>

#include "operators/facts.h"

namespace heterog::runtime {
namespace {

using graph::Value;

// Null: the graph does not give it.
const Value* given(const graph::ModelGraph& graph, OpId op, const operators::RandomSwitch& which) {
  for (const auto& [key, value] : graph.kwargs(op)) {
    if (key == which.name) return &value;
  }
  const auto args = graph.args(op);
  return which.argument < args.size() ? &args[which.argument] : nullptr;
}

bool draws(const graph::ModelGraph& graph, OpId op) {
  const operators::Facts& facts = graph.facts(op);
  if (facts.random == operators::Random::kNone) return false;
  if (!facts.random_switch) return true;
  const Value* value = given(graph, op, *facts.random_switch);
  if (!value) return !facts.random_switch->off_by_default;
  if (value->kind == Value::Kind::kNone) return true;
  return value->kind == Value::Kind::kFloat ? value->number != 0 : value->integer.c != 0;
}

}  // namespace

bool is_drawn_by_counter(const graph::ModelGraph& graph, OpId op) {
  return graph.facts(op).random == operators::Random::kCounter && draws(graph, op);
}

double dropped_share(const graph::ModelGraph& graph, OpId op) {
  const operators::Facts& facts = graph.facts(op);
  const bool attention = facts.family == operators::Family::kAttention ||
                         facts.family == operators::Family::kAttentionBackward;
  const Value* rate = attention ? given(graph, op, *facts.random_switch) : &graph.args(op)[1];
  if (!rate) return 0;
  return rate->kind == Value::Kind::kInt ? static_cast<double>(rate->integer.c) : rate->number;
}

OpId drawn_for(const graph::ModelGraph& graph, OpId op) {
  const bool backward = graph.facts(op).family == operators::Family::kAttentionBackward;
  return backward ? graph.op(op).forward : op;
}

bool draws_from_generator(const graph::ModelGraph& graph, OpId op) {
  return graph.facts(op).random == operators::Random::kGenerator && draws(graph, op);
}

}  // namespace heterog::runtime
