// Names by their characters.
#include "base/names.h"

#include <algorithm>

#include "base/text.h"

namespace heterog {
namespace {

constexpr std::size_t kMaxHost = 255;  // of the domain name system, RFC 1035
constexpr std::size_t kMaxFile = 100;

bool is_host_part(std::string_view part) {
  return !part.empty() && part[0] != '-' && std::ranges::all_of(part, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._:%[]-").find(c) != std::string_view::npos;
  });
}

}  // namespace

bool is_host_name(std::string_view text) {
  if (text.size() > kMaxHost) return false;
  const std::size_t at = text.find('@');
  if (at == text.npos) return is_host_part(text);
  return is_host_part(text.substr(0, at)) && is_host_part(text.substr(at + 1));
}

bool is_file_name(std::string_view text) {
  return !text.empty() && text[0] != '.' && text.find_first_of("/\\") == text.npos &&
         printable(text, kMaxFile) == text;
}

}  // namespace heterog
