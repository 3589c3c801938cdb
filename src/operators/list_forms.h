// The operators of one element at a time that PyTorch also has over lists of tensors: one call, and
// on a GPU a few kernels, for many tensors ("multi-tensor").
#pragma once

#include <cstdint>
#include <string_view>

namespace heterog::operators {

// The operands of an operator beside its first tensor, and so those of its form over lists.
enum class ListKind : std::uint8_t {
  kNone,
  kUnary,    // nothing
  kBinary,   // a tensor or a number
  kNumber,   // a number alone
  kProduct,  // two tensors, whose product or quotient, times a number, is added
  kLerp,     // a tensor to go towards, by a number
};

// Constant.
struct ListForm {
  std::string_view name = {};  // "_foreach_add"
  ListKind kind = ListKind::kNone;
  bool one_tensor =
      false;  // kBinary: has an overload whose other operand is one number on a device
};

// The list form of an overload, as "aten.add.Tensor"; kNone for operators without one.
const ListForm& list_form(std::string_view type);

inline constexpr ListForm kProductForm{"_foreach_mul", ListKind::kBinary, true};
inline constexpr ListForm kSumForm{"_foreach_add", ListKind::kBinary, true};

}  // namespace heterog::operators
