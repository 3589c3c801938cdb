// The numbers that a contiguous tensor on the CPU holds.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace heterog::runtime {

// As Tensor::const_data_ptr<T>(), whose name in the library is not the same in all the versions of
// LibTorch that one build runs with (docs/dependencies.md).
template <class T>
const T* numbers_of(const at::Tensor& tensor) {
  constexpr auto kWanted = c10::CppTypeToScalarType<T>::value;
  TORCH_CHECK(tensor.scalar_type() == kWanted, "numbers of ", kWanted, " wanted, the tensor has ",
              tensor.scalar_type());
  return static_cast<const T*>(tensor.const_data_ptr());
}

}  // namespace heterog::runtime
