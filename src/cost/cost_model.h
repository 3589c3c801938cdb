// Cost model: seconds of an operator on a device. analyze() asks it once; search never does.
#pragma once

#include <cstdint>

#include "cluster/cluster.h"
#include "graph/model_graph.h"

namespace heterog::cost {

class CostModel {
 public:
  virtual ~CostModel() = default;
  // Seconds of `op` on `samples` ≥ 1 samples of the batch. Not asked about aliases.
  virtual double seconds(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                         const cluster::DeviceType& type) const = 0;
  // Bytes that the operator needs while it runs, beyond its inputs and outputs.
  virtual Bytes workspace_bytes(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                                const cluster::DeviceType& type) const = 0;
};

// Arithmetic and traffic of an op on `samples` samples.
struct OpWork {
  cluster::OpClass op_class = cluster::OpClass::kElementwise;
  graph::DType dtype = graph::DType::kFloat32;  // of the operands: which peak counts
  double flop = 0;  // a multiply-add counts 2; 0 for classes that bandwidth alone bounds
  Bytes bytes = 0;  // read and written
};
OpWork op_work(const graph::ModelGraph& graph, OpId op, std::int64_t samples);

// Bytes of the matrix that a convolution would unfold its input to (im2col), 0 for other ops and
// for kernels of one element at stride 1, which need none.
Bytes unfold_bytes(const graph::ModelGraph& graph, OpId op, std::int64_t samples);
// Bytes that an attention which drops weights has of them at once on a device of this type, with
// what is computed with them (cost/weights_at_once.h), or a product of its unpacked weight.
Bytes weights_bytes(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                    const cluster::DeviceType& type);

// Roofline: max((flop + half_efficiency_flop) / (peak · efficiency), bytes / (bandwidth ·
// efficiency)) + launch, with the figures of configs/devices.json. docs/costs.md has the rules of
// which peak counts.
class RooflineModel final : public CostModel {
 public:
  double seconds(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                 const cluster::DeviceType& type) const override;
  Bytes workspace_bytes(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                        const cluster::DeviceType& type) const override;
};

// The formula of cost/kernel.h by shape, with constants that were fitted to measurements of the
// device or of one like it; the roofline on devices that have none. The roofline stays as what the
// fit is compared with.
class CalibratedModel final : public CostModel {
 public:
  double seconds(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                 const cluster::DeviceType& type) const override;
  Bytes workspace_bytes(const graph::ModelGraph& graph, OpId op, std::int64_t samples,
                        const cluster::DeviceType& type) const override;
};

// The same time for every op on every device, for tests.
class ConstantModel final : public CostModel {
 public:
  explicit ConstantModel(double seconds) : seconds_(seconds) {}
  double seconds(const graph::ModelGraph&, OpId, std::int64_t,
                 const cluster::DeviceType&) const override {
    return seconds_;
  }
  Bytes workspace_bytes(const graph::ModelGraph&, OpId, std::int64_t,
                        const cluster::DeviceType&) const override {
    return 0;
  }

 private:
  double seconds_;
};

}  // namespace heterog::cost
