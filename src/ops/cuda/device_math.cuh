// Small device helpers shared by the kernels. Reductions run in a fixed order (R5).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "tensor/tensor_view.h"

namespace motley::cuda {

inline constexpr unsigned kFullWarp = 0xFFFFFFFFu;

// A float32 matrix in device memory: rows `stride` elements apart.
template <typename T>
struct RowsOf {
  T* data = nullptr;
  int64_t stride = 0;
  __device__ T* row(int64_t index) const { return data + index * stride; }
};
using Rows = RowsOf<float>;
using ConstRows = RowsOf<const float>;

// Activations of this backend are float32 by contract, so the type is not looked at.
inline Rows rows_of(const TensorView& view) {
  return {reinterpret_cast<float*>(view.data), view.row_stride};
}
inline ConstRows rows_of(const ConstTensorView& view) {
  return {reinterpret_cast<const float*>(view.data), view.row_stride};
}
inline const float* floats_of(const ConstTensorView& view) {
  return reinterpret_cast<const float*>(view.data);
}

inline int64_t divide_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit;
}
inline unsigned grid_of(int64_t value, int64_t unit) {
  return static_cast<unsigned>(divide_up(value, unit));
}

__device__ inline float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}
__device__ inline float silu(float x) {
  return x * sigmoid(x);
}
// silu(gate) * up within a limit (ops/swiglu.h). Comparisons, not fminf: NaN stays NaN.
__device__ inline float gated_unit(float gate, float up, float limit) {
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up;
  up = up < -limit ? -limit : up;
  return up * silu(gate);
}
__device__ inline float softplus(float x) {
  return x > 20.0f ? x : log1pf(expf(x));
}

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kFullWarp, value, offset);
  }
  return value;
}
__device__ inline float warp_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, offset));
  }
  return value;
}

// Sum over the block, the same in every thread. `partial` has one slot per warp.
template <int kWarps>
__device__ float block_sum(float value, float* partial) {
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) total += partial[warp];
  return total;
}

// Low half first, as the tensor cores expect a pair.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ inline float low_bf16(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ inline float high_bf16(uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}

// value = high + low to about 16 bits: both parts of a pair, packed.
__device__ inline void split_bf16(float a, float b, uint32_t* high, uint32_t* low) {
  *high = pack_bf16(a, b);
  *low = pack_bf16(a - low_bf16(*high), b - high_bf16(*high));
}

}  // namespace motley::cuda
