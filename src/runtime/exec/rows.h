// Gradients of embeddings as the rows that are not zero, packed into one tensor of bytes.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>

namespace heterog::runtime {

// Bytes of `rows` packed rows of a gradient: their indices (int64), then the rows.
std::int64_t packed_bytes(const at::Tensor& gradient, std::int64_t rows);
// At most `rows` rows of the gradient are not zero; the others that are packed are row 0 with
// zeros. Neither this nor add_rows asks a device how many there are: nothing waits for it.
at::Tensor pack_rows(const at::Tensor& gradient, std::int64_t rows);

struct AddRowsOptions {
  bool in_place = false;
  // Which of `packed` holds the gradient's own rows, if one does. They are then added in the place
  // of the others, so that every device that adds the same gets the same bits.
  std::int64_t own = -1;
};
at::Tensor add_rows(const at::Tensor& gradient, std::span<const at::Tensor> packed,
                    const AddRowsOptions& options);

}  // namespace heterog::runtime
