// Tables of text.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace heterog::explain {

// Columns as wide as their widest cell, two spaces apart; the first is left-aligned, the others
// right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add_row(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace heterog::explain
