#!/usr/bin/env bash
# Checks that includes in src/ point downwards only, that LibTorch stays in the folders that learn
# or run, that JSON stays where files and results are read and written, that PyTorch is asked for
# operators in one place, that operators are named in one place, and that no folder holds more
# than one can know one's way in. Usage: check_layers.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

find src -name '*.h' -o -name '*.cc' | sort | xargs --no-run-if-empty awk '
  BEGIN {
    # What a folder may include beside itself: folders, or single headers of a folder. A subfolder
    # that stands here is a folder of its own; one that does not belongs to the folder above it.
    may["base"] = ""
    may["operators"] = "base"
    may["graph"] = "base operators"
    may["cluster"] = "base"
    may["cost"] = "base operators graph cluster"
    may["decide"] = "base graph cluster cost"
    may["compiler/check"] = "base operators graph cluster cost decide/layout.h decide/recomputation.h decide/strategy.h compiler/plan.h"
    may["compiler/emit"] = "base operators graph cluster cost decide/frozen.h decide/layout.h decide/recomputation.h decide/servers.h decide/strategy.h compiler/compile_options.h compiler/plan.h compiler/plan_builder.h compiler/symmetry.h"
    may["compiler"] = "base operators graph cluster cost decide compiler/emit compiler/check"
    may["space"] = "base graph cluster cost decide/strategy.h"
    # The simulator and the runtime know plans, not how they are made.
    may["sim"] = "base graph cluster cost/problem.h compiler/order.h compiler/plan.h compiler/plan_builder.h compiler/slowest.h decide/strategy.h"
    may["oracle"] = "base graph cluster cost decide compiler sim"
    # Who searches or learns sees what can be decided and the interface of an oracle, never how a
    # strategy becomes a plan, nor who answers.
    # The frame of search is below its parts, and the list of planners above them.
    frame = " search/best_of.h search/options.h search/planner.h search/registry.h"
    may["search/moves"] = "base graph cluster cost decide space oracle/oracle.h oracle/batch_evaluator.h" frame
    may["search/starts"] = may["search/moves"] " search/moves"
    may["search/answers"] = may["search/starts"] " search/starts"
    may["search/pipeline"] = may["search/starts"] " search/starts"
    may["search/autosync"] = may["search/starts"] " search/starts"
    may["search/placement"] = may["search/starts"]
    may["search/engines"] = may["search/pipeline"] " search/pipeline search/placement"
    may["search/coarse"] = may["search/engines"] " search/engines"
    may["search/portfolio"] = may["search/coarse"] " search/answers search/coarse"
    may["search"] = may["search/portfolio"] " search/autosync search/placement search/portfolio"
    may["explain"] = "base graph cluster cost decide compiler sim"
    may["tensors"] = "base"
    # How processes talk and meet: below all that trains.
    may["comm"] = "base cluster cost/all_reduce_algorithm.h tensors"
    may["launch"] = "base cluster comm"
    # So it is of learning: its interface and settings are below its parts, training is above.
    settings = " learn/api.h learn/config.h"
    may["learn/drawing"] = "base graph cluster cost decide space" settings
    may["learn/formula"] = may["learn/drawing"] " search/pipeline search/starts"
    may["learn/network"] = may["learn/drawing"] " tensors learn/formula"
    may["learn/problems"] = may["learn/drawing"]
    may["learn/reinforce"] = may["learn/network"] " comm oracle search search/moves search/pipeline search/starts learn/drawing learn/formula learn/network learn/problems"
    may["learn/placers"] = may["learn/reinforce"] " learn/reinforce"
    may["learn"] = may["learn/reinforce"] " search/coarse search/engines search/portfolio learn/reinforce"
    may["runtime/program"] = "base operators graph cluster cost compiler/plan.h comm/device_sets.h launch/terms.h"
    may["runtime/gpu"] = "base"
    may["runtime/kernels"] = "base operators graph cluster cost compiler/plan.h tensors runtime/program runtime/gpu"
    may["runtime/attention"] = may["runtime/kernels"] " runtime/kernels"
    may["runtime/exec"] = may["runtime/attention"] " comm runtime/attention"
    may["runtime/ranks"] = may["runtime/exec"] " runtime/exec"
    may["runtime/check"] = may["runtime/ranks"] " runtime/ranks"
    may["measure"] = may["runtime/ranks"] " runtime/ranks launch sim/memory.h sim/simulator.h"
    may["tune"] = may["measure"] " compiler decide sim oracle search search/portfolio measure"
    may["loading"] = "base graph cluster cost decide compiler sim runtime/kernels runtime/exec"
    # Verbs that are called from Python are those of the program.
    may["client"] = "base graph cluster cost decide compiler sim launch runtime/program runtime/kernels runtime/exec runtime/ranks loading cli"
    may["cli"] = "base graph cluster cost decide compiler compiler/check sim oracle search search/answers search/autosync search/pipeline search/portfolio search/starts explain learn learn/placers learn/reinforce launch runtime/program runtime/kernels runtime/exec runtime/ranks runtime/check measure tune loading"
    for (folder in may) {
      n = split(may[folder], parts, " ")
      for (i = 1; i <= n; ++i) allowed[folder, parts[i]] = 1
      allowed[folder, folder] = 1
    }
    # The rest of comm and launch is built without LibTorch too, which tells.
    n = split("tensors comm launch learn learn/drawing learn/formula learn/network learn/placers learn/reinforce runtime/gpu runtime/kernels runtime/attention runtime/exec runtime/ranks runtime/check measure tune client cli", parts, " ")
    for (i = 1; i <= n; ++i) torch[parts[i]]
  }
  function complain(what) {
    printf "%s:%d: %s\n", FILENAME, FNR, what
    bad = 1
  }
  FNR == 1 {
    n = split(FILENAME, path, "/")
    folder = path[2]
    if (n > 3 && (folder "/" path[3]) in may) folder = folder "/" path[3]
    if (!(folder in may)) complain("folder src/" folder " is not in the table of check_layers.sh")
  }
  /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
    target = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*[<"]/, "", target)
    sub(/[>"].*/, "", target)
    n = split(target, name, "/")
    to = name[1]
    if (n > 2 && (to "/" name[2]) in may) to = to "/" name[2]
    if ($0 ~ /"/) {
      if (!(to in may))
        complain("include of \"" target "\": write it from src/, as \"folder/file.h\"")
      else if (!((folder, to) in allowed) && !((folder, target) in allowed))
        complain("src/" folder " may not include \"" target "\"; it may use: " folder " " may[folder])
    }
    if (target ~ /^(torch|ATen|c10|c10d)\// && !(folder in torch))
      complain("LibTorch (" target ") in src/" folder "; it belongs where things learn, run or talk")
    if ((target ~ /^nlohmann\// || target == "base/json_reader.h") &&
        FILENAME !~ /_io\.cc$|^src\/base\/json_reader\.(h|cc)$|^src\/(explain|cli)\//)
      complain("JSON (" target ") outside *_io.cc, base/json_reader, explain and cli")
  }
  {
    home = FILENAME
    sub(/\/[^\/]*$/, "", home)
    if (++lines[home] == 4501) complain("src/ folders hold 4,500 lines at most; cut this one by its ideas")
  }
  # What a file names is looked up in one place, which consults the table of operators.
  /Dispatcher::singleton/ && FILENAME != "src/runtime/kernels/dispatcher.cc" {
    complain("operators of PyTorch are looked up in src/runtime/kernels/dispatcher.cc alone")
  }
  # What an operator is known for stands in one table: whoever asks by name knows it a second time.
  # The rules by which operators run on slices are functions of a graph, a table of them for each
  # family; the checks of what their kernels take on trust, and what the results of some are like, are
  # functions of tensors: all of them are above src/operators. Comments may name operators.
  {
    code = $0
    sub(/\/\/.*/, "", code)
    if (code ~ /"aten\./ && FILENAME !~ /^src\/(operators\/|graph\/split_rules\/[a-z]+\.cc$|runtime\/kernels\/(operand_checks|result_rules)\.cc$)/)
      complain("an operator by name; what is known of it belongs in src/operators/facts.cc")
  }
  END { exit bad }
'
