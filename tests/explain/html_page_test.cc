// Names of graphs and tensors cannot break out of the page.
#include "explain/html_page.h"

#include <gmock/gmock.h>

namespace heterog::explain {
namespace {

using testing::HasSubstr;
using testing::Not;

// The data is as it was put in, marks and tags included, and closes no element.
TEST(HtmlPage, HoldsWhateverTheNamesAre) {
  const OrderedJson data = {{"graph", "</script><b>@SCRIPT@ @STYLE@ \"&"}};
  const std::string page = html_page("a </title> & @DATA@", data);
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_THAT(page, HasSubstr("a &lt;/title> &amp; @DATA@"));
  EXPECT_THAT(page, Not(HasSubstr("<b>")));
  const std::string mark = "<script id=\"data\" type=\"application/json\">";
  const std::size_t begin = page.find(mark) + mark.size();
  ASSERT_NE(page.find(mark), std::string::npos);
  const std::size_t end = page.find("</script>", begin);
  EXPECT_EQ(OrderedJson::parse(page.substr(begin, end - begin)), data);
}

TEST(HtmlPage, ReplacesBytesThatAreNotUtf8) {
  EXPECT_THAT(html_page("page", {{"graph", "\xff"}}), HasSubstr("\xef\xbf\xbd"));
}

}  // namespace
}  // namespace heterog::explain
