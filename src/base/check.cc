// Raises broken invariants as exceptions that name their place.
#include "base/check.h"

#include <string_view>

namespace heterog {

void fail_expect(const char* condition, const char* file, int line) {
  std::string_view path(file);
  if (auto at = path.rfind("src/"); at != path.npos) path.remove_prefix(at);
  throw Error(ErrorKind::kBug,
              fmt::format("internal error at {}:{}: expected {}", path, line, condition));
}

void expect_not_stopped(const std::function<bool()>& stopped) {
  if (stopped && stopped()) throw Error(ErrorKind::kVerification, "stopped by the caller");
}

}  // namespace heterog
