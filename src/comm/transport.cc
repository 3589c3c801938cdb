// Parts of values that members of a set have.
#include "comm/transport.h"

#include "base/check.h"

namespace heterog::comm {

at::Tensor part_of(const at::Tensor& value, const Cuts& cuts, std::size_t part) {
  EXPECT(part + 1 < cuts.size() && value.dim() > 0 && cuts.back() == value.size(0));
  return value.narrow(0, cuts[part], cuts[part + 1] - cuts[part]);
}

}  // namespace heterog::comm
