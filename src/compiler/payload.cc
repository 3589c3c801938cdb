// Names of encodings and reductions.
#include "compiler/payload.h"

namespace heterog::compiler {

std::string_view encoding_name(Encoding encoding) {
  return encoding == Encoding::kRows ? "rows" : encoding == Encoding::kPart ? "part" : "dense";
}

std::string_view reduction_name(Reduction reduction) {
  switch (reduction) {
    case Reduction::kNone:
      return "none";
    case Reduction::kGather:
      return "gather";
    case Reduction::kSum:
      return "sum";
    case Reduction::kScatter:
      return "scatter";
  }
  return "";
}

}  // namespace heterog::compiler
