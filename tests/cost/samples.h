// The measured rows of configs/calibration, each as a graph of one operator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/cluster_io.h"
#include "cost/cost_model.h"
#include "graph/model_graph.h"

namespace heterog::cost {

struct Sample {
  std::string source;  // "deepbench"
  std::string device;  // "V100-SXM2-16GB"
  // The constants that decide it: "matmul", "convolution_forward_half", "softmax".
  std::string constants;
  // The line of the error table that it counts in: as `constants`, with 3×3 kernels at stride 1
  // apart: "convolution_forward_3x3".
  std::string group;
  std::string shape;      // the sizes of the row, to find it again on another device
  bool held_out = false;  // every fifth row by time of a device's group: no fit sees it
  graph::ModelGraph graph;
  double seconds = 0;  // measured
};

// Throws an input error that names the file and line on rows that it cannot read.
std::vector<Sample> read_samples(const std::string& folder);

// A profiled layer of a network, one pass of it, as often as the network has it.
struct Layer {
  std::string device;
  std::string kind;  // "convolution backward"
  std::int64_t count = 0;
  std::vector<graph::ModelGraph> graphs;  // of an operator each
  double seconds = 0;                     // of all of them, measured
};

// The layers of `folder`/layers.csv, which no fit sees.
std::vector<Layer> read_layers(const std::string& folder);

double predict(const CostModel& model, const Layer& layer, const cluster::DeviceType& type);

// Seconds of the sample's operator on `type`.
double predict(const CostModel& model, const Sample& sample, cluster::DeviceType type);

}  // namespace heterog::cost
