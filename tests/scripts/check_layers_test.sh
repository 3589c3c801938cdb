#!/usr/bin/env bash
# check_layers.sh accepts includes that point down and refuses each kind that does not.
set -euo pipefail
check="$(cd "$(dirname "$0")/../.." && pwd)/scripts/check_layers.sh"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# expect STATUS FILE INCLUDE: a tree that holds only this include passes (0) or fails (1), and a
# failure names the file. expect_line: the same for any line.
expect() { expect_line "$1" "$2" "#include $3"; }
expect_line() {
  rm -rf "$work/src"
  mkdir -p "$work/$(dirname "$2")"
  echo "$3" >"$work/$2"
  local status=0
  "$check" "$work" >"$work/out" || status=1
  if [[ $status -ne $1 ]] || { [[ $1 -eq 1 ]] && ! grep -q "^$2:1:" "$work/out"; }; then
    echo "check_layers_test: $2 with '$3': status $status, expected $1"
    cat "$work/out"
    exit 1
  fi
}

expect 0 src/cost/problem.h '"graph/model_graph.h"'
expect 0 src/sim/simulator.h '"compiler/plan.h"'
expect 0 src/learn/network/encoder.cc '<torch/torch.h>'
expect 0 src/graph/graph_io.cc '<nlohmann/json.hpp>'
expect 0 src/sim/trace_io.cc '<nlohmann/json.hpp>'
expect 0 src/client/ranks.h '"loading/plan_files.h"'
expect 1 src/client/ranks.h '"learn/api.h"'
expect 0 src/client/verbs.h '"cli/ending.h"'
expect 0 src/explain/plan_diff.h '"decide/layout.h"'
expect 0 src/explain/page_data.cc '<nlohmann/json.hpp>'
expect 0 src/cli/diff.cc '"explain/plan_diff.h"'
expect 1 src/explain/plan_diff.h '"loading/plan_files.h"'
expect 1 src/explain/plan_diff.cc '<torch/types.h>'
expect 0 src/explain/what_if.cc '"sim/simulator.h"'
expect 1 src/search/moves/moves.cc '"explain/amounts.h"'
expect 0 src/search/moves/moves.cc '"oracle/batch_evaluator.h"'
expect 1 src/search/moves/moves.cc '"oracle/simulated_oracle.h"'
expect 1 src/search/moves/moves.cc '"sim/simulator.h"'
expect 1 src/space/spans.cc '"search/planner.h"'
expect 1 src/runtime/ranks/team.cc '"loading/plan_files.h"'
expect 0 src/runtime/exec/worker.cc '"runtime/program/program.h"'
expect 1 src/runtime/program/body.cc '"runtime/exec/worker.h"'
expect 1 src/runtime/program/body.cc '<ATen/ATen.h>'
expect 1 src/comm/routes.h '"runtime/program/program.h"'
expect 0 src/compiler/compile.cc '"decide/layout.h"'
expect 1 src/decide/strategy.h '"compiler/plan.h"'
expect 1 src/search/moves/moves.cc '"compiler/compile.h"'
expect 1 src/learn/trainer.cc '"compiler/plan.h"'
expect 0 src/search/starts/settle.cc '"search/moves/rebalance.h"'
expect 0 src/search/moves/moves.cc '"search/planner.h"'
expect 1 src/search/moves/moves.cc '"search/starts/starts.h"'
expect 1 src/search/engines/annealing.cc '"search/portfolio/portfolio.h"'
expect 1 src/learn/network/network.cc '"learn/reinforce/learner.h"'
expect 1 src/learn/problems/problems.cc '<torch/types.h>'
expect 1 src/base/file.cc '"graph/types.h"'
expect 1 src/graph/split.cc '"cluster/cluster.h"'
expect 1 src/sim/simulator.h '"compiler/compile.h"'
expect 1 src/search/planner.h '"learn/policy.h"'
expect 1 src/graph/split.h '"types.h"'
expect 1 src/search/registry.cc '<torch/types.h>'
expect 0 src/compiler/compile.cc '"compiler/emit/ops.h"'
expect 0 src/compiler/emit/ops.cc '"compiler/emit/fetch.h"'
expect 0 src/compiler/emit/fetch.h '"decide/layout.h"'
expect 0 src/cli/simulate.cc '"compiler/check/check_bytes.h"'
expect 1 src/compiler/emit/ops.cc '"compiler/compile.h"'
expect 1 src/compiler/check/check_bytes.cc '"compiler/emit/rows.h"'
expect 1 src/search/moves/moves.cc '"compiler/emit/rows.h"'
expect 1 src/compiler/plan.h '<ATen/ATen.h>'
expect 1 src/sim/memory.cc '<nlohmann/json.hpp>'
expect 1 src/cost/roofline.cc '"base/json_reader.h"'
expect 1 src/other/file.cc '<vector>'
expect_line 0 src/runtime/kernels/dispatcher.cc 'c10::Dispatcher::singleton().findSchema(name);'
expect_line 1 src/runtime/kernels/execute.cc 'c10::Dispatcher::singleton().findSchema(name);'
expect_line 0 src/operators/facts.cc '    called_as = "aten.reshape.default";'
expect_line 0 src/graph/split_rules/nn.cc '    {"aten.native_dropout.default", dropout},'
expect_line 0 src/graph/model_graph.h '  std::string type;  // "aten.mm.default"'
expect_line 1 src/graph/split_rules.cc 'if (type == "aten.mm.default") return;'
expect_line 1 src/runtime/program/body.cc 'return type == "aten.add.Tensor";  // a sum'
expect_line 1 src/client/ranks.cc 'return type.starts_with("aten.");'
rm -rf "$work/src"
mkdir -p "$work/src/base"
for i in 1 2; do seq -f '// Line %g.' 2250 >"$work/src/base/file$i.cc"; done
"$check" "$work" || { echo "check_layers_test: 4,500 lines are refused"; exit 1; }
echo '// One more.' >>"$work/src/base/file2.cc"
if "$check" "$work" >"$work/out"; then echo "check_layers_test: 4,501 lines pass"; exit 1; fi
echo "check_layers_test: ok"
