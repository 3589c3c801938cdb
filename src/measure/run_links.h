// What a run measured of its links.
#pragma once

#include <string>
#include <vector>

#include "cost/fitted_links.h"
#include "runtime/ranks/records.h"

namespace heterog::measure {

// Transfers and collectives of the plan, each with its typical duration over the steps (drift.h).
std::vector<cost::MeasuredFlow> measured_flows(const compiler::Plan& plan,
                                               const std::vector<runtime::MeasuredStep>& steps);

// The links fitted to these, as a profile; no file if nothing was sent.
void write_links(const std::string& path, const cluster::Cluster& cluster,
                 const compiler::Plan& plan, const std::vector<runtime::MeasuredStep>& steps);

}  // namespace heterog::measure
