// One HTML page that shows plans and needs nothing else.
#pragma once

#include <string>

#include "explain/json.h"

namespace heterog::explain {

// `data`: of page_data.
std::string html_page(const std::string& title, const OrderedJson& data);

}  // namespace heterog::explain
