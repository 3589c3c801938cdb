// Grids and arguments of the kernels of dropout.cu.
#include "runtime/gpu/dropout_on_gpu.h"

#include "base/check.h"
#include "runtime/gpu/launch_kernel.h"

namespace heterog::runtime {
namespace {

Strides strides_of(const at::Tensor& x) {
  if (!x.defined()) return {};
  EXPECT(x.dim() == 3 || x.size(3) == 1 || x.stride(3) == 1);
  return {x.stride(0), x.stride(1), x.stride(2)};
}

Heads heads_of(const at::Tensor& x) {
  return {x.size(0), static_cast<unsigned>(x.size(1)), static_cast<unsigned>(x.size(2)),
          static_cast<unsigned>(x.size(3))};
}

// A thread that has one element alone waits for it as long as for several.
constexpr std::int64_t kElementsOfThread = 4;

Grid grid_of_elements(const KeepRule& rule) {
  return grid_of((rule.length + kElementsOfThread - 1) / kElementsOfThread, rule.blocks);
}

// A warp has a row.
constexpr std::int64_t kLanesOfRow = 32;

Grid grid_of_rows(const at::Tensor& x) {
  return grid_of(kLanesOfRow * x.size(0) * x.size(1) * x.size(2), 1);
}

}  // namespace

bool fill_kept_on_gpu(const at::Tensor& mask, const KeepRule& rule) {
  return launch("keep_mask", grid_of_elements(rule), {mask}, rule);
}

bool drop_on_gpu(const at::Tensor& out, const at::Tensor& kept, const at::Tensor& x, double scale,
                 const KeepRule& rule) {
  const std::string type = name_of_type(x.scalar_type());
  return !type.empty() &&
         launch("drop" + type, grid_of_elements(rule), {out, kept, x}, scale, rule);
}

bool drop_weights_on_gpu(const at::Tensor& used, const at::Tensor& log_sums,
                         const DroppedWeights& weights) {
  const auto& [products, bias, how, rule] = weights;
  EXPECT(rule.blocks == 1 && rule.length == used.numel());
  return launch("drop_weights" + name_of_type(used.scalar_type()), grid_of_rows(used),
                {used, log_sums, products, bias}, how, rule, heads_of(used), strides_of(bias));
}

bool drop_weights_backward_on_gpu(const at::Tensor& used, const at::Tensor& to_products,
                                  const at::Tensor& to_used, const at::Tensor& log_sums,
                                  const DroppedWeights& weights) {
  const auto& [products, bias, how, rule] = weights;
  EXPECT(rule.blocks == 1 && rule.length == used.numel());
  return launch("drop_weights_backward" + name_of_type(used.scalar_type()), grid_of_rows(used),
                {used, to_products, products, to_used, log_sums, bias}, how, rule, heads_of(used),
                strides_of(bias), strides_of(log_sums));
}

}  // namespace heterog::runtime
