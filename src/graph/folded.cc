// Looks through aliases and finds which parameter each update op belongs to.
#include "graph/folded.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "graph/update_forms.h"
#include "operators/facts.h"

namespace heterog::graph {
namespace {

// A stand-in batch for comparing sizes that are affine in the batch.
constexpr std::int64_t kTypicalSamples = 64;

// The base of a chain of aliases, stopping at an alias that cannot be sliced (it runs as a task).
IdVector<TensorId, TensorId> fold_bases(const ModelGraph& graph, const SplitAnalysis& splits) {
  IdVector<TensorId, TensorId> base(graph.tensor_count());
  for (TensorId t : graph.tensor_ids()) base[t] = t;
  for (OpId op : graph.op_ids()) {
    if (!graph.op(op).alias || !splits.sliceable[op]) continue;
    for (TensorId out : graph.outputs(op)) {
      if (out.valid()) base[out] = base[graph.inputs(op)[0]];
    }
  }
  return base;
}

// If the alias is sliced but its base is not (a scalar expanded over the batch), or they are sliced
// in ways that differ, the base decides how slices are fetched.
Read make_read(const ModelGraph& graph, const SplitAnalysis& splits, TensorId named, TensorId base,
               OperandUse use) {
  Read read;
  read.base = base;
  read.producer = graph.tensor(base).producer;
  read.use = use;
  const bool smaller = graph.bytes(named, kTypicalSamples) < graph.bytes(base, kTypicalSamples) &&
                       splits.rules[named].kind == splits.rules[base].kind;
  read.tensor = smaller ? named : base;
  read.rule = splits.rules[read.tensor];
  return read;
}

// One pass over the update ops: which parameters lie behind each (gradients seen), and before each
// (next values made).
struct Reach {
  static constexpr std::uint32_t kNone = 0xffffffff;
  static constexpr std::uint32_t kSeveral = 0xfffffffe;
  std::uint32_t parameter = kNone;
  void add(TensorId p) { add(p.value()); }
  void add(std::uint32_t p) {
    if (p == kNone || parameter == p) return;
    parameter = parameter == kNone ? p : kSeveral;
  }
  bool single() const { return parameter < kSeveral; }
};

struct Homes {
  IdVector<OpId, TensorId> home;
  IdVector<OpId, std::uint8_t> in_chain;
};

Homes find_homes(const ModelGraph& graph) {
  IdVector<TensorId, Reach> seen(graph.tensor_count());
  IdVector<TensorId, Reach> made(graph.tensor_count());
  IdVector<OpId, Reach> op_seen(graph.op_count());
  IdVector<OpId, Reach> op_made(graph.op_count());
  for (TensorId t : graph.tensor_ids()) {
    const Tensor& tensor = graph.tensor(t);
    if (tensor.role == TensorRole::kGradient && tensor.of.valid()) seen[t].add(tensor.of);
    if (tensor.role == TensorRole::kOptimizerState && tensor.of.valid()) seen[t].add(tensor.of);
    if (tensor.role == TensorRole::kParameter) seen[t].add(t);
    if (!tensor.replaces.valid()) continue;
    const Tensor& old = graph.tensor(tensor.replaces);
    if (old.role == TensorRole::kParameter) made[t].add(tensor.replaces);
    if (old.role == TensorRole::kOptimizerState && old.of.valid()) made[t].add(old.of);
  }
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).phase != Phase::kUpdate) continue;
    for (TensorId in : graph.inputs(op)) op_seen[op].add(seen[in].parameter);
    for (TensorId out : graph.outputs(op)) {
      if (out.valid()) seen[out].add(op_seen[op].parameter);
    }
  }
  for (std::size_t i = graph.op_count(); i-- > 0;) {
    const OpId op(i);
    if (graph.op(op).phase != Phase::kUpdate) continue;
    for (TensorId out : graph.outputs(op)) {
      if (out.valid()) op_made[op].add(made[out].parameter);
    }
    for (TensorId in : graph.inputs(op)) made[in].add(op_made[op].parameter);
  }
  Homes homes{IdVector<OpId, TensorId>(graph.op_count()),
              IdVector<OpId, std::uint8_t>(graph.op_count(), 0)};
  for (OpId op : graph.op_ids()) {
    if (graph.op(op).phase != Phase::kUpdate) continue;
    if (op_made[op].single()) {
      homes.home[op] = TensorId(op_made[op].parameter);
      homes.in_chain[op] = 1;
    } else if (op_seen[op].single()) {
      homes.home[op] = TensorId(op_seen[op].parameter);
    }
  }
  return homes;
}

