// Puts title, style, data and script into the page of report_page/.
#include "explain/html_page.h"

#include <string_view>
#include <utility>

#include "base/check.h"
#include "explain/report_page.h"

namespace heterog::explain {

namespace {

// Inside a script element nothing may look like a tag; bytes that are not UTF-8 become U+FFFD.
std::string script_json(const OrderedJson& json) {
  std::string text;
  for (char c : json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

std::string html_text(const std::string& text) {
  std::string escaped;
  for (char c : text) {
    if (c == '<') {
      escaped += "&lt;";
    } else if (c == '&') {
      escaped += "&amp;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// The page with its marks replaced, from left to right: what is put in is not searched.
std::string fill_page(const std::string& title, const std::string& data) {
  const std::pair<std::string_view, std::string_view> parts[] = {
      {"@TITLE@", title}, {"@STYLE@", kReportStyle}, {"@DATA@", data}, {"@SCRIPT@", kReportScript}};
  std::string page;
  std::string_view rest = kReportPage;
  for (const auto& [mark, content] : parts) {
    const std::size_t at = rest.find(mark);
    ENSURE(at != std::string_view::npos);
    page += rest.substr(0, at);
    page += content;
    rest.remove_prefix(at + mark.size());
  }
  return page + std::string(rest);
}

}  // namespace

std::string html_page(const std::string& title, const OrderedJson& data) {
  return fill_page(html_text(title), script_json(data));
}

}  // namespace heterog::explain
