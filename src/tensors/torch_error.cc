// Cuts what LibTorch says down to what matters.
#include "tensors/torch_error.h"

#include <c10/util/Exception.h>

#include "base/text.h"

namespace heterog::tensors {

std::string one_line(const std::exception& error) {
  const auto* with_backtrace = dynamic_cast<const c10::Error*>(&error);
  std::string text = with_backtrace != nullptr ? with_backtrace->what_without_backtrace()
                                               : std::string(error.what());
  text = text.substr(0, text.find('\n'));
  if (text.starts_with("[/")) {  // "[/source.cc:123] What is wrong"
    const std::size_t end = text.find("] ");
    if (end != text.npos) text = text.substr(end + 2);
  }
  while (text.ends_with('.')) text.pop_back();
  return printable(text, 200);
}

}  // namespace heterog::tensors
