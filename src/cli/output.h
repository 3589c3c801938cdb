// Functions with which every verb prints.
#pragma once

#include "cli/caller.h"
#include "explain/amounts.h"
#include "explain/json.h"
#include "explain/table.h"

namespace heterog::cli {

using explain::bytes_text;
using explain::gigabytes_text;
using explain::milliseconds_text;
using explain::OrderedJson;
using explain::speedup_text;
using explain::Table;

}  // namespace heterog::cli
