// Grids and arguments of the kernels of dropout.cu.
#include "runtime/gpu/dropout_on_gpu.h"

#include <limits>

#include "base/check.h"
#include "runtime/gpu/launch_kernel.h"

namespace heterog::runtime {
namespace {

Strides strides_of(const at::Tensor& x) {
  if (!x.defined()) return {};
  EXPECT(x.dim() == 3 || x.size(3) == 1 || x.stride(3) == 1);
  return {x.stride(0), x.stride(1), x.stride(2)};
}

// Whether kernels can count what one head has.
bool fits(const at::Tensor& x) {
  return x.size(2) * x.size(3) <= std::numeric_limits<std::int32_t>::max();
}

Heads heads_of(const at::Tensor& x) {
  return {x.size(0), static_cast<unsigned>(x.size(1)), static_cast<unsigned>(x.size(2)),
          static_cast<unsigned>(x.size(3))};
}

Grid grid_of_heads(const at::Tensor& x) {
  return grid_of(x.size(2) * x.size(3), x.size(0) * x.size(1));
}

bool has_sums(const Shares& shares) {
  return shares.kept.scalar_type() == at::kFloat && shares.all.scalar_type() == at::kFloat;
}

}  // namespace

bool fill_kept_on_gpu(const at::Tensor& mask, const KeepRule& rule) {
  return launch("keep_mask", grid_of(rule.length, rule.blocks), {mask}, rule);
}

bool drop_on_gpu(const at::Tensor& out, const at::Tensor& kept, const at::Tensor& x, double scale,
                 const KeepRule& rule) {
  const std::string type = name_of_type(x.scalar_type());
  return !type.empty() &&
         launch("drop" + type, grid_of(rule.length, rule.blocks), {out, kept, x}, scale, rule);
}

bool bias_of_kept_on_gpu(const at::Tensor& out, const at::Tensor& bias, const KeepRule& rule) {
  EXPECT(rule.blocks == 1 && rule.length == out.numel());
  return fits(out) && launch("bias_of_kept" + name_of_type(out.scalar_type()), grid_of_heads(out),
                             {out, bias}, rule, heads_of(out), strides_of(out), strides_of(bias));
}

bool weigh_result_on_gpu(const at::Tensor& result, const Shares& shares, double least) {
  return fits(result) && has_sums(shares) &&
         launch("weigh_result" + name_of_type(result.scalar_type()), grid_of_heads(result),
                {result, shares.kept, shares.all}, static_cast<float>(shares.log_rate),
                static_cast<float>(least), heads_of(result), strides_of(result),
                strides_of(shares.kept), strides_of(shares.all));
}

bool weigh_gradient_on_gpu(const WeighedGradient& made, const at::Tensor& gradient,
                           const Shares& shares) {
  return fits(gradient) && has_sums(shares) &&
         launch("weigh_gradient" + name_of_type(gradient.scalar_type()), grid_of_heads(gradient),
                {made.weighed, made.kept, made.all, gradient, shares.kept, shares.all},
                static_cast<float>(shares.log_rate), heads_of(gradient), strides_of(made.weighed),
                strides_of(gradient), strides_of(shares.kept), strides_of(shares.all));
}

}  // namespace heterog::runtime
