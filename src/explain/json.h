// JSON that is written: its keys stay in the order in which they were put in.
#pragma once

#include <nlohmann/json.hpp>

namespace heterog::explain {

using OrderedJson = nlohmann::ordered_json;

}  // namespace heterog::explain
