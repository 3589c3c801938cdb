// Typed ids and arrays indexed by them, so that an op cannot be looked up with a device's number.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"

namespace heterog {

// A 32-bit index with a type of its own. Default-constructed ids are invalid.
template <class Tag>
class Id {
 public:
  using Value = std::uint32_t;
  static constexpr Value kInvalidValue = std::numeric_limits<Value>::max();

  constexpr Id() = default;
  constexpr explicit Id(std::size_t value) : value_(static_cast<Value>(value)) {}

  constexpr bool valid() const { return value_ != kInvalidValue; }
  constexpr Value value() const { return value_; }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  Value value_ = kInvalidValue;
};

// A vector that only its own kind of id can index. `size()` ids are valid: 0 … size()−1.
template <class IdType, class T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(std::size_t size) : items_(size) {}
  IdVector(std::size_t size, const T& value) : items_(size, value) {}
  explicit IdVector(std::vector<T> items) : items_(std::move(items)) {}

  decltype(auto) operator[](IdType id) {
    EXPECT(id.value() < items_.size());
    return items_[id.value()];
  }
  decltype(auto) operator[](IdType id) const {
    EXPECT(id.value() < items_.size());
    return items_[id.value()];
  }

  IdType push_back(T item) {
    items_.push_back(std::move(item));
    return IdType(items_.size() - 1);
  }
  const T& back() const { return items_.back(); }
  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  void resize(std::size_t size) { items_.resize(size); }
  void assign(std::size_t size, const T& value) { items_.assign(size, value); }
  void clear() { items_.clear(); }
  void reserve(std::size_t size) { items_.reserve(size); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  const std::vector<T>& raw() const { return items_; }
  std::vector<T>& raw() { return items_; }
  friend bool operator==(const IdVector&, const IdVector&) = default;

 private:
  std::vector<T> items_;
};

// `for (OpId op : id_range<OpId>(graph.op_count()))`.
template <class IdType>
class IdRange {
 public:
  class Iterator {
   public:
    explicit Iterator(std::size_t value) : value_(value) {}
    IdType operator*() const { return IdType(value_); }
    Iterator& operator++() {
      ++value_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return value_ != other.value_; }

   private:
    std::size_t value_;
  };
  explicit IdRange(std::size_t size) : size_(size) {}
  Iterator begin() const { return Iterator(0); }
  Iterator end() const { return Iterator(size_); }

 private:
  std::size_t size_;
};

template <class IdType>
IdRange<IdType> id_range(std::size_t size) {
  return IdRange<IdType>(size);
}

}  // namespace heterog

template <class Tag>
struct std::hash<heterog::Id<Tag>> {
  std::size_t operator()(heterog::Id<Tag> id) const noexcept {
    return std::hash<std::uint32_t>{}(id.value());
  }
};
