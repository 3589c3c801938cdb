// Looking a kind of link up by the name that a cluster file gives.
#pragma once

#include <string>

#include "cluster/cluster_io.h"

namespace heterog::cluster {

// Throws an input error that begins with `where` and lists the kinds that there are.
const LinkKind& find_link(const LinkDatabase& links, const std::string& name,
                          const std::string& where);

}  // namespace heterog::cluster