// Everything downstream of a chain's op is in the chain (or leads nowhere), so running the chain as
// one task makes no cycle.
std::vector<UpdateChain> make_chains(const ModelGraph& graph, const Homes& homes,
                                     const Csr<OpId, Read>& reads) {
  std::map<TensorId, UpdateChain> chains;
  for (OpId op : graph.op_ids()) {
    if (!homes.in_chain[op] || graph.op(op).alias) continue;
    UpdateChain& chain = chains[homes.home[op]];
    chain.parameter = homes.home[op];
    chain.ops.push_back(op);
  }
  std::vector<UpdateChain> result;
  IdVector<TensorId, OpId> last_reader(graph.tensor_count());
  for (auto& [parameter, chain] : chains) {
    const auto inside = [&](const Read& read) {
      return read.producer.valid() && homes.in_chain[read.producer] &&
             homes.home[read.producer] == chain.parameter;
    };
    for (OpId op : chain.ops) {
      for (const Read& read : reads[op]) {
        if (inside(read)) {
          last_reader[read.base] = op;
          continue;
        }
        const bool known = std::any_of(chain.reads.begin(), chain.reads.end(), [&](const Read& r) {
          return r.tensor == read.tensor && r.use == read.use;
        });
        if (!known) chain.reads.push_back(read);
      }
    }
    Bytes live = 0;
    for (OpId op : chain.ops) {
      for (TensorId out : graph.outputs(op)) {
        if (out.valid() && !graph.tensor(out).replaces.valid()) live += graph.bytes(out, 1);
      }
      chain.temporary_bytes = std::max(chain.temporary_bytes, live);
      for (TensorId out : graph.outputs(op)) {
        if (out.valid() && !graph.tensor(out).replaces.valid() && !last_reader[out].valid()) {
          live -= graph.bytes(out, 1);
        }
      }
      for (const Read& read : reads[op]) {
        if (inside(read) && last_reader[read.base] == op &&
            !graph.tensor(read.base).replaces.valid()) {
          live -= graph.bytes(read.base, 1);
          last_reader[read.base] = OpId();  // an op that reads it twice gives it back once
        }
      }
    }
    result.push_back(std::move(chain));
  }
  return result;
}

// Ops whose results only their own slice has, or that write over what stays, are none of them.
std::vector<ParameterOp> find_parameter_ops(const ModelGraph& graph, const SplitAnalysis& splits,
                                            const FoldedGraph& folded) {
  IdVector<OpId, std::uint8_t> found(graph.op_count(), 0);
  const auto of_parameters = [&](const Read& read) {
    return read.producer.valid() ? found[read.producer] != 0
                                 : graph.tensor(read.base).role == TensorRole::kParameter;
  };
  const auto for_every_sample = [&](TensorId out) {
    return !out.valid() ||
           (splits.rules[out].kind == SplitKind::kSame && !graph.tensor(out).replaces.valid());
  };
  for (OpId op : folded.ops) {
    const std::span<const Read> reads = folded.reads[op];
    found[op] = graph.op(op).phase == Phase::kForward && !reads.empty() &&
                std::ranges::all_of(reads, of_parameters) &&
                std::ranges::all_of(graph.outputs(op), for_every_sample);
  }
  std::vector<std::pair<OpId, OpId>> readers;
  for (OpId op : folded.ops) {
    for (const Read& read : folded.reads[op]) {
      if (!read.producer.valid() || !found[read.producer]) continue;
      readers.emplace_back(read.producer, op);
    }
  }
  std::ranges::sort(readers);
  std::vector<ParameterOp> ops;
  for (const auto& [producer, reader] : readers) {
    if (graph.op(reader).phase == Phase::kUpdate) continue;
    if (ops.empty() || ops.back().op != producer) ops.push_back({producer, {}});
    if (ops.back().readers.empty() || ops.back().readers.back() != reader) {
      ops.back().readers.push_back(reader);
    }
  }
  std::ranges::reverse(ops);
  return ops;
}

