// Those that the steps of optimizers are made of.
#include "operators/list_forms.h"

#include <unordered_map>

namespace heterog::operators {

const ListForm& list_form(std::string_view type) {
  using enum ListKind;
  static const std::unordered_map<std::string_view, ListForm> forms = {
      {"aten.abs.default", {"_foreach_abs", kUnary}},
      {"aten.add.Tensor", kSumForm},
      {"aten.addcdiv.default", {"_foreach_addcdiv", kProduct}},
      {"aten.addcmul.default", {"_foreach_addcmul", kProduct, true}},
      {"aten.div.Tensor", {"_foreach_div", kBinary, true}},
      {"aten.exp.default", {"_foreach_exp", kUnary}},
      {"aten.lerp.Scalar", {"_foreach_lerp", kLerp}},
      {"aten.maximum.default", {"_foreach_maximum", kBinary}},
      {"aten.minimum.default", {"_foreach_minimum", kBinary}},
      {"aten.mul.Tensor", kProductForm},
      {"aten.neg.default", {"_foreach_neg", kUnary}},
      {"aten.pow.Tensor_Scalar", {"_foreach_pow", kNumber}},
      {"aten.reciprocal.default", {"_foreach_reciprocal", kUnary}},
      {"aten.sign.default", {"_foreach_sign", kUnary}},
      {"aten.sqrt.default", {"_foreach_sqrt", kUnary}},
      {"aten.sub.Tensor", {"_foreach_sub", kBinary}},
  };
  static const ListForm none;
  const auto found = forms.find(type);
  return found == forms.end() ? none : found->second;
}

}  // namespace heterog::operators
