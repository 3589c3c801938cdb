// Packs, unpacks and adds rows.
#include "runtime/exec/rows.h"

#include "base/check.h"

namespace heterog::runtime {
namespace {

struct Rows {
  at::Tensor indices;
  at::Tensor values;
};

std::int64_t row_elements(const at::Tensor& gradient) {
  return gradient.numel() / gradient.size(0);
}

Rows unpack(const at::Tensor& packed, const at::Tensor& gradient) {
  const std::int64_t rows = packed.numel() / packed_bytes(gradient, 1);
  const std::int64_t index_bytes = rows * 8;
  return {packed.narrow(0, 0, index_bytes).view(at::kLong),
          packed.narrow(0, index_bytes, packed.numel() - index_bytes)
              .view(gradient.scalar_type())
              .view({rows, row_elements(gradient)})};
}

}  // namespace

std::int64_t packed_bytes(const at::Tensor& gradient, std::int64_t rows) {
  return rows * (8 + row_elements(gradient) * gradient.element_size());
}

at::Tensor pack_rows(const at::Tensor& gradient, std::int64_t rows) {
  const at::Tensor flat = gradient.reshape({gradient.size(0), -1});
  const at::Tensor used = at::nonzero_static(flat.ne(0).any(1), rows, /*fill_value=*/-1).flatten();
  const at::Tensor is_row = used.ge(0);
  const at::Tensor packed =
      at::empty({packed_bytes(gradient, rows)}, gradient.options().dtype(at::kByte));
  Rows out = unpack(packed, gradient);
  at::clamp_min_out(out.indices, used, 0);
  out.values.copy_(
      flat.index_select(0, out.indices).masked_fill(is_row.logical_not().unsqueeze(1), 0));
  return packed;
}

at::Tensor add_rows(const at::Tensor& gradient, std::span<const at::Tensor> packed,
                    const AddRowsOptions& options) {
  at::Tensor sum = options.in_place && gradient.is_contiguous()
                       ? gradient
                       : gradient.clone(at::MemoryFormat::Contiguous);
  at::Tensor flat = sum.view({sum.size(0), -1});
  if (options.own >= 0) {
    const Rows own = unpack(packed[static_cast<std::size_t>(options.own)], gradient);
    flat.index_fill_(0, own.indices, 0);
  }
  for (const at::Tensor& part : packed) {
    const Rows added = unpack(part, gradient);
    flat.index_add_(0, added.indices, added.values);
  }
  return sum;
}

}  // namespace heterog::runtime
