// A linear layer whose frozen weight has 4 bits a number, forward and the gradient of its input:
// the weight is unpacked for the call alone, in the dtype of the operand.
#include "runtime/kernels/own_operators.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>
#include <string>
#include <vector>

namespace heterog::runtime {
namespace {

constexpr std::int64_t kBlock = 64;  // numbers that share a scale

// NF4, the quantiles of a normal distribution (Dettmers et al. 2023, appendix E), as bitsandbytes
// has them; python/heterog/export/operators/linear4bit.py has the same.
constexpr std::array<double, 16> kNormalFloat = {-1.0,
                                                 -0.6961928009986877,
                                                 -0.5250730514526367,
                                                 -0.39491748809814453,
                                                 -0.28444138169288635,
                                                 -0.18477343022823334,
                                                 -0.09105003625154495,
                                                 0.0,
                                                 0.07958029955625534,
                                                 0.16093020141124725,
                                                 0.24611230194568634,
                                                 0.33791524171829224,
                                                 0.44070982933044434,
                                                 0.5626170039176941,
                                                 0.7229568362236023,
                                                 1.0};

// That a weight of so many numbers is whole. `features` may be any number of a file.
void check_sizes(const at::Tensor& x, const at::Tensor& packed, const at::Tensor& scales,
                 std::int64_t features) {
  TORCH_CHECK(x.dim() > 0 && x.is_floating_point(), "its first operand has no rows of floats");
  TORCH_CHECK(packed.scalar_type() == at::kByte && packed.dim() == 1, "packed is no list of bytes");
  TORCH_CHECK(scales.is_floating_point() && scales.dim() == 1, "scales is no list of floats");
  const std::int64_t width = x.size(-1);
  TORCH_CHECK(features > 0 && width > 0 && features <= 2 * packed.numel() / width &&
                  packed.numel() == (features * width + 1) / 2,
              "packed has ", packed.numel(), " bytes, expected half of ", features, " x ", width);
  const std::int64_t blocks = (features * width + kBlock - 1) / kBlock;
  TORCH_CHECK(scales.numel() == blocks, "scales has ", scales.numel(), " numbers, expected ",
              blocks, ", one for each ", kBlock, " of ", features, " x ", width);
}

// The weight [rows, columns], in the operand's dtype. `packed`: the first number of two in the high
// half of a byte; `scales`: one a block of consecutive numbers.
at::Tensor unpacked(const at::Tensor& packed, const at::Tensor& scales, std::int64_t rows,
                    std::int64_t columns, const at::Tensor& like) {
  const auto wide = at::promote_types(scales.scalar_type(), like.scalar_type());
  const at::Tensor table =
      at::tensor(at::ArrayRef<double>(kNormalFloat), at::kDouble).to(packed.device(), wide);
  const at::Tensor places =
      at::stack({at::__rshift__(packed, 4), at::bitwise_and(packed, 15)}, 1).reshape({-1});
  const std::int64_t count = rows * columns;
  const at::Tensor values = table.index_select(0, places.to(at::kLong)).narrow(0, 0, count);
  const at::Tensor factors = scales.to(wide).repeat_interleave(kBlock).narrow(0, 0, count);
  return (values * factors).to(like.scalar_type()).view({rows, columns});
}

at::Tensor linear4bit(const at::Tensor& x, const at::Tensor& packed, const at::Tensor& scales,
                      std::int64_t features) {
  check_sizes(x, packed, scales, features);
  return at::matmul(x, unpacked(packed, scales, features, x.size(-1), x).t());
}

at::Tensor linear4bit_backward(const at::Tensor& gradient, const at::Tensor& packed,
                               const at::Tensor& scales, std::int64_t features) {
  check_sizes(gradient, packed, scales, features);
  return at::matmul(gradient, unpacked(packed, scales, gradient.size(-1), features, gradient));
}

// Without memory nothing is unpacked.
at::Tensor sizes_alone(const at::Tensor& x, const at::Tensor& packed, const at::Tensor& scales,
                       std::int64_t features) {
  check_sizes(x, packed, scales, features);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = features;
  return at::empty(sizes, x.options());
}

constexpr const char* kSchema = "(Tensor x, Tensor packed, Tensor scales, int features) -> Tensor";

}  // namespace

void register_own_operators() {
  // Never taken back: the process may call them to its end.
  static auto* library =
      new torch::Library(torch::Library::FRAGMENT, "heterog", std::nullopt, __FILE__, __LINE__);
  for (const char* name : {"linear4bit", "linear4bit_backward"}) {
    library->def(torch::schema((std::string(name) + kSchema).c_str()));
    library->impl(name, torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(sizes_alone)));
  }
  const auto everywhere = c10::DispatchKey::CompositeExplicitAutograd;
  library->impl("linear4bit", torch::dispatch(everywhere, TORCH_FN(linear4bit)));
  library->impl("linear4bit_backward", torch::dispatch(everywhere, TORCH_FN(linear4bit_backward)));
}

}  // namespace heterog::runtime
