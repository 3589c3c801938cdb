// Compressed rows: for each id a span of values, in two flat arrays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace heterog {

// Rows are appended in id order with `push`/`end_row`, or built at once from (row, value) pairs.
template <class Row, class Value>
class Csr {
 public:
  Csr() : offsets_{0} {}

  std::span<const Value> operator[](Row row) const {
    EXPECT(row.value() < rows());
    return {values_.data() + offsets_[row.value()], values_.data() + offsets_[row.value() + 1]};
  }
  std::span<Value> mutable_row(Row row) {
    EXPECT(row.value() < rows());
    return {values_.data() + offsets_[row.value()], values_.data() + offsets_[row.value() + 1]};
  }

  void push(Value value) { values_.push_back(std::move(value)); }
  void end_row() { offsets_.push_back(static_cast<std::uint32_t>(values_.size())); }
  template <class Range>
  void push_row(const Range& range) {
    for (const auto& value : range) push(value);
    end_row();
  }

  // Counting sort of (row, value) pairs; within a row the order of `pairs` is kept. O(rows+pairs).
  static Csr from_pairs(std::size_t rows, const std::vector<std::pair<Row, Value>>& pairs) {
    Csr csr;
    csr.offsets_.assign(rows + 1, 0);
    for (const auto& [row, value] : pairs) ++csr.offsets_[row.value() + 1];
    for (std::size_t i = 0; i < rows; ++i) csr.offsets_[i + 1] += csr.offsets_[i];
    csr.values_.resize(pairs.size());
    std::vector<std::uint32_t> next(csr.offsets_.begin(), csr.offsets_.end() - 1);
    for (const auto& [row, value] : pairs) csr.values_[next[row.value()]++] = value;
    return csr;
  }

  // Sorts every row and drops repeats.
  void sort_and_unique_rows() {
    std::uint32_t kept = 0, begin = 0;
    for (std::size_t row = 0; row < rows(); ++row) {
      const auto first = values_.begin() + begin;
      begin = offsets_[row + 1];
      const auto last = values_.begin() + begin;
      std::sort(first, last);
      const auto out = values_.begin() + kept;
      kept += static_cast<std::uint32_t>(std::unique(first, last) - first);
      std::copy(first, first + (values_.begin() + kept - out), out);
      offsets_[row + 1] = kept;
    }
    values_.resize(kept);
  }
  // The rows turned around: row v holds every row of `other` that has v, ascending. Keeps memory.
  void assign_transposed(const Csr<Value, Row>& other, std::size_t rows) {
    offsets_.assign(rows + 2, 0);  // one behind, so that filling leaves them right
    for (const Row& row : other.values()) ++offsets_[row.value() + 2];
    for (std::size_t i = 2; i < offsets_.size(); ++i) offsets_[i] += offsets_[i - 1];
    values_.resize(other.size());
    for (std::size_t i = 0; i < other.rows(); ++i) {
      for (const Row& row : other[Value(i)]) values_[offsets_[row.value() + 1]++] = Value(i);
    }
    offsets_.pop_back();
  }

  std::size_t rows() const { return offsets_.size() - 1; }
  std::size_t size() const { return values_.size(); }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<std::uint32_t>& offsets() const { return offsets_; }
  void reserve(std::size_t rows, std::size_t values) {
    offsets_.reserve(rows + 1);
    values_.reserve(values);
  }
  void clear() {
    offsets_.assign(1, 0);
    values_.clear();
  }
  friend bool operator==(const Csr&, const Csr&) = default;

 private:
  std::vector<std::uint32_t> offsets_;
  std::vector<Value> values_;
};

}  // namespace heterog
