// Helpers of the op tests: seeded random tensors that own their storage, float64 copies,
// comparison.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/owned_context.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"

namespace motley {

class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : engine_(seed) {}

  // Uniform in [low, high].
  int64_t integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(double probability) { return uniform() < probability; }
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

// A tensor with its storage. Rows may be padded; padding holds NaN (or the largest integer), so
// reading it shows.
template <typename T>
class TestTensor {
 public:
  TestTensor() = default;
  explicit TestTensor(Shape shape, int64_t row_padding = 0)
      : shape_(shape),
        row_stride_(shape.inner() + row_padding),
        data_(static_cast<size_t>(shape[0] * row_stride_), poison()) {
    for (int64_t r = 0; r < rows(); ++r) {
      for (int64_t c = 0; c < cols(); ++c) row(r)[c] = T{};
    }
  }

  int64_t rows() const { return shape_[0]; }
  int64_t cols() const { return shape_.inner(); }
  const Shape& shape() const { return shape_; }
  T* row(int64_t r) { return data_.data() + r * row_stride_; }
  const T* row(int64_t r) const { return data_.data() + r * row_stride_; }
  TensorView view() {
    TensorView result = view_of(data_.data(), shape_);
    result.row_stride = row_stride_;
    return result;
  }
  ConstTensorView view() const {
    ConstTensorView result = view_of(data_.data(), shape_);
    result.row_stride = row_stride_;
    return result;
  }
  void fill_normal(TestRandom& random, double scale = 1.0) {
    for (int64_t r = 0; r < rows(); ++r) {
      for (int64_t c = 0; c < cols(); ++c) row(r)[c] = static_cast<T>(scale * random.normal());
    }
  }

  // Same bits in every element (padding aside).
  bool same_bits(const TestTensor& other) const {
    if (!(shape_ == other.shape_)) return false;
    for (int64_t r = 0; r < rows(); ++r) {
      if (std::memcmp(row(r), other.row(r), static_cast<size_t>(cols()) * sizeof(T)) != 0) {
        return false;
      }
    }
    return true;
  }

 private:
  static T poison() {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::quiet_NaN();
    return std::numeric_limits<T>::max();
  }

  Shape shape_{0};
  int64_t row_stride_ = 0;
  std::vector<T> data_;
};

template <typename T>
TestTensor<T> random_tensor(TestRandom& random, Shape shape, double scale = 1.0,
                            int64_t row_padding = 0) {
  TestTensor<T> result(shape, row_padding);
  result.fill_normal(random, scale);
  return result;
}

// An exact copy in float64, for the reference.
inline TestTensor<double> to_double(const TestTensor<float>& source) {
  TestTensor<double> result(source.shape());
  for (int64_t r = 0; r < source.rows(); ++r) {
    for (int64_t c = 0; c < source.cols(); ++c) result.row(r)[c] = double{source.row(r)[c]};
  }
  return result;
}

// |actual - expected| <= absolute + relative * |expected| everywhere; NaN fails. Reports the first
// element that is off and the largest error.
template <typename T>
testing::AssertionResult all_near(const TestTensor<T>& actual, const TestTensor<double>& expected,
                                  double absolute, double relative = 0.0) {
  if (!(actual.shape() == expected.shape())) return testing::AssertionFailure() << "shapes differ";
  double largest = 0;
  testing::AssertionResult result = testing::AssertionSuccess();
  for (int64_t r = 0; r < actual.rows(); ++r) {
    for (int64_t c = 0; c < actual.cols(); ++c) {
      const double want = expected.row(r)[c];
      const double got = static_cast<double>(actual.row(r)[c]);
      if (got == want) continue;  // includes equal infinities
      const double error = std::abs(got - want);
      if (error <= absolute + relative * std::abs(want)) continue;
      if (result) {
        result = testing::AssertionFailure()
                 << "[" << r << ", " << c << "]: " << got << ", expected " << want << "; ";
      }
      if (!(error <= largest)) largest = error;
    }
  }
  if (!result) result << "largest error " << largest;
  return result;
}

// A stream with a pool of its own.
class TestStream {
 public:
  explicit TestStream(int threads = 1)
      : context_(ThreadPoolOptions{.threads = threads, .pin = false}), stream_(context_.get()) {}
  Stream& operator*() { return stream_; }
  operator Stream&() { return stream_; }

 private:
  OwnedContext context_;
  HostStream stream_;
};

}  // namespace motley
