// Views of activations and state: a pointer with its type, shape, row stride and memory space.
//
// The outermost dimension may have a stride (`row_stride` elements), so a column slice of a wider
// buffer is a view too; the inner dimensions are contiguous. Views never own and are not kept
// beyond a step. Thread rule: plain values; the caller orders access to the bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numeric/dtype.h"
#include "tensor/shape.h"

namespace motley {

enum class MemorySpace : uint8_t { kHost, kDevice };

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<uint16_t> {  // raw bits of a 16-bit float
  static constexpr DType value = DType::kBf16;
};

// `Byte` is std::byte or const std::byte.
template <typename Byte>
struct BasicTensorView {
  Byte* data = nullptr;
  DType dtype = DType::kF32;
  MemorySpace space = MemorySpace::kHost;
  Shape shape;
  int64_t row_stride = 0;  // elements from one outermost index to the next

  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  // A mutable view converts to a read-only one.
  operator BasicTensorView<const std::byte>() const
    requires(!std::is_const_v<Byte>)
  {
    return {data, dtype, space, shape, row_stride};
  }

  int64_t rows() const { return shape.rank() == 0 ? 0 : shape[0]; }
  int64_t cols() const { return shape.inner(); }
  bool is_contiguous() const { return rows() <= 1 || row_stride == cols(); }
  bool is_empty() const { return data == nullptr; }

  // Elements of outermost index `row`; T must match the dtype.
  template <typename T>
  Element<T>* row(int64_t index) const {
    MOTLEY_CHECK(DTypeOf<T>::value == dtype, "view has another element type");
    MOTLEY_CHECK(index >= 0 && index < rows(), "row out of range");
    return reinterpret_cast<Element<T>*>(data) + index * row_stride;
  }
  template <typename T>
  Element<T>* as() const {
    MOTLEY_CHECK(DTypeOf<T>::value == dtype, "view has another element type");
    return reinterpret_cast<Element<T>*>(data);
  }

  // Outermost indices [begin, begin + count).
  BasicTensorView slice_rows(int64_t begin, int64_t count) const {
    MOTLEY_CHECK(begin >= 0 && count >= 0 && begin + count <= rows(), "row slice out of range");
    BasicTensorView result = *this;
    result.data = data + begin * row_stride * dtype_bytes(dtype);
    result.shape = with_rows(count);
    return result;
  }
  // Columns [begin, begin + count) of a rank-2 view.
  BasicTensorView slice_cols(int64_t begin, int64_t count) const {
    MOTLEY_CHECK(shape.rank() == 2 && begin >= 0 && count >= 0 && begin + count <= shape[1],
                 "column slice out of range");
    BasicTensorView result = *this;
    result.data = data + begin * dtype_bytes(dtype);
    result.shape = Shape{shape[0], count};
    return result;
  }

 private:
  Shape with_rows(int64_t count) const {
    switch (shape.rank()) {
      case 1:
        return {count};
      case 2:
        return {count, shape[1]};
      case 3:
        return {count, shape[1], shape[2]};
      default:
        return {count, shape[1], shape[2], shape[3]};
    }
  }
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

inline TensorView make_view(void* data, DType dtype, Shape shape,
                            MemorySpace space = MemorySpace::kHost) {
  return {static_cast<std::byte*>(data), dtype, space, shape, shape.inner()};
}
inline ConstTensorView make_view(const void* data, DType dtype, Shape shape,
                                 MemorySpace space = MemorySpace::kHost) {
  return {static_cast<const std::byte*>(data), dtype, space, shape, shape.inner()};
}
template <typename T>
TensorView view_of(T* data, Shape shape) {
  return make_view(static_cast<void*>(data), DTypeOf<T>::value, shape);
}
template <typename T>
ConstTensorView view_of(const T* data, Shape shape) {
  return make_view(static_cast<const void*>(data), DTypeOf<T>::value, shape);
}

}  // namespace motley
