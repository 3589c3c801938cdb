// Prints to stdout.
#include "cli/output.h"

#include <fmt/format.h>

#include <cstdio>

namespace heterog::cli {

void print_json(const OrderedJson& json) { fmt::print("{}\n", json.dump(2)); }

}  // namespace heterog::cli
