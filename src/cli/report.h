// Results as people and programs read them: aligned tables, and JSON with units in the keys.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/plan.h"
#include "cost/problem.h"
#include "loading/plan_files.h"
#include "sim/simulator.h"

namespace heterog::cli {

using OrderedJson = nlohmann::ordered_json;

using loading::Simulated;

// The keys of `simulate --json`.
OrderedJson simulation_json(const cost::Problem& problem, const Simulated& simulated);
void print_json(const OrderedJson& json);

// Step time, bounds, devices and links.
std::string simulation_text(const cost::Problem& problem, const Simulated& simulated);

// What each device holds when it holds the most, by purpose.
std::string memory_text(const cost::Problem& problem, const Simulated& simulated);

// "v100-0/gpu0 lacks 1.20 GB when addmm_3 starts, …": every device over its memory, the first
// to run out with the task.
std::string out_of_memory_text(const cost::Problem& problem, const Simulated& simulated);

// Columns as wide as their widest cell, two spaces apart; the first is left-aligned, the others
// right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add_row(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "all-reduce mm_3", of the op concerned.
std::string task_name(const cost::Problem& problem, const compiler::Plan& plan, TaskId task);
// "forward", "backward" or "update" of an operator; the kind of any other task.
std::string task_phase(const cost::Problem& problem, const compiler::Plan& plan, TaskId task);
// "v100/gpu0", "v100/gpu0's collectives", "v100/nic.out", "the serial collectives".
std::string resource_name(const cost::Problem& problem, const compiler::Plan& plan,
                          ResourceId resource);

std::string milliseconds_text(double seconds);  // "412.3 ms"
std::string bytes_text(Bytes bytes);            // "125.2 MB", decimal, in the unit that fits
std::string gigabytes_text(Bytes bytes);        // "10.52 GB", decimal
// (base − time) / time, as HeteroG §6.2: "+35.7 %".
std::string speedup_text(double base, double time);

}  // namespace heterog::cli
