// Files of links that were measured (docs/formats.md).
#pragma once

#include <string>

#include "cost/fitted_links.h"

namespace heterog::cost {

// Whether the file says that it holds links, and not operators.
bool is_link_profile(const std::string& path);

void write_link_profile(const std::string& path, const cluster::Cluster& cluster,
                        const FittedLinks& fitted, std::size_t flows);
// By name, whatever figures the cluster file has by now. Throws an input error for a link that the
// cluster lacks.
FittedLinks read_link_profile(const std::string& path, const cluster::Cluster& cluster);

}  // namespace heterog::cost
