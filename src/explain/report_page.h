// The files of report_page/, part of the program (cmake/EmbedText.cmake).
#pragma once

#include <string_view>

namespace heterog::explain {

extern const std::string_view kReportPage;   // page.html, with marks for title, style, data, script
extern const std::string_view kReportStyle;  // style.css
extern const std::string_view kReportScript;  // script.js

}  // namespace heterog::explain
