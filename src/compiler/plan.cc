// Names of the kinds of tasks.
#include "compiler/plan.h"

namespace heterog::compiler {

std::string_view task_kind_name(TaskKind kind) {
  switch (kind) {
    case TaskKind::kCompute:
      return "compute";
    case TaskKind::kMerge:
      return "merge";
    case TaskKind::kTransfer:
      return "transfer";
    case TaskKind::kSum:
      return "sum";
    case TaskKind::kAllReduce:
      return "all-reduce";
    case TaskKind::kPush:
      return "push";
    case TaskKind::kPull:
      return "pull";
    case TaskKind::kUpdate:
      return "update";
    case TaskKind::kOverhead:
      return "overhead";
    case TaskKind::kReduceScatter:
      return "reduce-scatter";
    case TaskKind::kAllGather:
      return "all-gather";
    case TaskKind::kTurn:
      return "turn";
    case TaskKind::kAccumulate:
      return "accumulate";
  }
  return "";
}

}  // namespace heterog::compiler
