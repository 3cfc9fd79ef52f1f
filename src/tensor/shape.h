// Up to four dimensions, outermost first.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"

namespace motley {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    MOTLEY_CHECK(dims.size() <= kMaxRank, "at most four dimensions");
    for (const int64_t dim : dims) dims_[static_cast<size_t>(rank_++)] = dim;
  }

  int rank() const { return rank_; }
  int64_t operator[](int index) const {
    MOTLEY_CHECK(index >= 0 && index < rank_, "dimension out of range");
    return dims_[static_cast<size_t>(index)];
  }
  int64_t elements() const {
    int64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= dims_[static_cast<size_t>(i)];
    return product;
  }
  // Elements of one index of the outermost dimension.
  int64_t inner() const {
    int64_t product = 1;
    for (int i = 1; i < rank_; ++i) product *= dims_[static_cast<size_t>(i)];
    return product;
  }
  // "[4, 256]".
  std::string to_string() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace motley
