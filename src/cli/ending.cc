// Maps exceptions to exit codes.
#include "cli/ending.h"

#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "cli/torch/with_torch.h"

namespace heterog::cli {

namespace {

Ending failed(ErrorKind kind, std::string message) {
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return {static_cast<int>(kind), std::move(message)};
}

}  // namespace

Ending ending_of(const std::function<int()>& body) {
  try {
    return {.code = body(), .error = {}};
  } catch (const Error& error) {
    return failed(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(ErrorKind::kVerification, "not enough host memory for this problem");
  } catch (const std::system_error& error) {  // no threads left
    return failed(ErrorKind::kVerification, error.what());
  } catch (const std::exception& error) {
    // What LibTorch refuses is an operator of the user's graph, or memory that there is not.
    if (const auto text = torch_error(error)) {
      return failed(ErrorKind::kVerification, "PyTorch: " + *text);
    }
    return failed(ErrorKind::kBug, error.what());
  } catch (...) {
    return failed(ErrorKind::kBug, "an unknown exception");
  }
}

}  // namespace heterog::cli