std::vector<TensorId> find_read_elsewhere(const ModelGraph& graph, const FoldedGraph& folded,
                                          const Homes& homes) {
  std::vector<TensorId> found;
  for (OpId op : graph.op_ids()) {
    for (const Read& read : folded.reads[op]) {
      const OpId writer = read.producer.valid() ? OpId() : folded.updater[read.base];
      if (!writer.valid() || writer == op) continue;
      if (graph.tensor(read.base).role == TensorRole::kParameter) continue;
      const bool one_chain =
          homes.in_chain[op] && homes.in_chain[writer] && homes.home[op] == homes.home[writer];
      if (one_chain) continue;
      for (TensorId out : graph.outputs(writer)) {
        if (out.valid() && graph.tensor(out).replaces == read.base) found.push_back(out);
      }
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// Whether an op makes, of partial sums alone, what adds up to the same over other slices too.
bool adds_partial_sums(const ModelGraph& graph, const SplitAnalysis& splits, OpId op,
                       std::span<const Read> reads) {
  if (graph.op(op).phase != Phase::kBackward || !splits.sliceable[op] || reads.empty())
    return false;
  const auto for_updates = [&](TensorId out) {
    const Tensor& made = graph.tensor(out);
    return !made.replaces.valid() && made.role != TensorRole::kOutput && !graph.shape(out).empty();
  };
  return std::ranges::all_of(reads,
                             [](const Read& read) {
                               return read.producer.valid() && read.use == OperandUse::kPartial;
                             }) &&
         std::ranges::all_of(graph.outputs(op),
                             [&](TensorId out) { return !out.valid() || for_updates(out); });
}

std::vector<TiedSum> find_tied_sums(const ModelGraph& graph, const SplitAnalysis& splits,
                                    const FoldedGraph& folded) {
  // The parameter of all who read an op's results: later readers are seen first.
  IdVector<OpId, Reach> read_for(graph.op_count());
  IdVector<OpId, std::uint8_t> adds(graph.op_count(), 0);
  const auto note = [&](std::span<const Read> reads, std::uint32_t parameter) {
    for (const Read& read : reads) {
      if (read.producer.valid()) read_for[read.producer].add(parameter);
    }
  };
  for (const UpdateChain& chain : folded.chains) note(chain.reads, chain.parameter.value());
  for (std::size_t i = folded.ops.size(); i-- > 0;) {
    const OpId op = folded.ops[i];
    const auto reads = folded.reads[op];
    if (graph.op(op).phase == Phase::kUpdate) {
      const TensorId home = folded.home[op];
      note(reads, home.valid() ? home.value() : Reach::kSeveral);
      continue;
    }
    adds[op] = read_for[op].single() && adds_partial_sums(graph, splits, op, reads);
    note(reads, adds[op] ? read_for[op].parameter : Reach::kSeveral);
  }
  std::vector<TiedSum> sums;
  IdVector<OpId, std::uint8_t> is_sum(graph.op_count(), 0);
  for (OpId op : folded.ops) {
    const auto reads = folded.reads[op];
    is_sum[op] = adds[op] && (reads.size() > 1 || is_sum[reads.front().producer]);
    if (is_sum[op]) sums.push_back({op, TensorId(read_for[op].parameter)});
  }
  return sums;
}

}  // namespace

const UpdateChain& chain_of(const FoldedGraph& folded, TensorId parameter) {
  const auto found =
      std::ranges::lower_bound(folded.chains, parameter, {}, &UpdateChain::parameter);
  ENSURE(found != folded.chains.end() && found->parameter == parameter);
  return *found;
}

FoldedGraph fold_aliases(const ModelGraph& graph, const SplitAnalysis& splits) {
  FoldedGraph folded;
  const IdVector<TensorId, TensorId> base = fold_bases(graph, splits);
  folded.updater.assign(graph.tensor_count(), OpId());
  const Homes homes = find_homes(graph);
  folded.home = homes.home;
  std::vector<std::pair<TensorId, OpId>> readers;
  std::vector<Read> reads;
  for (OpId op : graph.op_ids()) {
    reads.clear();
    if (!(graph.op(op).alias && splits.sliceable[op])) {
      if (!homes.in_chain[op]) folded.ops.push_back(op);
      const auto inputs = graph.inputs(op);
      const auto uses = splits.uses[op];
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Read read = make_read(graph, splits, inputs[i], base[inputs[i]], uses[i]);
        const bool known = std::any_of(reads.begin(), reads.end(), [&](const Read& r) {
          return r.tensor == read.tensor && r.use == read.use;
        });
        if (!known) reads.push_back(read);
      }
      if (graph.op(op).phase != Phase::kUpdate) {
        for (const Read& read : reads) {
          if (graph.tensor(read.base).role == TensorRole::kParameter) {
            readers.emplace_back(read.base, op);
          }
        }
      }
      for (TensorId out : graph.outputs(op)) {
        if (out.valid() && graph.tensor(out).replaces.valid()) {
          folded.updater[graph.tensor(out).replaces] = op;
        }
      }
    }
    folded.reads.push_row(reads);
  }
  folded.parameter_readers = Csr<TensorId, OpId>::from_pairs(graph.tensor_count(), readers);
  folded.parameter_ops = find_parameter_ops(graph, splits, folded);
  folded.chains = make_chains(graph, homes, folded.reads);
  find_forms(graph, folded.chains);
  folded.read_elsewhere = find_read_elsewhere(graph, folded, homes);
  folded.tied_sums = find_tied_sums(graph, splits, folded);
  return folded;
}

}  // namespace heterog::graph
